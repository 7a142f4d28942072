"""Measure a build, a change to one weight and a new route: processor time, and the bytes that a proxy receives.

Only the pure pipeline runs: decoded objects, compiler, encoder, session. One Service in ten is split over two other
Services. Aim: a change to weights encodes and sends one resource, whatever the number of Services; a new route costs a
few milliseconds, whatever the number of routes of its Gateway.
"""

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from benchmarks.routes import probed
from benchmarks.stream import Stream
from tests.make import objects
from tests.make.objects import Object
from tests.make.values import snapshot

from headgate.compiler.compile import Compiler
from headgate.compiler.snapshot import Snapshot
from headgate.envoy.encode import Memo, encode
from headgate.envoy.view import Node, project
from headgate.event_loop import GC_THRESHOLDS
from headgate.resources.decode import check_stored
from headgate.resources.registry import key_of
from headgate.settings import Settings
from headgate.xds.messages import write_response

SPLIT_EVERY = 10
NODE = Node(id="gateway", proxy_address="127.0.0.1", proxy_port=15001)
T = TypeVar("T")


class Scale(NamedTuple):
    """The sizes of meshes with Services and of Gateways with routes, and the number of changes of each."""

    services: Sequence[int]
    routes: Sequence[int]
    changes: int


USUAL = Scale(services=(10, 100, 1000), routes=(100, 1000, 3000), changes=15)
SMALLEST = Scale(services=(3,), routes=(1,), changes=1)


class Cost(NamedTuple):
    """The processor times of one build in milliseconds, the number of encoded resources, and the bytes on the stream."""

    compile: float
    encode: float
    session: float
    encoded: int
    resources: int
    sent: int

    @property
    def total(self) -> float:
        """Return the sum of all times."""
        return self.compile + self.encode + self.session


class Pipeline:
    """The pipeline from objects to bytes for one proxy, which acknowledges every response."""

    def __init__(self, mesh: Iterable[Object]) -> None:
        self._objects = snapshot(*mesh).objects
        self._compiler = Compiler()
        self._memo = Memo()
        self._stream = Stream()

    def build(self, change: Mapping[str, Any]) -> Cost:
        """Apply one object and update the proxy."""
        read = check_stored(change)
        assert read.value, read.causes
        self._objects = self._objects.edited({key_of(change): read.value})
        before = self._memo.encoded
        compiled, compiling = timed(lambda: self._compiler.compile(Snapshot(1, self._objects), Settings()))
        self._memo.begin_build()
        config, encoding = timed(lambda: encode(project(compiled.mesh, NODE), self._memo))
        responses, answering = timed(lambda: self._stream.deliver(config))
        sent = sum(len(write_response(response)) for response in responses)
        resources = sum(len(response.resources) for response in responses)
        return Cost(compiling, encoding, answering, self._memo.encoded - before, resources, sent)


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """Return a result, and the processor time of this thread for it in milliseconds."""
    began = time.thread_time()
    result = work()
    return result, (time.thread_time() - began) * 1000


def services(count: int) -> Iterator[Object]:
    """Yield this number of Services with one endpoint each, and the splits among them."""
    for number in range(count):
        third, fourth = divmod(number, 250)
        name = f"service-{number}"
        yield from served(name, f"127.80.{third}.{fourth + 1}", f"127.80.{128 + third}.{fourth + 1}")
        if number % SPLIT_EVERY == 0:
            yield weighted(number, 90)


def served(name: str, address: str, endpoint: str) -> Iterator[Object]:
    """Yield a Service with one endpoint."""
    yield objects.service(name, objects.port(8080), clusterIP=address)
    yield objects.endpoint_slice(name, [endpoint], {"": 8080})


def weighted(number: int, weight: int) -> Object:
    """Return the split of a Service over the next two Services."""
    weights = {f"service-{number + 1}": weight, f"service-{number + 2}": 100 - weight}
    return objects.split(f"service-{number}", weights)


def edge_route(number: int) -> Object:
    """Return an HTTPRoute of the Gateway `edge`, with a host of its own."""
    return probed(f"route-{number}")


def edge(routes: int) -> Iterator[Object]:
    """Yield a Service `backend`, and the Gateway `edge` with this number of routes."""
    yield from served("backend", "127.80.0.1", "127.80.128.1")
    status = {"addresses": [{"type": "IPAddress", "value": "127.80.200.1"}]}
    yield objects.gateway("edge", objects.listener(8000), status=status)
    yield from map(edge_route, range(routes))


def _row(what: str, cost: Cost) -> None:
    times = f"{cost.total:9.1f} {cost.compile:9.1f} {cost.encode:8.1f} {cost.session:9.1f}"
    print(f"{what:26} {times} {cost.encoded:9} {cost.resources:6} {cost.sent:9}")


async def measure(scale: Scale) -> None:
    """Print a row for the first build and one for a change, for each size of the mesh."""
    gc.set_threshold(*GC_THRESHOLDS)
    print(
        f"{'milliseconds':26} {'total':>9} {'compile':>9} {'encode':>8} {'session':>9} {'encoded':>9} {'sent':>6} {'bytes':>9}"
    )
    numbers = range(1, scale.changes + 1)
    for size in scale.services:
        pipeline = Pipeline(services(size))
        _row(f"{size} Services, first build", pipeline.build(weighted(0, 90)))
        _row(f"{size} Services, one weight", _median(map(pipeline.build, (weighted(0, n) for n in numbers))))
    for size in scale.routes:
        pipeline = Pipeline(edge(size))
        _row(f"{size} routes, first build", pipeline.build(edge_route(0)))
        _row(f"{size} routes, one more", _median(map(pipeline.build, (edge_route(size + n) for n in numbers))))


def _median(costs: Iterable[Cost]) -> Cost:
    ordered = sorted(costs, key=lambda cost: cost.total)
    return ordered[len(ordered) // 2]
