"""Measure the metrics API in a mesh of 5,000 pods: lists, one pod, its edges, Deployments, the queries of a topology.

Four other pods call each pod, with a hundred requests in the window. Each proxy reports every five seconds, so a fifth
of the proxies reports each second. A client queries every second. `reading` is the time to sum the new reports, `first`
is the time of the first answer from this sum, `both` is the total of these times. `again` is the time of another answer
from the same sum. Times are CPU times of whole requests with JSON, without the network.
"""

import gc
import random
import statistics
import time
from collections import Counter
from collections.abc import Awaitable, Sequence
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from tests.make import objects
from tests.make.objects import Object

from headgate.api.metrics.groups import METRICS_GROUPS
from headgate.api.metrics.handlers import MetricsApi
from headgate.api.metrics.query import parse_path, window
from headgate.event_loop import GC_THRESHOLDS
from headgate.objects.ports import Listing
from headgate.telemetry.counters.counts import Counts, class_index
from headgate.telemetry.counters.flows import Flow, Peer
from headgate.telemetry.counters.histogram import bucket_of, gathered
from headgate.telemetry.windows import Windows

GROUP = METRICS_GROUPS["traffic.metrics.k8s.io", "v1beta1"]
REQUESTS, NODES = 100, 50
WINDOW, INTERVAL = 30, 5  # seconds
QUERIES = (
    "pods",
    "pods?t=2m",
    "pods?uncertainty=true",
    "pods?labelSelector=app=app-0",
    "namespaces/default/pods/app-0-5d-00000",
    "namespaces/default/pods/app-0-5d-00000/edges",
    "deployments",
    "namespaces/default/deployments/app-0/edges",
    "services",
    "nodes",
    "namespaces",
)


class Scale(NamedTuple):
    """The numbers of pods, of their Deployments, of the callers of each pod, and of rounds of each query."""

    pods: int
    deployments: int
    callers: int
    rounds: int


USUAL = Scale(pods=5000, deployments=500, callers=4, rounds=100)
SMALLEST = Scale(pods=2, deployments=1, callers=1, rounds=4)


class Mesh:
    """A source of objects that do not change: Deployments with their pods, and a Service for each of them."""

    def __init__(self, scale: Scale) -> None:
        apps = [f"app-{number}" for number in range(scale.deployments)]
        self.pods = [_pod(number, scale.deployments) for number in range(scale.pods)]
        self._kinds = {
            "Namespace": [objects.namespace("default")],
            "Deployment": [objects.deployment(app) for app in apps],
            "ReplicaSet": [objects.obj("ReplicaSet", f"{app}-5d", metadata=_owned("Deployment", app)) for app in apps],
            "Service": [objects.service(app, selector={"app": app}) for app in apps],
            "Pod": self.pods,
        }

    async def list(self, _group: str, kind: str, _namespace: str = "") -> Listing:
        """Return all objects of a kind."""
        return Listing(self._kinds.get(kind, ()), "1")


def _owned(kind: str, name: str) -> Object:
    return {"ownerReferences": [{"kind": kind, "name": name, "controller": True}]}


def _pod(number: int, deployments: int) -> Object:
    app = f"app-{number % deployments}"
    return objects.pod(
        f"{app}-5d-{number:05}",
        labels={"app": app},
        metadata=_owned("ReplicaSet", f"{app}-5d"),
        nodeName=f"node-{number % NODES}",
    )


class SimulatedProxies:
    """Simulated proxies. Each call of `report` advances the clock by one second and adds the reports of this second."""

    def __init__(self, mesh: Mesh, scale: Scale) -> None:
        self._deployments = scale.deployments
        names = [f"default/{pod['metadata']['name']}" for pod in mesh.pods]
        self._turns: list[list[Flow]] = [[] for _ in range(INTERVAL)]
        for name in names:
            for caller in random.sample(range(scale.pods), scale.callers):
                self._turns[caller % INTERVAL].append(self._flow(names[caller], name))
        self._grown = [_growth() for _ in range(scale.pods)]
        self._now = 0
        self.windows = Windows(clock=lambda: self._now + time.process_time())
        for _ in range(WINDOW):
            self.report()

    def _flow(self, caller: str, name: str) -> Flow:
        service = f"default/app-{int(name.rpartition('-')[2]) % self._deployments}"
        return Flow(source=Peer(pod=caller), destination=Peer(pod=name), service=service, port=80, backend=service)

    def report(self) -> None:
        """Add the reports of the next second."""
        self._now += 1
        for flow in self._turns[self._now % INTERVAL]:
            self.windows.add(flow, random.choice(self._grown))


def _growth() -> Counts:
    number = REQUESTS * INTERVAL // WINDOW
    latencies = Counter(bucket_of(random.lognormvariate(8, 0.7)) for _ in range(number))
    return Counts.of({class_index(200): number}, gathered(latencies))


class Times(NamedTuple):
    """The times of one query in milliseconds."""

    reading: list[float]
    first: list[float]
    again: list[float]

    @property
    def both(self) -> list[float]:
        """Return the times of each first answer with its reading."""
        return [sum(pair) for pair in zip(self.reading, self.first, strict=True)]


async def measure(scale: Scale) -> None:
    """Run the benchmark and print the results."""
    thresholds = gc.get_threshold()
    gc.set_threshold(*GC_THRESHOLDS)  # headgate sets the same thresholds
    mesh = Mesh(scale)
    proxies = SimulatedProxies(mesh, scale)
    print(f"{scale.pods} pods, {scale.pods * scale.callers} flows; milliseconds: median, p99")
    for query in QUERIES:
        rounds = scale.rounds if query.startswith("pods") else scale.rounds // 4
        times = await _times(MetricsApi(mesh, proxies.windows), proxies, query, rounds)
        columns = {"reading": times.reading, "first": times.first, "both": times.both, "again": times.again}
        print(f"  {query:46} {'   '.join(f'{name} {_shown(column)}' for name, column in columns.items())}")
    gc.set_threshold(*thresholds)


async def _times(api: MetricsApi, proxies: SimulatedProxies, query: str, rounds: int) -> Times:
    """Return the times of a query in some rounds; the round before them warms the caches."""
    times = Times([], [], [])
    for number in range(rounds + 1):
        proxies.report()
        reading = await _timed(proxies.windows.read(window(_request(query).query_params)))
        first, *again = [await _timed(_answer(api, query)) for _ in range(3)]
        if number:
            times.reading.append(reading)
            times.first.append(first)
            times.again.extend(again)
    return times


def _request(query: str) -> Request:
    path, _, parameters = query.partition("?")
    return Request({"type": "http", "method": "GET", "path": path, "query_string": parameters.encode(), "headers": []})


async def _answer(api: MetricsApi, query: str) -> Response:
    request = _request(query)
    return await api.answer(request, parse_path(GROUP, request.url.path.split("/")))


async def _timed(work: Awaitable[object]) -> float:
    began = time.process_time()
    await work
    return (time.process_time() - began) * 1000


def _shown(times: Sequence[float]) -> str:
    return f"{statistics.median(times):7.1f} {sorted(times)[int(len(times) * 0.99)]:7.1f}"
