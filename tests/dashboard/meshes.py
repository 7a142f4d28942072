"""Meshes of any size in the format of TrafficGraph, for the tests of the page (issue 35; R110).

`python -m tests.dashboard.meshes bookstore` prints a mesh; `services 300 1000` prints one with 300 services and 1,000 edges.
"""

import json
import math
import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

WINDOW = 30_000
"""Milliseconds of each graph's window."""


@dataclass(slots=True)
class Graph:
    """Build a TrafficGraph: nodes and edges by name, then `object()`."""

    nodes: list[dict[str, Any]] = field(default_factory=list)
    edges: list[dict[str, Any]] = field(default_factory=list)
    splits: list[dict[str, Any]] = field(default_factory=list)
    mirrors: list[dict[str, Any]] = field(default_factory=list)

    def node(self, name: str, namespace: str = "default", *, kind: str = "Service", **fields: Any) -> int:
        """Add a node; return its index."""
        pods = 0 if kind == "Outside" else 2
        self.nodes.append(
            {"kind": kind, "namespace": namespace, "name": name, "labels": {}, "pods": pods, "meshed": pods}
            | {"errors": 0, "warnings": 0}
            | fields
        )
        return len(self.nodes) - 1

    def edge(self, source: int, target: int, requests: int, **fields: Any) -> None:
        """Add an edge with a number of requests in the window; latency follows from the target, mutual TLS holds."""
        median = 900 + 370 * (target % 9)
        self.edges.append(
            {"source": source, "target": target, "copy": False, "requests": requests, "failures": 0, "denied": 0}
            | {"connections": 0, "failedConnections": 0, "deniedConnections": 0}
            | {"p50Microseconds": median, "p90Microseconds": 3 * median, "p99Microseconds": 7 * median}
            | {"bytes": requests * 1730, "exchanged": requests, "secured": requests}
            | fields
        )

    def split(self, root: int, backends: Mapping[int, tuple[int, int]], *, match: str = "", name: str = "") -> None:
        """Add a split: for each backend its wanted weight and the observed requests."""
        weights = sum(weight for weight, _ in backends.values())
        total = sum(requests for _, requests in backends.values())
        node = self.nodes[root]
        self.splits.append({
            "object": {
                "group": "split.smi-spec.io",
                "kind": "TrafficSplit",
                "namespace": node["namespace"],
                "name": name or node["name"],
            },
            "service": root,
            "port": 80,
            "match": match,
            "backends": [
                {"service": backend, "wanted": {"numerator": weight, "denominator": weights}, "requests": requests}
                | _band(weight / weights, total)
                for backend, (weight, requests) in backends.items()
            ],
        })  # fmt: skip

    def mirror(self, service: int, target: int, copies: int, *, share: tuple[int, int] = (1, 1), **fields: Any) -> None:
        """Add a mirror from a service to a target."""
        node = self.nodes[service]
        self.mirrors.append(
            {
                "object": {
                    "group": "gateway.networking.k8s.io",
                    "kind": "HTTPRoute",
                    "namespace": node["namespace"],
                    "name": node["name"],
                },
                "service": service,
                "target": target,
                "share": {"numerator": share[0], "denominator": share[1]},
                "copies": copies,
                "failures": 0,
                "verdict": "",
                "message": "",
            }
            | fields
        )

    def object(self, reason: str = "", message: str = "") -> dict[str, Any]:
        """Return the TrafficGraph as the inspect API returns it."""
        return {
            "apiVersion": "inspect.headgate.dev/v1beta1",
            "kind": "TrafficGraph",
            "metadata": {"name": "services"},
            "status": {
                "startTime": "2026-11-30T07:00:00Z",
                "endTime": "2026-11-30T07:00:30Z",
                "windowMilliseconds": WINDOW,
                "reason": reason,
                "message": message,
                "nodes": self.nodes,
                "edges": self.edges,
                "splits": self.splits,
                "mirrors": self.mirrors,
            },
        }


def _band(share: float, total: int) -> dict[str, int]:
    """Return the 3-sigma band of the requests at a share."""
    deviation = 3 * math.sqrt(total * share * (1 - share))
    return {
        "expectedLow": max(0, math.ceil(total * share - deviation)),
        "expectedHigh": min(total, math.floor(total * share + deviation)),
    }


