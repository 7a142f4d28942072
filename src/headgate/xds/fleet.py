"""The fleet: all proxies, each with its configuration and its session. Streams update it; statuses are built from it."""

import asyncio
import contextlib
import enum
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain, dropwhile

from headgate.envoy.config import NO_RESOURCES, ORDER, ProxyConfig, TypeUrl
from headgate.latest import Latest
from headgate.xds.session import Session
from headgate.xds.subscription import Rejection

NOTIFY_SECONDS = 0.01  # shortest time between two increments of `Fleet.change_count`
MAX_REMOVED = 4096  # removed proxies that are remembered
MAX_TIMED_RESPONSES = 64  # limit for the stored send times of a proxy's unanswered responses


class EndReason(enum.Enum):
    """Why headgate ends a stream; the value is the message of the gRPC status."""

    REMOVED = "this proxy was removed: its pod or gateway is gone"
    REPLACED = "another stream of this proxy has started: only the newest stream of a proxy is served"


@dataclass
class Timestamps:
    """When a proxy connected, acknowledged and rejected, in seconds since the epoch. For display only.

    `acknowledged` is by type. `rejected` is the last NACK of a single resource, kept after the resource changes. `sent`
    has the responses without an answer, by nonce.
    """

    connected: float = 0.0
    acknowledged: dict[TypeUrl, float] = field(default_factory=dict)
    rejected: tuple[Rejection, float] | None = None
    sent: dict[str, float] = field(default_factory=dict)

    def record_sent(self, nonce: str, now: float) -> None:
        """Record when a response was sent, unless `MAX_TIMED_RESPONSES` responses are unanswered."""
        if len(self.sent) < MAX_TIMED_RESPONSES:
            self.sent[nonce] = now


class WantedConfig(Latest[ProxyConfig | None]):
    """The wanted configuration of a proxy. `follow` is called when it changes."""

    def __init__(self) -> None:
        super().__init__(None)
        self.follow: Callable[[], None] = _ignore

    def set(self, value: ProxyConfig | None) -> None:
        """Replace the wanted configuration, unless the new one consists of the same objects."""
        before = self.get()
        if before is None or value is None or any(value.get(name) is not before.get(name) for name in ORDER):
            self.replace(value)
            self.follow()


def _ignore() -> None:
    pass


class FleetProxy:
    """One proxy. `config` is its wanted configuration, None until the first build; `session` is that of its stream, if any.

    `was_configured` is True once this headgate process, or possibly an earlier one, has sent it configuration. A
    disconnected proxy continues to use that configuration.

    `is_behind` says that `config` is of an earlier build: the revision that renders it has not rendered the last one.
    """

    def __init__(self, node_id: str) -> None:
        self.id = node_id
        self.config = WantedConfig()
        self.session: Session | None = None
        self.was_configured = False
        self.is_behind = False
        self.timestamps = Timestamps()
        self._end: Callable[[EndReason], None] | None = None
        # The session and its change count for which `_settled` was computed.
        self._settled_for: tuple[Session | None, int] = (None, 0)
        self._settled = False

    def attach(self, session: Session, end: Callable[[EndReason], None], follow: Callable[[], None] = _ignore) -> None:
        """Make a stream the current one. `end` ends it; `follow` is called when the wanted configuration changes.

        An older stream of the proxy ends: the proxy has abandoned it, or a second process uses the same node ID.
        """
        if self._end:
            self._end(EndReason.REPLACED)
        self.session, self._end, self.was_configured = session, end, True
        self.timestamps.sent.clear()
        self.config.follow = follow

    def detach(self, session: Session) -> None:
        """Record that a stream has ended, if it is still the proxy's current stream."""
        if self.session is session:
            self.session, self._end, self.config.follow = None, None, _ignore

    def drop(self) -> None:
        """End the stream, if any, and drop the wanted configuration."""
        if self._end:
            self._end(EndReason.REMOVED)
        self.session, self._end, self.config.follow = None, None, _ignore
        self.config.set(None)

    def is_out_of_sync(self, type_url: TypeUrl, name: str) -> bool:
        """Return whether a resource differs from the wanted one.

        Either the proxy lacks it, or it has another version, or it must drop it.
        """
        if self.session is None:
            return True
        encoded = (self.config.get() or {}).get(type_url, {}).get(name)
        held = self.session.subscriptions[type_url].acknowledged.get(name)
        return (encoded.digest if encoded else None) != (held.digest if held else None)

    def out_of_sync(self, limit: int) -> frozenset[tuple[TypeUrl, str]] | None:
        """Return the subscribed resources that are out of sync (`is_out_of_sync`) or rejected in the wanted version.

        None means that there are more than `limit`, or that the proxy has no stream or no configuration.
        """
        session = self._up_to_date_session()
        if session is None:
            return None
        resources = session.out_of_sync(limit)
        return None if len(resources) > limit else frozenset(resources)

    def retry_listeners(self) -> None:
        """Send again the listeners whose address was in use, if any."""
        if self.session and self.session.retry_listeners():
            self.config.follow()

    def rejections(self) -> Iterator[Rejection]:
        """Yield the resources that the proxy rejected in the version that is wanted now."""
        config = self.config.get() or {}
        for type_url, subscription in self.session.subscriptions.items() if self.session else ():
            for name, rejection in subscription.rejected.items():
                current = config.get(type_url, NO_RESOURCES).get(name)
                if current and current.digest == rejection.digest:
                    yield rejection

    def has_reported_all(self) -> bool:
        """Return whether the proxy has reported, after a reconnect, all resources that it holds."""
        return self.session is not None and self.session.has_reported_all

    def settled(self) -> bool:
        """Return whether the proxy has acknowledged or rejected every resource of its wanted configuration."""
        session = self._up_to_date_session()
        if session is None:
            return False
        if self._settled_for != (session, session.change_count):
            self._settled_for = session, session.change_count
            self._settled = self.has_reported_all() and not session.awaits_answer and self._has_all(session)
        return self._settled

    def _up_to_date_session(self) -> Session | None:
        """Give the session the wanted configuration and return it; None without a stream or a current configuration."""
        session, config = self.session, self.config.get()
        if session is None or config is None:
            return None
        if session.config is not config:
            session.set_config(config)
        return None if self.is_behind else session

    def _has_all(self, session: Session) -> bool:
        missing = set(session.unacknowledged())
        return not missing or missing.issubset((rejection.type_url, rejection.name) for rejection in self.rejections())


