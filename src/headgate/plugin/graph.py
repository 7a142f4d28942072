"""`kubectl traffic topology`: callers and servers, out of one list and the edges of each of its items (R105, R107)."""

import ipaddress
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, TypeAlias

import msgspec

from headgate.errors import NotFound
from headgate.plugin.api import Document, MetricsApi, Query, items, resource_name
from headgate.plugin.colors import Color
from headgate.plugin.edges import Peer, ResourceEdge, parse_edges
from headgate.plugin.errors import Forbidden, NoMetrics
from headgate.plugin.kinds import OUTSIDE, SERVICES, SPLITS
from headgate.plugin.metrics import Metrics, parse_metrics, percent, rate

_AT_A_TIME = 8  # queries
_SUMMED = ("success", "failure", "denied", "connections", "unreached", "denied_connections")
Style = Literal["calls", "copies", "split"]
"""Requests; copies of requests, as mirrors make them; how a TrafficSplit divides what its Service is called for."""


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    """An arrow. Of a split's backend: `split` is `namespace/name`, `weight` its weight and the sum of all of them."""

    source: Peer
    target: Peer
    metrics: Metrics
    style: Style = "calls"
    weight: tuple[int, int] | None = None
    split: str = ""

    @property
    def key(self) -> "_Key":
        """What is one arrow: several splits of a Service, by matches, have arrows of their own."""
        return self.source, self.target, self.style, self.split

    @property
    def share(self) -> str:
        """The share of a split's backend: `90%`; empty without any weight."""
        return f"{100 * self.weight[0] / self.weight[1]:.3g}%" if self.weight and self.weight[1] else ""

    @property
    def label(self) -> str:
        """Its numbers: `100.00% 1.8rps`, or `54 connections`, and `3 denied`; before them a split's share."""
        share, metrics = f"{self.share}: " if self.share else "", self.metrics
        if metrics.is_denied:
            return f"{share}{metrics.refused} denied"
        refused = f", {metrics.refused} denied" if metrics.refused else ""
        return share + (_connections(metrics) or f"{percent(metrics)} {rate(metrics)}") + refused


def _connections(metrics: Metrics) -> str:
    """Write connections of ports that are not HTTP, when there is nothing else."""
    if metrics.requests or not (metrics.connections or metrics.connection_failures):
        return ""
    plural = "" if metrics.connections == 1 else "s"
    return f"{metrics.connections} connection{plural}" + f", {metrics.connection_failures} failed" * bool(
        metrics.connection_failures
    )


_Key: TypeAlias = tuple[Peer, Peer, Style, str]


class Graph(msgspec.Struct, frozen=True, kw_only=True):
    """Resources of a kind with what they exchange. `nodes` without an edge are in it too."""

    kind: str
    namespace: str
    nodes: tuple[Peer, ...]
    edges: tuple[Edge, ...]

    def name(self, node: Peer) -> str:
        """Return how a node is written in a picture."""
        return node.named(self.kind, self.namespace)

    @property
    def connected(self) -> tuple[Peer, ...]:
        """The nodes that have an edge."""
        ends = {end for edge in self.edges for end in (edge.source, edge.target)}
        return tuple(node for node in self.nodes if node in ends)

    @property
    def idle(self) -> tuple[Peer, ...]:
        """The nodes that have none."""
        return tuple(node for node in self.nodes if node not in set(self.connected))


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """What a picture draws as one line: an edge, and the edge that goes back, if there is one of the same style."""

    edge: Edge
    back: Edge | None = None

    @property
    def color(self) -> Color:
        """How it is shown: failures first."""
        found = {one.metrics.color for one in (self.edge, self.back) if one}
        return "failing" if "failing" in found else "refused" if "refused" in found else ""

    def label(self, joint: str, *, rightward: bool = True) -> str:
        """Return its numbers; of a line with two heads, those of each head on its side, with `joint` between them."""
        if self.back is None:
            return self.edge.label
        ends = (self.back.label, self.edge.label)
        return joint.join(ends if rightward else ends[::-1])


def topology(api: MetricsApi, query: Query) -> Graph:
    """Ask for a kind's resources and the edges of each, and return their graph.

    Services have the shares of TrafficSplits besides, where the API tells of them; of TrafficSplits there is nothing else.
    """
    if query.kind is SPLITS:
        return build_graph(SERVICES.kind, query.namespace, {}, split_edges(api.list(query)))
    nodes = [Peer(query.kind.kind, *resource_name(item)) for item in items(api.list(query))]
    unselected = msgspec.structs.replace(query, selector="")  # labels choose resources, not their peers
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        edges = dict(zip(nodes, pool.map(lambda node: _edges(api, unselected, node), nodes), strict=True))
    return build_graph(query.kind.kind, query.namespace, edges, _splits(api, query) if nodes else ())


def _edges(api: MetricsApi, query: Query, node: Peer) -> Iterable[ResourceEdge]:
    """Return a resource's edges; none when it went away since it was listed."""
    try:
        return parse_edges(api.edges(query, node.name, node.namespace))
    except NotFound:
        return ()


def _splits(api: MetricsApi, query: Query) -> Iterator[Edge]:
    """Yield the shares of the splits, if the kind is Service; an API without splits, or a user without the right, has none."""
    if query.kind is not SERVICES:
        return
    try:
        yield from split_edges(api.list(Query(kind=SPLITS, namespace=query.namespace, window=query.window)))
    except (NoMetrics, Forbidden):
        return


