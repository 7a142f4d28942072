"""Measure a build, a change of one weight and a new route: processor time, and the bytes that a proxy receives.

Only the pure pipeline runs: decoded objects, compiler, encoder, session. One Service in ten is split over two other
Services. Aim: a change of weights encodes and sends one resource, whatever the number of Services; a new route costs a
few milliseconds, whatever the number of routes of its Gateway.
"""

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from benchmarks.routes import probed
from benchmarks.stream import Stream

from headgate.compiler.compile import Compiler
from headgate.compiler.snapshot import Snapshot
from headgate.envoy.encode import Memo, encode
from headgate.envoy.view import Node, project
from headgate.event_loop import GC_THRESHOLDS
from headgate.plane.feed import snapshot_of
from headgate.resources.decode import check_stored
from headgate.resources.registry import key_of
from headgate.settings import Settings
from headgate.xds.messages import write_response

SIZES = (10, 100, 1000)
ROUTES = (100, 1000, 3000)
CHANGES = 15
SPLIT_EVERY = 10
NODE = Node(id="gateway", proxy_address="127.0.0.1", proxy_port=15001)
T = TypeVar("T")


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

    def __init__(self, objects: Iterable[Mapping[str, Any]]) -> None:
        self._objects = snapshot_of({key_of(item): item for item in objects}).objects
        self._compiler = Compiler()
        self._memo = Memo()
        self._stream = Stream()

    def build(self, change: Mapping[str, Any]) -> Cost:
        """Apply one object and update the proxy."""
        read = check_stored(change)
        assert read.value, read.causes
        self._objects = self._objects.edited({key_of(change): read.value})
        snapshot, before = Snapshot(1, self._objects), self._memo.encoded
        compiled, compiling = _timed(lambda: self._compiler.compile(snapshot, Settings()))
        self._memo.begin_build()
        config, encoding = _timed(lambda: encode(project(compiled.mesh, NODE), self._memo))
        responses, answering = _timed(lambda: self._stream.deliver(config))
        sent = sum(len(write_response(response)) for response in responses)
        resources = sum(len(response.resources) for response in responses)
        return Cost(compiling, encoding, answering, self._memo.encoded - before, resources, sent)


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    began = time.thread_time()
    result = work()
    return result, (time.thread_time() - began) * 1000


def objects(services: int) -> Iterator[dict[str, Any]]:
    """Yield this number of Services with one endpoint each, and the splits among them."""
    for number in range(services):
        third, fourth = divmod(number, 250)
        name = f"service-{number}"
        yield from service(name, f"127.80.{third}.{fourth + 1}", f"127.80.{128 + third}.{fourth + 1}")
        if number % SPLIT_EVERY == 0:
            yield split(number, 90)


def service(name: str, address: str, endpoint: str) -> Iterator[dict[str, Any]]:
    """Yield a Service with one endpoint."""
    yield _object("v1", "Service", name, {"clusterIP": address, "ports": [{"port": 8080}]})
    yield {
        **_object("discovery.k8s.io/v1", "EndpointSlice", name, None),
        "addressType": "IPv4",
        "endpoints": [{"addresses": [endpoint]}],
        "ports": [{"port": 8080}],
    }


def split(number: int, weight: int) -> dict[str, Any]:
    """Return the split of a Service over the next two Services."""
    weights = {f"service-{number + 1}": weight, f"service-{number + 2}": 100 - weight}
    backends = [{"service": service, "weight": share} for service, share in weights.items()]
    spec = {"service": f"service-{number}", "backends": backends}
    return _object("split.smi-spec.io/v1alpha4", "TrafficSplit", f"service-{number}", spec)


def _object(version: str, kind: str, name: str, spec: Mapping[str, Any] | None) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"}
    if kind == "EndpointSlice":
        metadata["labels"] = {"kubernetes.io/service-name": name}
    found = {"apiVersion": version, "kind": kind, "metadata": metadata}
    return {**found, "spec": spec} if spec else found


def route(number: int) -> dict[str, Any]:
    """Return an HTTPRoute of the Gateway `edge`, with a host of its own."""
    found = probed(f"route-{number}")
    return {**found, "metadata": {**found["metadata"], "namespace": "default", "generation": 1}}


def gateway(routes: int) -> Iterator[dict[str, Any]]:
    """Yield a Service `backend`, and a Gateway with this number of routes."""
    yield from service("backend", "127.80.0.1", "127.80.128.1")
    listener = {"name": "http", "port": 8000, "protocol": "HTTP"}
    spec = {"gatewayClassName": "headgate", "listeners": [listener]}
    status = {"addresses": [{"type": "IPAddress", "value": "127.80.200.1"}]}
    yield {**_object("gateway.networking.k8s.io/v1", "Gateway", "edge", spec), "status": status}
    yield from map(route, range(routes))


def _row(what: str, cost: Cost) -> None:
    times = f"{cost.total:9.1f} {cost.compile:9.1f} {cost.encode:8.1f} {cost.session:9.1f}"
    print(f"{what:26} {times} {cost.encoded:9} {cost.resources:6} {cost.sent:9}")


def measure() -> None:
    """Print a row for the first build and one for a change, for each size of the mesh."""
    gc.set_threshold(*GC_THRESHOLDS)
    print(
        f"{'milliseconds':26} {'total':>9} {'compile':>9} {'encode':>8} {'session':>9} {'encoded':>9} {'sent':>6} {'bytes':>9}"
    )
    for size in SIZES:
        pipeline = Pipeline(objects(size))
        _row(f"{size} Services, first build", pipeline.build(split(0, 90)))
        changes = [pipeline.build(split(0, weight)) for weight in range(1, CHANGES + 1)]
        _row(f"{size} Services, one weight", sorted(changes, key=lambda cost: cost.total)[CHANGES // 2])
    for size in ROUTES:
        pipeline = Pipeline(gateway(size))
        _row(f"{size} routes, first build", pipeline.build(route(0)))
        changes = [pipeline.build(route(size + number)) for number in range(CHANGES)]
        _row(f"{size} routes, one more", sorted(changes, key=lambda cost: cost.total)[CHANGES // 2])
