"""Measure the cost of one change with many connected sidecars, and the additional cost of each sidecar.

Only the pure pipeline runs: decoded objects, compiler, encoder, and a session per sidecar, whose proxy acknowledges
everything. Times are CPU times, so other load on the machine matters less. Aims: one resource per sidecar, and much
less than 5 ms for each additional sidecar.
"""

import gc
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.build import timed, weighted
from benchmarks.pods import Capture, WorkloadAuthority, mesh
from benchmarks.stream import Stream
from tests.make.values import snapshot

from headgate.compiler.compile import Compiler
from headgate.compiler.snapshot import Snapshot
from headgate.envoy.config import ProxyConfig
from headgate.envoy.encode import Memo, encode
from headgate.envoy.view import project, sidecar
from headgate.event_loop import GC_THRESHOLDS
from headgate.model.routing import Workload
from headgate.resources.decode import check_stored
from headgate.resources.registry import key_of
from headgate.settings import Settings
from headgate.xds.fleet import Fleet
from headgate.xds.messages import write_response
from headgate.xds.subscription import Response

CAPTURES: tuple[Capture, ...] = ("explicit", "transparent")
WIDTHS = (8, 8, 8, 8, 8, 8, 6, 9, 12)


class Scale(NamedTuple):
    """The number of Services, the numbers of sidecars, and the number of changes for each of them."""

    services: int
    sidecars: Sequence[int]
    changes: int


USUAL = Scale(services=1000, sidecars=(1, 10, 100), changes=7)
SMALLEST = Scale(services=3, sidecars=(2,), changes=1)


class Cost(NamedTuple):
    """The cost of one change: CPU milliseconds, encoded resources, and resources and bytes sent to each sidecar.

    `shared` is the time to compile and to encode for the first sidecar. `further` is the time to encode for each other
    sidecar. `session` is the time of each session, including the check whether the proxy is settled.
    """

    compile: float
    shared: float
    further: float
    session: float
    encoded: int
    sent: tuple[int, ...]
    resources: tuple[int, ...]


class Sidecars:
    """The pipeline from objects to bytes for all sidecars of a mesh."""

    def __init__(self, services: int, sidecars: int, capture: Capture = "explicit") -> None:
        self._objects = dict(snapshot(*mesh(services, sidecars, capture)).objects)
        self._authority = WorkloadAuthority()
        self._compiler = Compiler()
        self._memo = Memo()
        self._fleet = Fleet()
        self._streams: dict[str, Stream] = {}

    def build(self, change: Mapping[str, Any]) -> Cost:
        """Apply one object and update all sidecars."""
        read = check_stored(change)
        assert read.value, read.causes
        self._objects[key_of(change)] = read.value
        written, before = Snapshot(1, dict(self._objects)), self._memo.encoded
        compiled, compiling = timed(lambda: self._compiler.compile(written, Settings()))
        self._memo.begin_build()
        workloads = compiled.mesh.workloads
        for item in workloads:
            self._authority.credential(item)
        views = [project(compiled.mesh, sidecar(item), self._authority.credential(item)) for item in workloads]
        first, shared = timed(lambda: encode(views[0], self._memo))
        rest, further = timed(lambda: [encode(view, self._memo) for view in views[1:]])
        configs = dict(zip(workloads, (first, *rest), strict=True))
        sent, answering = timed(lambda: [self._deliver(item, config) for item, config in configs.items()])
        return Cost(
            compile=compiling,
            shared=shared,
            further=further / max(1, len(rest)),
            session=answering / len(configs),
            encoded=self._memo.encoded - before,
            sent=tuple(sum(len(write_response(item)) for item in responses) for responses in sent),
            resources=tuple(sum(len(item.resources) for item in responses) for responses in sent),
        )

    def _deliver(self, workload: Workload, config: ProxyConfig) -> list[Response]:
        stream = self._streams.setdefault(workload.name, Stream())
        proxy = self._fleet.expect(sidecar(workload).id)
        if not proxy.session:
            proxy.attach(stream.session, lambda _: None)
        proxy.config.set(config)
        sent = stream.deliver(config)
        assert proxy.settled()
        return sent


def _row(what: str, costs: list[Cost]) -> None:
    compiling, shared, further, session = (
        statistics.median(getattr(cost, name) for cost in costs) for name in ("compile", "shared", "further", "session")
    )
    last = costs[-1]
    total = compiling + shared + further * (len(last.sent) - 1) + session * len(last.sent)
    times = f"{total:8.1f} {compiling:8.1f} {shared:8.1f} {further:8.2f} {session:8.2f}"
    print(f"{what:40} {times} {last.encoded:8} {last.resources[-1]:6} {last.sent[-1]:9,} {sum(last.sent):12,}")


async def measure(scale: Scale) -> None:
    """Print a row for the first build and one for a change to weights, for each number of sidecars."""
    thresholds = gc.get_threshold()
    gc.set_threshold(*GC_THRESHOLDS)
    print(
        f"{scale.services} Services; milliseconds of processor time; resources and bytes of the last sidecar, bytes of all"
    )
    names = ("total", "compile", "shared", "further", "session", "encoded", "sent", "bytes", "bytes of all")
    print(f"{'':40} " + " ".join(f"{name:>{width}}" for name, width in zip(names, WIDTHS, strict=True)))
    for capture in CAPTURES:
        for number in scale.sidecars:
            pipeline = Sidecars(scale.services, number, capture)
            what = f"{number} {capture}"
            _row(f"{what}, first build", [pipeline.build(weighted(0, 90))])
            changes = (weighted(0, weight) for weight in range(1, scale.changes + 1))
            _row(f"{what}, one weight", [pipeline.build(change) for change in changes])
    gc.set_threshold(*thresholds)
