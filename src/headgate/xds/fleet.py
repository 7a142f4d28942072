"""The proxies: what each is to hold, what it holds, what it refused, and which have their turn.

Read by the status, written by the streams.
"""

import asyncio
import contextlib
import ctypes
import enum
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain, dropwhile

from headgate.envoy.config import CLUSTER, NO_RESOURCES, ORDER, ProxyConfig, TypeUrl
from headgate.latest import Latest
from headgate.xds.session import Session
from headgate.xds.shelf import Rejected

NEWS_SECONDS = 0.01  # between two announcements of news
MOST_SENT = 64  # responses without an answer whose time is remembered
AT_ONCE = 32  # streams that have their turn
TURN_SECONDS = 1.0  # after which a stream that has its turn no longer makes others wait
QUIET_SECONDS = 0.25  # without a turn, after which memory is given back


class Ending(enum.Enum):
    """Why a stream ends that could have gone on."""

    FORGOTTEN = "there is no such proxy any more"
    REPLACED = "another stream of this proxy began, and the newest counts"


@dataclass
class Answers:
    """When a proxy connected and answered, in seconds since the epoch. Streams write it; nothing decides by it.

    `acknowledged` has the last ACK of each type, `rejected` the last NACK of a single resource and its time, also after the
    resource changed. `sent` has the responses without an answer, by nonce.
    """

    connected: float = 0.0
    acknowledged: dict[TypeUrl, float] = field(default_factory=dict)
    rejected: tuple[Rejected, float] | None = None
    sent: dict[str, float] = field(default_factory=dict)

    def send(self, nonce: str, now: float) -> None:
        """Remember a response; of many without an answer only the oldest count."""
        if len(self.sent) < MOST_SENT:
            self.sent[nonce] = now


class Wanted(Latest[ProxyConfig | None]):
    """The configuration that a proxy is to hold. `follow` is called when there is another one."""

    def __init__(self) -> None:
        super().__init__(None)
        self.follow: Callable[[], None] = _ignore

    def set(self, value: ProxyConfig | None) -> None:
        """Make a configuration the wanted one, unless it has the very same resources."""
        before = self.get()
        if before is None or value is None or any(value.get(name) is not before.get(name) for name in ORDER):
            self.replace(value)
            self.follow()


def _ignore() -> None:
    pass


class Proxy:
    """One proxy. `config` is what it is to hold, nothing until the first build; `session` is its stream, if it has one.

    `serves` is true of one that was ever told something, perhaps by an earlier headgate: while it is away, it goes by that.
    """

    def __init__(self, node_id: str) -> None:
        self.id = node_id
        self.config = Wanted()
        self.session: Session | None = None
        self.serves = False
        self.answers = Answers()
        self._end: Callable[[Ending], None] | None = None
        self._judged: tuple[Session | None, int] = (None, 0)  # when it was last found out whether the proxy is settled
        self._settled = False

    def attach(self, session: Session, end: Callable[[Ending], None], follow: Callable[[], None] = _ignore) -> None:
        """Make a stream the proxy's; `end` ends it, `follow` is called when another configuration is wanted.

        A stream that it had ends now: its proxy has left it, or is another one.
        """
        if self._end:
            self._end(Ending.REPLACED)
        self.session, self._end, self.serves = session, end, True
        self.answers.sent.clear()
        self.config.follow = follow

    def detach(self, session: Session) -> None:
        """Note that a stream is over, if it is still the proxy's."""
        if self.session is session:
            self.session, self._end, self.config.follow = None, None, _ignore

    def drop(self) -> None:
        """End the stream, if there is one, and let go of what the proxy was to hold."""
        if self._end:
            self._end(Ending.FORGOTTEN)
        self.session, self._end, self.config.follow = None, None, _ignore
        self.config.set(None)

    def lags(self, type_url: TypeUrl, name: str) -> bool:
        """Say whether the proxy does not hold a resource as it is wanted: it may be missing, old, or still there."""
        if self.session is None:
            return True
        encoded = (self.config.get() or {}).get(type_url, {}).get(name)
        held = self.session.shelves[type_url].held.get(name)
        return (encoded.digest if encoded else None) != (held.digest if held else None)

    def lacking(self, most: int) -> frozenset[tuple[TypeUrl, str]] | None:
        """Return the resources that the proxy lags with (`lags`) or refuses, of those that it asks for; none in sync.

        None stands for more than `most`, and for all while it has no stream or no configuration.
        """
        session = self._offered()
        if session is None:
            return None
        found = session.lacking(most)
        return None if len(found) > most else frozenset(found)

    def refusals(self) -> Iterator[Rejected]:
        """Yield the resources that the proxy refused in the version that is wanted now."""
        config = self.config.get() or {}
        for type_url, shelf in self.session.shelves.items() if self.session else ():
            for name, rejected in shelf.rejected.items():
                wanted = config.get(type_url, NO_RESOURCES).get(name)
                if wanted and wanted.digest == rejected.digest:
                    yield rejected

    def has_told(self) -> bool:
        """Say whether the proxy has told all that it brought along; what it has not told of, it may hold all the same.

        It tells type by type, clusters first, and answers when it is done; so the first answer about clusters ends it.
        """
        clusters = self.session.shelves[CLUSTER] if self.session else None
        return clusters is not None and clusters.wildcard and not clusters.owed and not clusters.waits

    def settled(self) -> bool:
        """Say whether the proxy holds, or has refused, everything that it is to hold."""
        session = self._offered()
        if session is None:
            return False
        if self._judged != (session, session.changes):
            self._judged = session, session.changes
            self._settled = self.has_told() and not session.is_waiting and self._holds_all(session)
        return self._settled

    def _offered(self) -> Session | None:
        """Return the session, which knows what is wanted; none without a stream or a configuration."""
        session, config = self.session, self.config.get()
        if session is None or config is None:
            return None
        if session.config is not config:
            session.offer(config)
        return session

    def _holds_all(self, session: Session) -> bool:
        missing = set(session.missing())
        return not missing or missing.issubset((item.type_url, item.name) for item in self.refusals())


