"""Measure the webhooks of a replica with 1,000 TrafficSplits and 1,000 HTTPRoutes, as the API server calls them.

Latencies are compared with an empty request to the same server. The dry runs go through the API server, with and without
a webhook.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

import aiohttp
from tests.make import objects
from tests.make.objects import Object

from headgate.kubernetes.client import Client

NAMESPACES = 10
GATEWAY_API = "gateway.networking.k8s.io/v1"
SPLITS = "split.smi-spec.io/v1alpha4"


class Scale(NamedTuple):
    """The numbers of objects of each kind, of requests to each webhook, and of dry runs."""

    objects: int
    reviews: int
    dry_runs: int


class Latencies(NamedTuple):
    """Percentiles of a series of requests, in milliseconds, and the replica's processor time for each request."""

    p50: float
    p99: float
    cpu: float

    def line(self, name: str, base: "Latencies") -> str:
        """Return a line of the report, with the ratio of both p99s (`base` is the empty request)."""
        more = f"{self.p99 / base.p99:.1f} times the base" if base is not self else "the base"
        return f"{name}: p50 {self.p50:.1f} ms, p99 {self.p99:.1f} ms ({more}); {self.cpu:.1f} ms of processor time"


def team(number: int) -> str:
    """Return the namespace of the objects with a number."""
    return f"team-{number % NAMESPACES}"


def numbered_split(number: int) -> Object:
    """Return a TrafficSplit whose root and backends are Services of one namespace."""
    weights = {f"service-{number}": 0, f"service-{number + 10}": 1}
    return objects.split(
        f"service-{number + 20}", weights, name=f"split-{number}", namespace=team(number), version=SPLITS
    )


def numbered_route(number: int) -> Object:
    """Return an HTTPRoute of a Service with two backends."""
    rule = objects.rule({f"service-{number + step}": 1 for step in (0, 10)})
    parents = [objects.service_parent(f"service-{number}")]
    return objects.route(f"route-{number}", rule, parents=parents, namespace=team(number), version=GATEWAY_API)


def review(obj: Object) -> dict[str, Any]:
    """Return the AdmissionReview of a new object."""
    request = {"uid": "1", "namespace": obj["metadata"]["namespace"], "operation": "CREATE", "object": obj}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


async def measured(
    client: Client, server: str, pod: Object, processor_time: Callable[[], float], scale: Scale
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

        base = await series(scale.reviews, empty)
        yield base.line("an empty request", base)
        for name, path, obj in (
            ("validation of a TrafficSplit", "/validate", numbered_split),
            ("validation of an HTTPRoute", "/validate", numbered_route),
            ("injection into a pod", "/inject", lambda _index: pod),
        ):
            yield (await series(scale.reviews, asked(path, obj))).line(name, base)

    async def dry_run(root: str, plural: str, obj: Object) -> None:
        metadata = {**obj["metadata"], "name": "new"}
        place = f"{root}/namespaces/{metadata['namespace']}/{plural}"
        await client.post(place, {**obj, "metadata": metadata}, dryRun="All")

    maps = objects.config_map("new", namespace=team(0))
    without = await series(scale.dry_runs, lambda _index: dry_run("/api/v1", "configmaps", maps))
    yield without.line("a dry run of a ConfigMap, without a webhook", without)
    validated = await series(
        scale.dry_runs, lambda index: dry_run(f"/apis/{SPLITS}", "trafficsplits", numbered_split(index))
    )
    yield validated.line("a dry run of a TrafficSplit", without)
