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
from typing import NamedTuple

from starlette.requests import Request

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
PODS, DEPLOYMENTS, CALLERS, REQUESTS, NODES = 5000, 500, 4, 100, 50
WINDOW, INTERVAL = 30, 5  # seconds
ROUNDS = 100
ASKED = (
    "pods",
    "pods?t=2m",
    "pods?uncertainty=true",
    "pods?labelSelector=app=app-7",
    "namespaces/default/pods/app-7-5d-00007",
    "namespaces/default/pods/app-7-5d-00007/edges",
    "deployments",
    "namespaces/default/deployments/app-7/edges",
    "services",
    "nodes",
    "namespaces",
)


class Mesh:
    """A source of objects that do not change."""

    def __init__(self) -> None:
        deployments = [_object(f"app-{n}") for n in range(DEPLOYMENTS)]
        sets = [_object(f"app-{n}-5d", "Deployment", f"app-{n}") for n in range(DEPLOYMENTS)]
        services = [_object(f"app-{n}", selector={"app": f"app-{n}"}) for n in range(DEPLOYMENTS)]
        self.pods = [_pod(number) for number in range(PODS)]
        self._kinds = {"Deployment": deployments, "ReplicaSet": sets, "Service": services, "Pod": self.pods}
        self._kinds["Namespace"] = [_object("default")]

    async def list(self, _, kind, __=""):
        return Listing(self._kinds.get(kind, ()), 1)


def _object(name, owner_kind="", owner="", **spec):
    owners = [{"kind": owner_kind, "name": owner, "controller": True}] if owner else []
    return {"metadata": {"name": name, "namespace": "default", "ownerReferences": owners}, "spec": spec}


def _pod(number):
    app = f"app-{number % DEPLOYMENTS}"
    obj = _object(f"{app}-5d-{number:05}", "ReplicaSet", f"{app}-5d", nodeName=f"node-{number % NODES}")
    obj["metadata"]["labels"] = {"app": app}
    return obj


class SimulatedProxies:
    """Simulated proxies. Each call of `report` advances the clock by one second and adds the reports of this second."""

    def __init__(self, mesh):
        self._names = [f"default/{pod['metadata']['name']}" for pod in mesh.pods]
        self._turns = [[] for _ in range(INTERVAL)]
        for name in self._names:
            for caller in random.sample(range(PODS), CALLERS):
                self._turns[caller % INTERVAL].append(self._flow(self._names[caller], name))
        self._grown = [_growth() for _ in range(PODS)]
        self._now = 0
        self.windows = Windows(clock=lambda: self._now + time.process_time())
        for _ in range(WINDOW):
            self.report()

    def _flow(self, caller, name):
        service = f"default/app-{int(name.rpartition('-')[2]) % DEPLOYMENTS}"
        return Flow(source=Peer(pod=caller), destination=Peer(pod=name), service=service, port=80, backend=service)

    def report(self):
        self._now += 1
        for flow in self._turns[self._now % INTERVAL]:
            self.windows.add(flow, random.choice(self._grown))


def _growth():
    number = REQUESTS * INTERVAL // WINDOW
    latencies = Counter(bucket_of(random.lognormvariate(8, 0.7)) for _ in range(number))
    return Counts.of({class_index(200): number}, gathered(latencies))


class Times(NamedTuple):
    """The times of one query in milliseconds."""

    reading: list[float]
    first: list[float]
    again: list[float]

    @property
    def both(self):
        return [sum(one) for one in zip(self.reading, self.first, strict=True)]


async def measure() -> None:
    """Run the benchmark and print the results."""
    thresholds = gc.get_threshold()
    gc.set_threshold(*GC_THRESHOLDS)  # headgate sets the same thresholds
    mesh = Mesh()
    numbers = SimulatedProxies(mesh)
    print(f"{PODS} pods, {PODS * CALLERS} flows; milliseconds: median, p99")
    for asked in ASKED:
        times = await _times(MetricsApi(mesh, numbers.windows), numbers, asked)
        shown = (f"{what} {_shown(getattr(times, what))}" for what in ("reading", "first", "both", "again"))
        print(f"  {asked:46} {'   '.join(shown)}")
    gc.set_threshold(*thresholds)


async def _times(api, numbers, asked):
    times = Times([], [], [])
    for number in range((ROUNDS if asked.startswith("pods") else ROUNDS // 4) + 1):
        numbers.report()
        reading = await _timed(numbers.windows.read(window(_request(asked).query_params)))
        first, *again = [await _timed(_ask(api, asked)) for _ in range(3)]
        if number:
            times.reading.append(reading)
            times.first.append(first)
            times.again.extend(again)
    return times


def _request(asked):
    path, _, query = asked.partition("?")
    return Request({"type": "http", "method": "GET", "path": path, "query_string": query.encode(), "headers": []})


async def _ask(api, asked):
    request = _request(asked)
    return await api.answer(request, parse_path(GROUP, request.url.path.split("/")))


async def _timed(work):
    began = time.process_time()
    await work
    return (time.process_time() - began) * 1000


def _shown(found):
    return f"{statistics.median(found):7.1f} {sorted(found)[int(len(found) * 0.99)]:7.1f}"