def build_graph(
    kind: str, namespace: str, edges: Mapping[Peer, Iterable[ResourceEdge]], splits: Iterable[Edge] = ()
) -> Graph:
    """Put the edges of all resources together; an edge that both of its ends have is in the graph once."""
    found: dict[_Key, Edge] = {}
    for node, exchanges in edges.items():
        for one in exchanges:
            edge = _edge(node, one)
            found[edge.key] = _merged(
                found.get(edge.key), edge, outside=OUTSIDE in (edge.source.kind, edge.target.kind)
            )
    shares = {edge.key: edge for edge in splits}
    found = {key: edge for key, edge in found.items() if not _is_share(edge, found, shares)} | shares
    nodes = dict.fromkeys([*edges, *(end for key in sorted(found) for end in key[:2])])
    return Graph(kind=kind, namespace=namespace, nodes=tuple(nodes), edges=tuple(found.values()))


def _is_share(edge: Edge, found: Mapping[_Key, Edge], shares: Mapping[_Key, Edge]) -> bool:
    """Return whether a backend received all of an edge as its share of a split whose root has an arrow of its own."""
    if edge.metrics.called != 0 or edge.style != "calls":
        return False
    roots = (source for source, target, *_ in shares if target == edge.target)
    return any((edge.source, root, edge.style, "") in found for root in roots)


def _edge(node: Peer, one: ResourceEdge) -> Edge:
    peer = _collapse_outside(one.peer)
    source, target = (node, peer) if one.direction == "to" else (peer, node)
    return Edge(source=source, target=target, metrics=one.metrics, style="copies" if one.copy else "calls")


def _collapse_outside(peer: Peer) -> Peer:
    """Take all addresses outside for one: each client would have a box of its own."""
    if peer.kind != OUTSIDE:
        return peer
    try:
        ipaddress.ip_address(peer.name)
    except ValueError:
        return peer
    return Peer(OUTSIDE, "", "addresses")


def _merged(known: Edge | None, edge: Edge, *, outside: bool) -> Edge:
    """Return one edge for two: what clients outside did adds up, what both ends of an edge tell is the same."""
    if known is None or not outside:
        return known or edge
    a, b = known.metrics, edge.metrics
    sums = {name: getattr(a, name) + getattr(b, name) for name in _SUMMED}
    called = None if a.called is None or b.called is None else a.called + b.called
    return msgspec.structs.replace(known, metrics=Metrics(**sums, called=called, window=max(a.window, b.window)))


def split_edges(listed: Document) -> Iterator[Edge]:
    """Yield an edge for each backend of each TrafficSplit in a list: from the Service that is called to its own."""
    legs = [(resource_name(item), item.get("backend") or {}, parse_metrics(item)) for item in items(listed)]
    totals: Counter[tuple[str, str]] = Counter()
    for split, _, metrics in legs:
        totals[split] += metrics.weight or 0
    for split, backend, metrics in legs:
        yield Edge(
            source=_service(str(backend.get("apex") or ""), split[0]),
            target=_service(str(backend.get("name") or ""), split[0]),
            metrics=metrics,
            style="split",
            weight=(metrics.weight or 0, totals[split]),
            split="/".join(split),
        )


def _service(name: str, namespace: str) -> Peer:
    """Return the Service that a split means: `web`, `web.shop`, `web.shop.svc.cluster.local`."""
    short, _, rest = name.partition(".")
    return Peer(SERVICES.kind, rest.partition(".")[0] or namespace, short)


def build_links(graph: Graph) -> Iterator[Link]:
    """Yield what a picture draws: edges in both directions are one line with two heads; it begins where more traffic does."""
    strongest = sorted(graph.edges, key=lambda one: (-one.metrics.requests, one.source, one.target))
    edges: Mapping[_Key, Edge] = {one.key: one for one in strongest}
    drawn: set[_Key] = set()
    for key, edge in edges.items():
        source, target = key[:2]
        if key in drawn:
            continue
        back = edges.get((target, source, edge.style, edge.split)) if source != target else None
        drawn |= {key, (target, source, edge.style, edge.split)}
        yield Link(edge=edge, back=back)


def to_document(graph: Graph) -> Mapping[str, object]:
    """Return a graph for scripts (`-o json`)."""
    found: Mapping[str, object] = msgspec.to_builtins(
        {
            "kind": "TrafficTopology",
            "of": graph.kind,
            "nodes": graph.nodes,
            "edges": [_described(edge) for edge in graph.edges],
        }
    )
    return found


def _described(edge: Edge) -> Mapping[str, object]:
    metrics = edge.metrics
    return {
        "from": edge.source,
        "to": edge.target,
        "style": edge.style,
        **({"split": edge.split, "weight": edge.weight[0]} if edge.weight else {}),
        "success": metrics.success,
        "failure": metrics.failure,
        "connections": metrics.connections,
        "failedConnections": metrics.connection_failures,
        "denied": metrics.denied,
        "deniedConnections": metrics.denied_connections,
        "windowSeconds": metrics.window,
        "successRate": metrics.share,
        "requestsPerSecond": metrics.rps,
        **{f"{share}Seconds": getattr(metrics, share) for share in ("p50", "p90", "p99")},
    }
