"""`kubectl traffic topology`: a graph of listed resources with all their edges (R105, R107)."""

import ipaddress
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, TypeAlias

import msgspec

from headgate.cli.traffic.api import Document, MetricsClient, MetricsQuery, items, resource_name
from headgate.cli.traffic.colors import Color
from headgate.cli.traffic.edges import EdgePeer, ResourceEdge, parse_edges
from headgate.cli.traffic.errors import Forbidden, NoMetrics
from headgate.cli.traffic.kinds import OUTSIDE, SERVICES, SPLITS
from headgate.cli.traffic.metrics import Metrics, parse_metrics, percent, rate
from headgate.errors import NotFound
from headgate.formatting import printable

_CONCURRENCY = 8  # the maximum number of queries at the same time
_SUMMED = ("success", "failure", "denied", "connections", "unreached", "denied_connections")
Style = Literal["calls", "copies", "split"]
"""What an arrow shows: requests, mirrored requests, or the share of a TrafficSplit's backend."""


class Arrow(msgspec.Struct, frozen=True, kw_only=True):
    """An arrow of the graph.

    For a backend of a split, `split` is `namespace/name`, and `weight` has the weight of the backend and the sum
    of all weights.
    """

    source: EdgePeer
    target: EdgePeer
    metrics: Metrics
    style: Style = "calls"
    weight: tuple[int, int] | None = None
    split: str = ""

    @property
    def key(self) -> "_Key":
        """Return the identity of the arrow. Each split of a Service has its own arrows."""
        return self.source, self.target, self.style, self.split

    @property
    def share(self) -> str:
        """Return the share of a split's backend: `90%`; empty without weights."""
        return f"{100 * self.weight[0] / self.weight[1]:.3g}%" if self.weight and self.weight[1] else ""

    @property
    def label(self) -> str:
        """Return the label: `100.00% 1.8rps`, `54 connections, 3 denied`, or for a split `90%: 100.00% 1.8rps`."""
        share, metrics = f"{self.share}: " if self.share else "", self.metrics
        if metrics.is_denied:
            return f"{share}{metrics.denied_total} denied"
        denied = f", {metrics.denied_total} denied" if metrics.denied_total else ""
        return share + (_connections(metrics) or f"{percent(metrics)} {rate(metrics)}") + denied


def _connections(metrics: Metrics) -> str:
    """Return a text such as `54 connections, 2 failed`; empty when the edge has requests."""
    if metrics.requests or not (metrics.connections or metrics.connection_failures):
        return ""
    plural = "" if metrics.connections == 1 else "s"
    return f"{metrics.connections} connection{plural}" + f", {metrics.connection_failures} failed" * bool(
        metrics.connection_failures
    )


_Key: TypeAlias = tuple[EdgePeer, EdgePeer, Style, str]


class Graph(msgspec.Struct, frozen=True, kw_only=True):
    """Resources of a kind and the traffic between them. `nodes` includes resources without an edge."""

    kind: str
    namespace: str
    nodes: tuple[EdgePeer, ...]
    edges: tuple[Arrow, ...]

    def name(self, node: EdgePeer) -> str:
        """Return the name of a node in a diagram."""
        return printable(node.named(self.kind, self.namespace))

    @property
    def connected(self) -> tuple[EdgePeer, ...]:
        """Return the nodes that have an edge."""
        ends = {end for edge in self.edges for end in (edge.source, edge.target)}
        return tuple(node for node in self.nodes if node in ends)

    @property
    def idle(self) -> tuple[EdgePeer, ...]:
        """Return the nodes that have no edge."""
        return tuple(node for node in self.nodes if node not in set(self.connected))


class ArrowPair(msgspec.Struct, frozen=True, kw_only=True):
    """An edge and the opposite edge of the same style, if any; a diagram draws them as one line."""

    edge: Arrow
    back: Arrow | None = None

    @property
    def color(self) -> Color:
        """Return the color of the line: failures take precedence over denials."""
        colors = {arrow.metrics.color for arrow in (self.edge, self.back) if arrow}
        return "failing" if "failing" in colors else "denied" if "denied" in colors else ""

    def label(self, joint: str, *, rightward: bool = True) -> str:
        """Return the label. With an opposite edge, join both labels by `joint`, each beside its arrowhead."""
        if self.back is None:
            return self.edge.label
        ends = (self.back.label, self.edge.label)
        return joint.join(ends if rightward else ends[::-1])


def topology(api: MetricsClient, query: MetricsQuery) -> Graph:
    """Query the resources of a kind and the edges of each, and return their graph.

    The graph of Services also has the shares of TrafficSplits, if the API has them. The graph of TrafficSplits has only
    these shares.
    """
    if query.kind is SPLITS:
        return build_graph(SERVICES.kind, query.namespace, {}, split_edges(api.list(query)))
    nodes = [EdgePeer(query.kind.kind, *resource_name(document)) for document in items(api.list(query))]
    unselected = msgspec.structs.replace(query, selector="")  # the selector is for resources, not for their peers
    with ThreadPoolExecutor(_CONCURRENCY) as pool:
        edges = dict(zip(nodes, pool.map(lambda node: _edges(api, unselected, node), nodes), strict=True))
    return build_graph(query.kind.kind, query.namespace, edges, _splits(api, query) if nodes else ())


def _edges(api: MetricsClient, query: MetricsQuery, node: EdgePeer) -> Iterable[ResourceEdge]:
    """Return the edges of a resource; none when it was deleted after the list."""
    try:
        return parse_edges(api.edges(query, node.name, node.namespace))
    except NotFound:
        return ()