class Fleet:
    """All proxies that headgate serves. `change_count` grows when a proxy changes: wait for it, then read the proxies.

    `counts` has totals since headgate started: `streams`, `acks`, `nacks`, and responses that were `overdue`.
    """

    def __init__(self) -> None:
        self.proxies: dict[str, FleetProxy] = {}
        self._removed: dict[str, None] = {}  # node IDs, oldest first
        self.change_count: Latest[int] = Latest(0)
        self.counts: Counter[str] = Counter()
        self._pause: asyncio.TimerHandle | None = None
        self._has_changed = False

    def expect(self, node_id: str) -> FleetProxy:
        """Return the proxy with this node ID, added if it is new. Streams of other node IDs are rejected."""
        if node_id not in self.proxies:
            self._removed.pop(node_id, None)
            self.proxies[node_id] = FleetProxy(node_id)
        return self.proxies[node_id]

    def assume_configured(self) -> None:
        """Assume that an earlier process of headgate has sent configuration to all proxies of the fleet."""
        for proxy in self.proxies.values():
            proxy.was_configured = True

    def remove(self, node_id: str) -> None:
        """Remove a proxy and its state, and end its stream. An unknown node ID has no effect."""
        if proxy := self.proxies.pop(node_id, None):
            proxy.drop()
            self._removed[node_id] = None
            if len(self._removed) > MAX_REMOVED:
                del self._removed[next(iter(self._removed))]
            self.notify()

    def was_removed(self, node_id: str) -> bool:
        """Return whether this proxy was removed. It may reconnect before its process ends, which is no mistake."""
        return node_id in self._removed

    def connected(self) -> list[FleetProxy]:
        """Return the proxies that have a stream."""
        return [proxy for proxy in self.proxies.values() if proxy.session is not None]

    def configured(self) -> list[FleetProxy]:
        """Return the proxies that have configuration from headgate, connected or not."""
        return [proxy for proxy in self.proxies.values() if proxy.was_configured]

    def find(self, predicate: Callable[[FleetProxy], bool], last: FleetProxy | None = None) -> FleetProxy | None:
        """Return a proxy that satisfies a predicate, None if there is none.

        The search starts at `last`, the previous result: when proxies answer one after the other, the search is short.
        """
        proxies = self.proxies.values()
        return next(filter(predicate, chain(dropwhile(lambda proxy: proxy is not last, proxies), proxies)), None)

    def notify(self) -> None:
        """Wake the readers of `change_count` immediately, but not more often than every `NOTIFY_SECONDS`.

        A thousand proxies acknowledge a change one by one, and some readers look at all proxies each time.
        """
        if self._pause:
            self._has_changed = True
            return
        self.change_count.set(self.change_count.get() + 1)
        with contextlib.suppress(RuntimeError):  # without an event loop there are no readers
            self._pause = asyncio.get_running_loop().call_later(NOTIFY_SECONDS, self._end_pause)

    def _end_pause(self) -> None:
        self._pause = None
        if self._has_changed:
            self._has_changed = False
            self.notify()
