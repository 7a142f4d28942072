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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from headgate.atomic_file import write_private
from headgate.envoy.config import CLUSTER
from headgate.envoy.view import SIDECAR
from headgate.identity.rotation import HANDSHAKE_GRACE_S
from headgate.model.routing import TlsMode, Workload
from headgate.xds.fleet import Fleet, Proxy

INBOUND = "inbound"
FILE = "stages.json"

log = logging.getLogger(__name__)


class MtlsMigration:
    """Holds the current TLS mode of each workload. A new workload starts in its wanted mode."""

    def __init__(self, fleet: Fleet, file: Path | None = None) -> None:
        """Start with the modes that an earlier headgate process wrote to `file`, and write each change to it.

        The wanted modes may differ now, for example with another `--mtls`. The proxies still use the old modes, so the
        first step waits for all of these proxies.
        """
        self._fleet = fleet
        self._late: Proxy | None = None  # the proxy that blocked the last step; it is checked first
        self._timer: asyncio.TimerHandle | None = None
        self._file = file
        self._persisted: Mapping[str, TlsMode] = _read(file) if file else {}
        self._modes, self._targets = dict(self._persisted), dict(self._persisted)
        # Monotonic time after which no connection of the previous modes is in flight; None until all proxies use the new modes.
        self._drained_at: float | None = None if self._persisted else 0.0
        for name in self._persisted:
            fleet.expect(f"{SIDECAR}/{name}")
        if self._persisted:
            fleet.assume_configured()

    @property
    def is_due(self) -> bool:
        """Return whether a workload may take its next step now."""
        if self._modes == self._targets:
            return False
        self._late = self._fleet.find(lambda proxy: proxy.was_configured and not _holds(proxy), self._late)
        return self._late is None and self._is_drained()

    def _is_drained(self) -> bool:
        """Return whether every connection in flight has ended that the next step would refuse.

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
        before, self._modes = self._modes, {item.name: item.tls_mode for item in workloads}
        self._targets = {item.name: item.target_tls_mode for item in workloads}
        if any(before.get(name, mode) is not mode for name, mode in self._modes.items()):
            self._drained_at = None
        if self._file and self._modes != self._persisted:
            self._persisted = dict(self._modes)
            _write(self._file, self._persisted)

    def forget(self) -> None:
        """Delete the file and stop writing it. Call this after every proxy has exited."""
        if self._file:
            self._file.unlink(missing_ok=True)
            self._file = None

    def next_modes(self) -> Mapping[str, TlsMode]:
        """Return the mode of each workload for the next build: the next mode if a step is due, else the current mode.

        Call `record` after the build.
        """
        return {**self._modes, **dict(self._steps())} if self.is_due else dict(self._modes)


def _holds(proxy: Proxy) -> bool:
    """Return whether a proxy has answered, and accepted its TLS settings for outgoing and incoming connections.

    A rejected listener for outgoing connections does not matter.
    """
    return proxy.settled() and not any(
        item.type_url == CLUSTER or item.name.startswith(INBOUND) for item in proxy.rejections()
    )


def _read(file: Path) -> Mapping[str, TlsMode]:
    """Return the persisted modes (`{"default/web": "strict"}`); empty if the file is missing or unreadable."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, TlsMode])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError) as error:
        log.warning(
            "%s can't be read: %s; if --mtls has changed since the last start, some requests may fail now", file, error
        )
        return {}


def _write(file: Path, modes: Mapping[str, TlsMode]) -> None:
    """Write the modes to the file.

    If the write fails, the file has the modes of the previous step. Modes that are one step apart are compatible.
    """
    try:
        write_private(file, msgspec.json.encode(modes))
    except OSError as error:
        log.warning("the TLS modes can't be saved for the next start: %s", error)