def bookstore() -> dict[str, Any]:
    """Return the mesh of examples/bookstore: a buyer, a thief, a bookstore in two versions and a warehouse."""
    graph = Graph()
    buyer = graph.node("bookbuyer", "people")
    thief = graph.node("bookthief", "people")
    store = graph.node("bookstore", "bookstore", warnings=1)
    first = graph.node("bookstore-v1", "bookstore", labels={"app": "bookstore", "version": "v1"})
    second = graph.node("bookstore-v2", "bookstore", labels={"app": "bookstore", "version": "v2"})
    warehouse = graph.node("bookwarehouse", "bookwarehouse")
    database = graph.node("mysql", "bookwarehouse", labels={"app": "mysql"}, pods=1, meshed=1)
    graph.edge(buyer, store, 1200, failures=3)
    graph.edge(thief, store, 412, denied=412, exchanged=412, secured=412)
    graph.split(store, {first: (90, 1076), second: (10, 124)})
    graph.edge(first, warehouse, 538)
    graph.edge(second, warehouse, 62)
    graph.edge(warehouse, database, 0, connections=4, bytes=88_000, exchanged=4, secured=4, p50Microseconds=None)
    return graph.object()


def splits(first: int = 700, second: int = 300, *, weight: int = 70) -> dict[str, Any]:
    """Return a mesh with a split outside its band, an A/B test, mirrors, denied and failing callers, and a caller outside."""
    graph = Graph()
    outside = graph.node("198.51.100.7", "", kind="Outside")
    gateway = graph.node("gateway", "edge")
    website = graph.node("website", "shop", errors=1)
    blue = graph.node("website-blue", "shop")
    green = graph.node("website-green", "shop")
    beta = graph.node("website-beta", "shop")
    shadow = graph.node("website-next", "shop", pods=1, meshed=0)
    cart = graph.node("cart", "shop", warnings=2)
    payments = graph.node("payments", "pay", errors=2, warnings=1)
    ledger = graph.node("ledger", "pay")
    reports = graph.node("reports", "analytics", pods=3, meshed=2)
    graph.edge(outside, gateway, 1300, exchanged=1300, secured=0)
    graph.edge(gateway, website, 1240, failures=31)
    graph.split(website, {blue: (weight, first), green: (100 - weight, second)})
    graph.split(website, {beta: (1, 240)}, match="cookie: beta=1", name="website-beta")
    graph.mirror(
        website,
        shadow,
        240,
        share=(1, 5),
        failures=12,
        verdict="MoreFailures",
        message="5 % of the copies fail, 1 % of the requests",
    )
    graph.mirror(cart, payments, 80, verdict="NotProven")
    graph.edge(blue, cart, 320)
    graph.edge(green, cart, 130)
    graph.edge(cart, payments, 80, failures=40)
    graph.edge(payments, ledger, 80)
    graph.edge(reports, ledger, 115, denied=95, exchanged=115, secured=60)
    graph.edge(ledger, payments, 12)
    return graph.object()


def services(count: int = 60, edges: int = 120, *, tick: int = 0, kind: str = "Service") -> dict[str, Any]:
    """Return a mesh of services in three tiers, 20 a namespace; the same arguments give the same mesh, `tick` changes its numbers."""
    graph = Graph()
    for number in range(count):
        graph.node(
            f"{_NAMES[number % len(_NAMES)]}-{number // len(_NAMES)}",
            f"team-{number // 20}",
            kind=kind,
            labels={"tier": ("web", "logic", "data")[_tier(number)], "app": _NAMES[number % len(_NAMES)]},
            warnings=int(number % 17 == 3),
        )
    callers = {number: _caller(number) for number in range(count) if _tier(number)}
    pairs = {(source, target) for target, source in callers.items()}
    numbers = random.Random(count)
    while len(pairs) < edges:
        source, target = numbers.randrange(count), numbers.randrange(count)
        if numbers.random() < 0.8:
            target = min(count - 1, source - source % 20 + target % 20)
        if _tier(source) < _tier(target):
            pairs.add((source, target))
    for number, (source, target) in enumerate(sorted(pairs)):
        requests = 20 + (number * 37 + tick * 113) % 1900
        failures = requests // 20 if number % 41 == 7 else 0
        graph.edge(source, target, requests, failures=failures, denied=9 if number % 97 == 11 else 0)
    return graph.object()


def _tier(number: int) -> int:
    """Return the tier of a service: 4 of 20 are called from outside, 8 have the logic, 8 the data."""
    return (number % 20 >= 4) + (number % 20 >= 12)


def _caller(number: int) -> int:
    """Return a service of the tier before, in the same namespace."""
    start, width = ((0, 4), (4, 8))[_tier(number) - 1]
    return number - number % 20 + start + number % width


def empty(reason: str, message: str) -> dict[str, Any]:
    """Return a graph without nodes, with the reason for it."""
    return Graph().object(reason, message)


_NAMES = (
    "website",
    "catalog",
    "cart",
    "orders",
    "payments",
    "shipping",
    "search",
    "users",
    "reviews",
    "images",
    "mail",
)


def main() -> None:
    """Print the mesh that the arguments name."""
    name, *sizes = sys.argv[1:]
    meshes = {"bookstore": bookstore, "splits": splits, "services": services}
    print(json.dumps(meshes[name](*map(int, sizes))))  # noqa: T201 - a program for the terminal


if __name__ == "__main__":
    main()
