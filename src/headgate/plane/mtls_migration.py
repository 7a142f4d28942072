"""How workloads change between plaintext and mutual TLS without losing a request (R74, R77).

A caller must not send what the server does not take yet, and a server must not stop taking what a caller still sends. So
a change goes through the stages in between, and each waits until every proxy is known to hold the one before. A stage that
takes less than the one before also waits for connections on their way: a proxy acknowledges before its workers have
followed, and a busy server looks late at a connection that was opened in the way of before.
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
from headgate.identity.rotation import UNDER_WAY_S
from headgate.model.routing import TlsMode, Workload
from headgate.xds.fleet import Fleet, Proxy

INBOUND = "inbound"
FILE = "stages.json"

log = logging.getLogger(__name__)


class MtlsMigration:
    """Which stage each workload is in. A workload that was not there before begins where it is wanted."""

    def __init__(self, fleet: Fleet, file: Path | None = None) -> None:
        """Keep the stages in a `file`, and begin with those that a killed headgate left there.

        This headgate may want other stages, with another `--mtls` for example. The proxies still hold the old ones, so each
        of them is waited for before the next step.
        """
        self._fleet = fleet
        self._late: Proxy | None = None  # one that the next step waited for
        self._timer: asyncio.TimerHandle | None = None
        self._file = file
        self._kept: Mapping[str, TlsMode] = _read(file) if file else {}
        self._stages, self._targets = dict(self._kept), dict(self._kept)
        # When what was opened in the stage before has arrived; not known before all hold the stage of now.
        self._arrival: float | None = None if self._kept else 0.0
        for name in self._kept:
            fleet.expect(f"{SIDECAR}/{name}")
        if self._kept:
            fleet.recall()

    @property
    def is_due(self) -> bool:
        """Say whether some workload may take its next step."""
        if self._stages == self._targets:
            return False
        self._late = self._fleet.first(lambda proxy: proxy.serves and not _holds(proxy), self._late)
        return self._late is None and self._have_arrived()

    def _have_arrived(self) -> bool:
        """Say whether no connection is on its way that the next step would refuse; news of the fleet comes when it is so."""
        if self._arrival is None:
            self._arrival = time.monotonic() + UNDER_WAY_S
        left = self._arrival - time.monotonic()
        if left <= 0 or all(stage.accepts_tls and stage.accepts_plaintext for _, stage in self._steps()):
            return True
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(left, self._look_again)
        return False

    def _look_again(self) -> None:
        self._timer = None
        self._fleet.bump()

    def _steps(self) -> Iterator[tuple[str, TlsMode]]:
        """Yield the next stage of each workload that is not where it is wanted."""
        for name, stage in self._stages.items():
            if stage is not self._targets[name]:
                yield name, stage.step_toward(self._targets[name])

    def waiting(self) -> tuple[str, ...]:
        """Return the proxies that are not known to hold what decides about TLS: they lag, refused it, or are away."""
        return tuple(sorted(proxy.id for proxy in self._fleet.serving() if not _holds(proxy)))

    def note(self, workloads: Sequence[Workload]) -> None:
        """Take note of what proxies are given now, and of what is wanted; workloads that are gone are forgotten."""
        before, self._stages = self._stages, {item.name: item.tls_mode for item in workloads}
        self._targets = {item.name: item.target_tls_mode for item in workloads}
        if any(before.get(name, stage) is not stage for name, stage in self._stages.items()):
            self._arrival = None
        if self._file and self._stages != self._kept:
            self._kept = dict(self._stages)
            _write(self._file, self._kept)

    def forget(self) -> None:
        """Leave nothing to the next start, and keep no more: every proxy has ended."""
        if self._file:
            self._file.unlink(missing_ok=True)
            self._file = None

    def next(self) -> Mapping[str, TlsMode]:
        """Return the stages for the next build: a step further where one is due. `note` what came of it."""
        return {**self._stages, **dict(self._steps())} if self.is_due else dict(self._stages)


def _holds(proxy: Proxy) -> bool:
    """Say whether a proxy calls, and is called, as its configuration says; a refused address is no part of that."""
    return proxy.settled() and not any(
        item.type_url == CLUSTER or item.name.startswith(INBOUND) for item in proxy.refusals()
    )


def _read(file: Path) -> Mapping[str, TlsMode]:
    """Return what is kept in a file: `{"default/web": "strict"}`; nothing where it can't be read, or is of another release."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, TlsMode])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError) as error:
        log.warning(
            "%s can't be used; if --mtls is another one now, requests may fail until it is in force: %s", file, error
        )
        return {}


def _write(file: Path, stages: Mapping[str, TlsMode]) -> None:
    """Keep stages. Those of a moment ago do no harm: a stage and the next one go together."""
    try:
        write_private(file, msgspec.json.encode(stages))
    except OSError as error:
        log.warning("the stages of mutual TLS can't be kept for the next start: %s", error)