def _splits(api: MetricsClient, query: MetricsQuery) -> Iterator[Arrow]:
    """Yield the shares of splits for the kind Service; none when the API has no splits or forbids listing them."""
    if query.kind is not SERVICES:
        return
    try:
        yield from split_edges(api.list(MetricsQuery(kind=SPLITS, namespace=query.namespace, window=query.window)))
    except (NoMetrics, Forbidden):
        return


def build_graph(
    kind: str, namespace: str, edges: Mapping[EdgePeer, Iterable[ResourceEdge]], splits: Iterable[Arrow] = ()
) -> Graph:
    """Return the graph of all edges. An edge that both of its ends report appears once."""
    arrows: dict[_Key, Arrow] = {}
    for node, node_edges in edges.items():
        for reported in node_edges:
            edge = _edge(node, reported)
            arrows[edge.key] = _merged(
                arrows.get(edge.key), edge, outside=OUTSIDE in (edge.source.kind, edge.target.kind)
            )
    shares = {edge.key: edge for edge in splits}
    arrows = {key: edge for key, edge in arrows.items() if not _is_share(edge, arrows, shares)} | shares
    nodes = dict.fromkeys([*edges, *(end for key in sorted(arrows) for end in key[:2])])
    return Graph(kind=kind, namespace=namespace, nodes=tuple(nodes), edges=tuple(arrows.values()))


def _is_share(edge: Arrow, arrows: Mapping[_Key, Arrow], shares: Mapping[_Key, Arrow]) -> bool:
    """Return whether all requests of an edge reached a backend through a split, so that the split's arrows show them."""
    if edge.metrics.called != 0 or edge.style != "calls":
        return False
    roots = (source for source, target, *_ in shares if target == edge.target)
    return any((edge.source, root, edge.style, "") in arrows for root in roots)


def _edge(node: EdgePeer, edge: ResourceEdge) -> Arrow:
    peer = _collapse_outside(edge.peer)
    source, target = (node, peer) if edge.direction == "to" else (peer, node)
    return Arrow(source=source, target=target, metrics=edge.metrics, style="copies" if edge.copy else "calls")


def _collapse_outside(peer: EdgePeer) -> EdgePeer:
    """Return one common peer for all addresses outside of the mesh, so that they share a box; else the peer."""
    if peer.kind != OUTSIDE:
        return peer
    try:
        ipaddress.ip_address(peer.name)
    except ValueError:
        return peer
    return EdgePeer(OUTSIDE, "", "addresses")


def _merged(arrow: Arrow | None, edge: Arrow, *, outside: bool) -> Arrow:
    """Merge an edge into a known one with the same key. Metrics of peers outside of the mesh are added.

    Otherwise the known edge remains, because both ends of an edge report the same traffic.
    """
    if arrow is None or not outside:
        return arrow or edge
    a, b = arrow.metrics, edge.metrics
    sums = {name: getattr(a, name) + getattr(b, name) for name in _SUMMED}
    called = None if a.called is None or b.called is None else a.called + b.called
    return msgspec.structs.replace(arrow, metrics=Metrics(**sums, called=called, window=max(a.window, b.window)))


def split_edges(listed: Document) -> Iterator[Arrow]:
    """Yield an edge for each backend of each TrafficSplit in a list: from the root Service to the backend's Service."""
    legs = [
        (resource_name(document), document.get("backend") or {}, parse_metrics(document)) for document in items(listed)
    ]
    totals: Counter[tuple[str, str]] = Counter()
    for split, _, metrics in legs:
        totals[split] += metrics.weight or 0
    for split, backend, metrics in legs:
        yield Arrow(
            source=_service(str(backend.get("apex") or ""), split[0]),
            target=_service(str(backend.get("name") or ""), split[0]),
            metrics=metrics,
            style="split",
            weight=(metrics.weight or 0, totals[split]),
            split="/".join(split),
        )


def _service(name: str, namespace: str) -> EdgePeer:
    """Return the Service to which a name in a split refers: `web`, `web.shop`, `web.shop.svc.cluster.local`."""
    short, _, rest = name.partition(".")
    return EdgePeer(SERVICES.kind, rest.partition(".")[0] or namespace, short)


def build_links(graph: Graph) -> Iterator[ArrowPair]:
    """Yield the lines of a diagram. Opposite edges are one line, which starts at the end that sends more requests."""
    strongest = sorted(graph.edges, key=lambda arrow: (-arrow.metrics.requests, arrow.source, arrow.target))
    edges: Mapping[_Key, Arrow] = {arrow.key: arrow for arrow in strongest}
    drawn: set[_Key] = set()
    for key, edge in edges.items():
        source, target = key[:2]
        if key in drawn:
            continue
        back = edges.get((target, source, edge.style, edge.split)) if source != target else None
        drawn |= {key, (target, source, edge.style, edge.split)}
        yield ArrowPair(edge=edge, back=back)


def to_document(graph: Graph) -> Mapping[str, object]:
    """Return the document for `-o json`."""
    document: Mapping[str, object] = msgspec.to_builtins(
        {
            "kind": "TrafficTopology",
            "of": graph.kind,
            "nodes": graph.nodes,
            "edges": [_described(edge) for edge in graph.edges],
        }
    )
    return document


def _described(edge: Arrow) -> Mapping[str, object]:
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