class Fleet:
    """All proxies that headgate serves. `news` counts what happened to them: wait for it to change, then look.

    `counts` are of `streams`, `acks`, `nacks` and answers that were `overdue`, since headgate started.
    """

    def __init__(self) -> None:
        self.proxies: dict[str, Proxy] = {}
        self.news: Latest[int] = Latest(0)
        self.counts: Counter[str] = Counter()
        self._resting: asyncio.TimerHandle | None = None
        self._unsaid = False

    def expect(self, node_id: str) -> Proxy:
        """Make a proxy known; only known ones are served."""
        if node_id not in self.proxies:
            self.proxies[node_id] = Proxy(node_id)
        return self.proxies[node_id]

    def recall(self) -> None:
        """Take it that an earlier headgate has told something to all who are known by now."""
        for proxy in self.proxies.values():
            proxy.serves = True

    def forget(self, node_id: str) -> None:
        """Let go of a proxy and of all that is known about it; its stream ends. One that is not known is no news."""
        if proxy := self.proxies.pop(node_id, None):
            proxy.drop()
            self.bump()

    def connected(self) -> list[Proxy]:
        """Return the proxies that have a stream."""
        return [proxy for proxy in self.proxies.values() if proxy.session is not None]

    def serving(self) -> list[Proxy]:
        """Return the proxies that go by what headgate told them, now or once: those with a stream, and those away."""
        return [proxy for proxy in self.proxies.values() if proxy.serves]

    def first(self, is_wanted: Callable[[Proxy], bool], last: Proxy | None = None) -> Proxy | None:
        """Return a proxy of some sort, if there is one: the `last` that was found, while it still is of that sort.

        Else those after it are looked at first: while proxies answer one after the other, they still are of the sort.
        """
        proxies = self.proxies.values()
        return next(filter(is_wanted, chain(dropwhile(lambda proxy: proxy is not last, proxies), proxies)), None)

    def bump(self) -> None:
        """Tell the readers of `news` that a proxy's state changed: at once, then at most once in a while.

        A thousand proxies acknowledge a change one by one, and some readers look at all of them.
        """
        if self._resting:
            self._unsaid = True
            return
        self.news.set(self.news.get() + 1)
        with contextlib.suppress(RuntimeError):  # no event loop, so there are no readers
            self._resting = asyncio.get_running_loop().call_later(NEWS_SECONDS, self._rested)

    def _rested(self) -> None:
        self._resting = None
        if self._unsaid:
            self._unsaid = False
            self.bump()


class Turns:
    """The turns of all streams: few proxies at a time are brought up to date, however many connect at once.

    A proxy's first configuration is megabytes. A thousand of them sent side by side take gigabytes of memory, and no proxy
    answers in time; one after the other, each takes milliseconds. Streams that wait have their turn in order, first those
    that have begun.
    """

    def __init__(self) -> None:
        self.free = AT_ONCE
        self.waiting: deque[Turn] = deque()
        self._quiet: asyncio.TimerHandle | None = None

    def give(self) -> None:
        """Pass a turn on."""
        self.free += 1
        while self.free and self.waiting:
            self.waiting.popleft().begin()
        if self.free == AT_ONCE:
            if self._quiet:
                self._quiet.cancel()
            loop = asyncio.get_running_loop()
            self._quiet = loop.call_later(QUIET_SECONDS, loop.run_in_executor, None, _give_memory_back)


def _give_memory_back() -> None:
    """Return freed memory to the system: after 300 first configurations of 5 MB glibc keeps 100 of 270 MB."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # glibc alone has it
        trim(0)


class _State(enum.Enum):
    NONE = enum.auto()
    AWAITED = enum.auto()
    HELD = enum.auto()
    NOT_NEEDED = enum.auto()


class Turn:
    """One stream's turn; `go_on` is called when it has come after it was waited for."""

    def __init__(self, turns: Turns, go_on: Callable[[], None]) -> None:
        self._turns = turns
        self._go_on = go_on
        self._state = _State.NONE
        self._has_begun = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_needed(self) -> bool:
        """Whether the proxy is not known to be up to date."""
        return self._state is not _State.NOT_NEEDED

    def take(self) -> bool:
        """Return whether it is the stream's turn; wait for it otherwise."""
        if self._state is _State.NONE:
            if self._turns.free:
                self._hold()
            else:
                self._state = _State.AWAITED
                (self._turns.waiting.appendleft if self._has_begun else self._turns.waiting.append)(self)
        return not self.is_needed or self._state is _State.HELD

    def begin(self) -> None:
        """Let the stream go on: its turn has come."""
        self._hold()
        self._go_on()

    def rest(self) -> None:
        """Let others have their turn while the stream has nothing to send."""
        self._end(_State.NONE)

    def dispense(self) -> None:
        """Need no turn any more: the proxy is up to date, or has ended, or takes too long."""
        self._end(_State.NOT_NEEDED)

    def _hold(self) -> None:
        self._turns.free -= 1
        self._state, self._has_begun = _State.HELD, True
        self._timer = asyncio.get_running_loop().call_later(TURN_SECONDS, self.dispense)

    def _end(self, after: _State) -> None:
        if not self.is_needed:
            return
        before, self._state = self._state, after
        if self._timer:
            self._timer.cancel()
        if before is _State.HELD:
            self._turns.give()
        elif before is _State.AWAITED:
            self._turns.waiting.remove(self)
