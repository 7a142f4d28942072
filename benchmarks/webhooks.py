"""Measure the webhooks of a replica with 1,000 TrafficSplits and 1,000 HTTPRoutes, as the API server calls them.

Latencies are compared with an empty request to the same server. The dry runs go through the API server, with and without
a webhook.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

import aiohttp

from headgate.kubernetes.client import Client
from headgate.resources.meta import Object

OBJECTS = 1000  # number of objects of each kind
REVIEWS = 200  # number of requests to each webhook
DRY_RUNS = 100
GATEWAY_API = "gateway.networking.k8s.io/v1"
SPLITS = "split.smi-spec.io/v1alpha4"


class Latencies(NamedTuple):
    """Percentiles of a series of requests, in milliseconds, and the replica's processor time for each request."""

    p50: float
    p99: float
    cpu: float

    def line(self, name: str, base: "Latencies") -> str:
        """Return a line of the report, with the ratio of both p99s (`base` is the empty request)."""
        more = f"{self.p99 / base.p99:.1f} times the base" if base is not self else "the base"
        return f"{name}: p50 {self.p50:.1f} ms, p99 {self.p99:.1f} ms ({more}); {self.cpu:.1f} ms of processor time"


def split(namespace: str, number: int) -> Object:
    """Return a TrafficSplit whose root and backends are Services of one namespace."""
    backends = [{"service": f"service-{number}", "weight": 0}, {"service": f"service-{number + 10}", "weight": 1}]
    spec = {"service": f"service-{number + 20}", "backends": backends}
    metadata = {"name": f"split-{number}", "namespace": namespace}
    return {"apiVersion": SPLITS, "kind": "TrafficSplit", "metadata": metadata, "spec": spec}


def route(namespace: str, number: int) -> Object:
    """Return an HTTPRoute of a Service with two backends."""
    refs = [{"name": f"service-{number + step}", "port": 8080, "weight": 1} for step in (0, 10)]
    parent = {"group": "", "kind": "Service", "name": f"service-{number}"}
    spec = {"parentRefs": [parent], "rules": [{"backendRefs": refs}]}
    metadata = {"name": f"route-{number}", "namespace": namespace}
    return {"apiVersion": GATEWAY_API, "kind": "HTTPRoute", "metadata": metadata, "spec": spec}


def review(obj: Object) -> dict[str, Any]:
    """Return the AdmissionReview of a new object."""
    request = {"uid": "1", "namespace": obj["metadata"]["namespace"], "operation": "CREATE", "object": obj}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


async def measured(
    client: Client, server: str, pod: Object, namespace: Callable[[int], str], processor_time: Callable[[], float]
) -> AsyncIterator[str]:
    """Yield the results.

    `server` is the URL of the replica's webhooks, `pod` a new pod that gets a sidecar, and `processor_time` the seconds
    of the replica's processor time.
    """

    async def series(number: int, call: Callable[[int], Awaitable[object]]) -> Latencies:
        before, taken = processor_time(), []
        for index in range(number):
            began = time.perf_counter()
            await call(index)
            taken.append((time.perf_counter() - began) * 1000)
        taken.sort()
        cpu = (processor_time() - before) / number * 1000
        return Latencies(taken[number // 2], taken[number * 99 // 100], cpu)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session:

        async def empty(_index: int) -> None:
            async with session.get(f"{server}/healthz") as answer:
                assert answer.status == 200

        def asked(path: str, obj: Callable[[int], Object]) -> Callable[[int], Awaitable[object]]:
            async def ask(index: int) -> None:
                async with session.post(f"{server}{path}", json=review(obj(index))) as answer:
                    found = (await answer.json())["response"]
                assert found["allowed"], found
                assert ("patch" in found) == (path == "/inject"), found

            return ask

        base = await series(REVIEWS, empty)
        yield base.line("an empty request", base)
        for name, path, obj in (
            ("validation of a TrafficSplit", "/validate", lambda index: split(namespace(index), index)),
            ("validation of an HTTPRoute", "/validate", lambda index: route(namespace(index), index)),
            ("injection into a pod", "/inject", lambda _index: pod),
        ):
            yield (await series(REVIEWS, asked(path, obj))).line(name, base)

    async def dry_run(root: str, plural: str, obj: Object) -> None:
        metadata = {**obj["metadata"], "name": "new"}
        place = f"{root}/namespaces/{metadata['namespace']}/{plural}"
        await client.post(place, {**obj, "metadata": metadata}, dryRun="All")

    maps = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": namespace(0)}}
    without = await series(DRY_RUNS, lambda _index: dry_run("/api/v1", "configmaps", maps))
    yield without.line("a dry run of a ConfigMap, without a webhook", without)
    validated = await series(
        DRY_RUNS, lambda index: dry_run(f"/apis/{SPLITS}", "trafficsplits", split(namespace(index), index))
    )
    yield validated.line("a dry run of a TrafficSplit", without)
