"""Graphs for the tests of diagrams."""

from collections.abc import Iterable, Sequence

from headgate.cli.traffic.edges import EdgePeer
from headgate.cli.traffic.graph import Arrow, Graph
from headgate.cli.traffic.metrics import Metrics

Call = tuple[str, str]
NUMBERS = Metrics(success=54, window=30.0, p50=0.0005, p90=0.0008, p99=0.001)


def peer(name: str) -> EdgePeer:
    return EdgePeer("Outside", "", name[1:-1]) if name.startswith("(") else EdgePeer("Deployment", "default", name)


def graph(
    calls: Iterable[Call],
    *,
    copies: Iterable[Call] = (),
    shares: Iterable[tuple[str, str, int]] = (),
    idle: Sequence[str] = (),
) -> Graph:
    """Return a graph of Deployments; a name in parentheses is a peer outside of the mesh."""
    edges = [Arrow(source=peer(a), target=peer(b), metrics=NUMBERS) for a, b in calls]
    edges += [Arrow(source=peer(a), target=peer(b), metrics=NUMBERS, style="copies") for a, b in copies]
    split = list(shares)
    total = sum(weight for _, _, weight in split)
    edges += [
        Arrow(source=peer(a), target=peer(b), metrics=NUMBERS, style="split", weight=(weight, total))
        for a, b, weight in split
    ]
    nodes = {end for edge in edges for end in (edge.source, edge.target)} | set(map(peer, idle))
    return Graph(kind="Deployment", namespace="default", nodes=tuple(sorted(nodes)), edges=tuple(edges))


SHOP = {
    "ingress": "web mobile-bff admin partner-api",
    "web": "catalog cart checkout search account",
    "mobile-bff": "catalog cart recommend account",
    "admin": "orders inventory promo",
    "partner-api": "orders shipping",
    "catalog": "pricing reviews media",
    "cart": "pricing sessions",
    "checkout": "payments orders shipping",
    "search": "search-index",
    "account": "users-db tokens",
    "orders": "orders-db notify inventory",
    "reviews": "users-db",
    "recommend": "stats",
    "pricing": "promo currency tax",
    "shipping": "geo",
    "inventory": "stock-db orders",
    "payments": "fraud ledger currency",
    "notify": "mailer sms",
    "media": "images",
    "images": "cdn-origin",
    "ledger": "audit",
    "fraud": "events",
    "audit": "events",
    "events": "stats",
    "stats": "events",
    "mailer": "audit",
}
"""The calls between the 40 Deployments of a shop."""


def shop() -> Graph:
    calls = [(source, target) for source, targets in SHOP.items() for target in targets.split()]
    return graph(calls, copies=[("checkout", "checkout-shadow")], idle=["cron"])
