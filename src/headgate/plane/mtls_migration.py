"""Moves workloads between plaintext and mutual TLS, one TLS mode at a time, without losing a request (R74, R77).

A caller must not use TLS before the server accepts TLS, and the server must accept plaintext until no caller sends
plaintext. So a migration passes through intermediate modes. Each step waits until every proxy has acknowledged the
previous mode. A step after which a server accepts fewer connections also waits for connections in flight: a proxy
acknowledges before its worker threads switch, and a busy server may be slow to accept a connection that a client opened
in the old mode.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from headgate.envoy.config import CLUSTER
from headgate.errors import StoreError
from headgate.identity.rotation import HANDSHAKE_GRACE_S
from headgate.model.mutual_tls import TlsMode
from headgate.model.routing import Workload
from headgate.objects.ports import StateStorage
from headgate.xds.fleet import Fleet, FleetProxy

INBOUND = "inbound"
NAME = "tls-modes.json"

log = logging.getLogger(__name__)


class MtlsMigration:
    """Holds the current TLS mode of each workload. A new workload starts in its wanted mode."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._late: FleetProxy | None = None  # the proxy that blocked the last step; it is checked first
        self._timer: asyncio.TimerHandle | None = None
        self._storage: StateStorage | None = None
        self._saved: Mapping[str, TlsMode] = {}  # the modes in the storage, as `_by_namespace` returns them
        self._restoring: Mapping[str, TlsMode] = {}  # saved modes that no build has used yet
        self._restored = asyncio.Event()
        self._is_built_restored = False  # whether the current build uses `_restoring`
        self._modes: Mapping[str, TlsMode] = {}
        self._targets: Mapping[str, TlsMode] = {}
        # Monotonic time after which no connection of the previous modes is in flight; None until all proxies use the new modes.
        self._drained_at: float | None = 0.0

    async def restore(self, storage: StateStorage) -> None:
        """Continue with the modes that an earlier process saved, and save each change from now on.

        Returns after a build with these modes. The wanted modes may differ, for example with another `--mtls`. The
        proxies still use the saved modes, so the first step waits for all proxies. Call this after a first build.
        """
        self._saved = self._restoring = await _load(storage)
        self._storage = storage
        if not self._saved:
            return
        self._drained_at = None
        self._fleet.notify()
        await self._restored.wait()

    @property
    def is_due(self) -> bool:
        """Return whether the modes of the next build differ from those of the last one: a step is due, or a restore."""
        if self._restoring:
            return True
        if self._modes == self._targets:
            return False
        self._late = self._fleet.find(lambda proxy: proxy.was_configured and not _holds(proxy), self._late)
        return self._late is None and self._is_drained()

    def _is_drained(self) -> bool:
        """Return whether all connections in flight that the next step would refuse have ended.

        If a connection may still be in flight, set a timer to check again.
        """
        if self._drained_at is None:
            self._drained_at = time.monotonic() + HANDSHAKE_GRACE_S
        left = self._drained_at - time.monotonic()
        if left <= 0 or all(mode.accepts_tls and mode.accepts_plaintext for _, mode in self._steps()):
            return True
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(left, self._check_again)
        return False

    def _check_again(self) -> None:
        self._timer = None
        self._fleet.notify()

    def _steps(self) -> Iterator[tuple[str, TlsMode]]:
        """Yield the next mode of each workload that is not in its wanted mode."""
        for name, mode in self._modes.items():
            if mode is not self._targets[name]:
                yield name, mode.step_toward(self._targets[name])

    def pending_proxies(self) -> tuple[str, ...]:
        """Return the node IDs of proxies that block the next step: lagging, disconnected, or rejecting TLS settings."""
        return tuple(sorted(proxy.id for proxy in self._fleet.configured() if not _holds(proxy)))

    def record(self, workloads: Sequence[Workload]) -> None:
        """Set the published and the wanted mode of each workload after a build; drop workloads that left the mesh."""
        before, self._modes = self._modes, {workload.name: workload.tls_mode for workload in workloads}
        self._targets = {workload.name: workload.target_tls_mode for workload in workloads}
        if any(before.get(name, mode) is not mode for name, mode in self._modes.items()):
            self._drained_at = None
        if self._is_built_restored:
            self._restoring, self._is_built_restored = {}, False
            self._restored.set()

    async def save(self) -> None:
        """Save the modes of the last build if they changed.

        If the write fails, the storage has the modes of the previous step. Modes that are one step apart are compatible.
        """
        if self._storage is None or self._restoring or (modes := _by_namespace(self._modes)) == self._saved:
            return
        try:
            await self._storage.save(NAME, msgspec.json.encode(modes))
            self._saved = modes
        except StoreError as error:
            log.warning("the TLS modes can't be saved for the next start: %s", error)

    async def forget(self) -> None:
        """Delete all saved modes, and save no modes from now on. Call this after every proxy has exited."""
        self._modes = {}
        await self.save()
        self._storage = None

    def next_modes(self) -> Mapping[str, TlsMode]:
        """Return the mode of each workload for the next build: the next mode if a step is due, else the current mode.

        Call `record` after the build.
        """
        if self._restoring:
            self._is_built_restored = True
            return {name: _saved_mode(self._restoring, name) or mode for name, mode in self._modes.items()}
        return {**self._modes, **dict(self._steps())} if self.is_due else dict(self._modes)


def _holds(proxy: FleetProxy) -> bool:
    """Return whether a proxy has answered, and accepted its TLS settings for outgoing and incoming connections.

    A rejected listener for outgoing connections does not matter.
    """
    return proxy.settled() and not any(
        rejection.type_url == CLUSTER or rejection.name.startswith(INBOUND) for rejection in proxy.rejections()
    )


def _by_namespace(modes: Mapping[str, TlsMode]) -> Mapping[str, TlsMode]:
    """Return the most frequent mode of each namespace, and the modes of workloads that have another mode.

    For example `{"shop": "strict", "shop/web-1": "permissive"}`. So a new pod seldom changes the saved modes.
    """
    namespaces: dict[str, Counter[TlsMode]] = {}
    for name, mode in modes.items():
        namespaces.setdefault(name.partition("/")[0], Counter())[mode] += 1
    most = {namespace: counts.most_common(1)[0][0] for namespace, counts in sorted(namespaces.items())}
    return most | {name: mode for name, mode in modes.items() if mode is not most[name.partition("/")[0]]}


def _saved_mode(saved: Mapping[str, TlsMode], workload: str) -> TlsMode | None:
    return saved.get(workload) or saved.get(workload.partition("/")[0])


async def _load(storage: StateStorage) -> Mapping[str, TlsMode]:
    """Return the saved modes; empty if there are none or if they are unreadable."""
    try:
        data = await storage.load(NAME)
        return {} if data is None else msgspec.json.decode(data, type=dict[str, TlsMode])
    except (StoreError, msgspec.DecodeError) as error:
        log.warning(
            "%s can't be read: %s; if --mtls has changed since the last start, some requests may fail now", NAME, error
        )
        return {}
