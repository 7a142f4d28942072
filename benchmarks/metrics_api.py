"""What the metrics API costs in a mesh of 5,000 pods: lists, one pod, its edges, Deployments, a topology's questions.

Each pod is called by four others, a hundred requests in the window. `first` is the first answer after proxies reported,
`again` any other before they report again. The time is the processor's, of the whole request but for the network, JSON
included.
"""

import random
import statistics
import time
from collections import Counter
from typing import NamedTuple

from starlette.requests import Request

from headgate.serve.metrics import MetricsApi
from headgate.serve.metrics_faces import FACES
from headgate.serve.metrics_query import question
from headgate.store.base import Listing
from headgate.telemetry.flows import Counts, Flow, Peer, Reading
from headgate.telemetry.histogram import bucket_of, gathered

PODS, DEPLOYMENTS, CALLERS, REQUESTS, NODES = 5000, 500, 4, 100, 50
ROUNDS = 30
ASKED = (
    "pods",
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
    """Objects that do not change."""

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


class Numbers:
    """Proxies that report when they are told to."""

    def __init__(self, mesh):
        self._names = [f"default/{pod['metadata']['name']}" for pod in mesh.pods]
        self._flows = {flow: _counts() for name in self._names for flow in self._into(name)}
        self.report()

    def _into(self, name):
        service = f"default/app-{int(name.rpartition('-')[2]) % DEPLOYMENTS}"
        for caller in random.sample(self._names, CALLERS):
            yield Flow(source=Peer(pod=caller), destination=Peer(pod=name), service=service, port=80, backend=service)

    def report(self):
        self.reading = Reading(end=time.time(), window=30, flows=dict(self._flows))

    async def read(self, _):
        return self.reading


def _counts():
    latency = Counter(bucket_of(random.lognormvariate(8, 0.7)) for _ in range(REQUESTS))
    return Counts(success=REQUESTS - 1, failure=1, latency=gathered(latency))


class Times(NamedTuple):
    """Milliseconds of a question, and the length of its answer in bytes."""

    first: list[float]
    again: list[float]
    size: int


async def measure() -> None:
    """Run the benchmark and print it."""
    mesh = Mesh()
    numbers = Numbers(mesh)
    print(f"{PODS} pods, {PODS * CALLERS} flows; milliseconds: median, p99")
    for asked in ASKED:
        times = await _times(MetricsApi(mesh, numbers), numbers, asked)
        print(f"  {asked:46} first {_shown(times.first)}   again {_shown(times.again)}   {times.size / 1e3:8.0f} KB")


async def _times(api, numbers, asked):
    times = Times([], [], 0)
    for number in range(ROUNDS):
        numbers.report()
        for found in (times.first, times.again, times.again):
            took, size = await _one(api, asked)
            if number:
                found.append(took)
    return times._replace(size=size)


async def _one(api, asked):
    path, _, query = asked.partition("?")
    scope = {"type": "http", "method": "GET", "path": path, "query_string": query.encode(), "headers": []}
    began = time.process_time()
    answer = await api.answer(Request(scope), question(FACES[0], path.split("/")))
    return (time.process_time() - began) * 1000, len(answer.body)


def _shown(found):
    return f"{statistics.median(found):7.1f} {sorted(found)[int(len(found) * 0.99)]:7.1f}"
