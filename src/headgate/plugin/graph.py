"""`kubectl traffic topology`: callers and servers, out of one list and the edges of each of its items (R105, R107)."""

import ipaddress
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, TypeAlias

import msgspec

from headgate.errors import NotFound
from headgate.plugin.api import Api, Asked, Document, items, name_of
from headgate.plugin.colours import Colour
from headgate.plugin.edges import Exchange, Peer, exchanges_of
from headgate.plugin.errors import Forbidden, NoMetrics
from headgate.plugin.kinds import OUTSIDE, SERVICES, SPLITS
from headgate.plugin.numbers import Numbers, numbers_of, percent, rate

_AT_A_TIME = 8  # queries
_SUMMED = ("success", "failure", "denied", "connections", "unreached", "denied_connections")
Style = Literal["calls", "copies", "split"]
"""Requests; copies of requests, as mirrors make them; how a TrafficSplit divides what its Service is called for."""


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    """An arrow. Of a split's backend: `split` is `namespace/name`, `weight` its weight and the sum of all of them."""

    source: Peer
    target: Peer
    numbers: Numbers
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
        share, numbers = f"{self.share}: " if self.share else "", self.numbers
        if numbers.is_refused:
            return f"{share}{numbers.refused} denied"
        refused = f", {numbers.refused} denied" if numbers.refused else ""
        return share + (_connections(numbers) or f"{percent(numbers)} {rate(numbers)}") + refused


def _connections(numbers: Numbers) -> str:
    """Write connections of ports that are not HTTP, when there is nothing else."""
    if numbers.requests or not (numbers.connections or numbers.unreached):
        return ""
    plural = "" if numbers.connections == 1 else "s"
    return f"{numbers.connections} connection{plural}" + f", {numbers.unreached} failed" * bool(numbers.unreached)


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
    def colour(self) -> Colour:
        """How it is shown: failures first."""
        found = {one.numbers.colour for one in (self.edge, self.back) if one}
        return "failing" if "failing" in found else "refused" if "refused" in found else ""

    def label(self, joint: str, *, rightward: bool = True) -> str:
        """Return its numbers; of a line with two heads, those of each head on its side, with `joint` between them."""
        if self.back is None:
            return self.edge.label
        ends = (self.back.label, self.edge.label)
        return joint.join(ends if rightward else ends[::-1])


def topology(api: Api, asked: Asked) -> Graph:
    """Ask for a kind's resources and the edges of each, and return their graph.

    Services have the shares of TrafficSplits besides, where the API tells of them; of TrafficSplits there is nothing else.
    """
    if asked.kind is SPLITS:
        return graph_of(SERVICES.kind, asked.namespace, {}, splits_of(api.list(asked)))
    nodes = [Peer(asked.kind.kind, *name_of(item)) for item in items(api.list(asked))]
    unselected = msgspec.structs.replace(asked, selector="")  # labels choose resources, not their peers
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        edges = dict(zip(nodes, pool.map(lambda node: _edges(api, unselected, node), nodes), strict=True))
    return graph_of(asked.kind.kind, asked.namespace, edges, _splits(api, asked) if nodes else ())


def _edges(api: Api, asked: Asked, node: Peer) -> Iterable[Exchange]:
    """Return a resource's edges; none when it went away since it was listed."""
    try:
        return exchanges_of(api.edges(asked, node.name, node.namespace))
    except NotFound:
        return ()


def _splits(api: Api, asked: Asked) -> Iterator[Edge]:
    """Yield the shares of the splits, if the kind is Service; an API without splits, or a user without the right, has none."""
    if asked.kind is not SERVICES:
        return
    try:
        yield from splits_of(api.list(Asked(kind=SPLITS, namespace=asked.namespace, window=asked.window)))
    except (NoMetrics, Forbidden):
        return


def graph_of(kind: str, namespace: str, edges: Mapping[Peer, Iterable[Exchange]], splits: Iterable[Edge] = ()) -> Graph:
    """Put the edges of all resources together; an edge that both of its ends have is in the graph once."""
    found: dict[_Key, Edge] = {}
    for node, exchanges in edges.items():
        for one in exchanges:
            edge = _edge(node, one)
            found[edge.key] = _joined(
                found.get(edge.key), edge, outside=OUTSIDE in (edge.source.kind, edge.target.kind)
            )
    shares = {edge.key: edge for edge in splits}
    found = {key: edge for key, edge in found.items() if not _is_share(edge, found, shares)} | shares
    nodes = dict.fromkeys([*edges, *(end for key in sorted(found) for end in key[:2])])
    return Graph(kind=kind, namespace=namespace, nodes=tuple(nodes), edges=tuple(found.values()))


def _is_share(edge: Edge, found: Mapping[_Key, Edge], shares: Mapping[_Key, Edge]) -> bool:
    """Return whether a backend received all of an edge as its share of a split whose root has an arrow of its own."""
    if edge.numbers.called != 0 or edge.style != "calls":
        return False
    roots = (source for source, target, *_ in shares if target == edge.target)
    return any((edge.source, root, edge.style, "") in found for root in roots)


def _edge(node: Peer, one: Exchange) -> Edge:
    peer = _outside(one.peer)
    source, target = (node, peer) if one.direction == "to" else (peer, node)
    return Edge(source=source, target=target, numbers=one.numbers, style="copies" if one.copy else "calls")


def _outside(peer: Peer) -> Peer:
    """Take all addresses outside for one: each client would have a box of its own."""
    if peer.kind != OUTSIDE:
        return peer
    try:
        ipaddress.ip_address(peer.name)
    except ValueError:
        return peer
    return Peer(OUTSIDE, "", "addresses")


def _joined(known: Edge | None, edge: Edge, *, outside: bool) -> Edge:
    """Return one edge for two: what clients outside did adds up, what both ends of an edge tell is the same."""
    if known is None or not outside:
        return known or edge
    a, b = known.numbers, edge.numbers
    sums = {name: getattr(a, name) + getattr(b, name) for name in _SUMMED}
    called = None if a.called is None or b.called is None else a.called + b.called
    return msgspec.structs.replace(known, numbers=Numbers(**sums, called=called, window=max(a.window, b.window)))


def splits_of(listed: Document) -> Iterator[Edge]:
    """Yield an edge for each backend of each TrafficSplit in a list: from the Service that is called to its own."""
    legs = [(name_of(item), item.get("backend") or {}, numbers_of(item)) for item in items(listed)]
    totals: Counter[tuple[str, str]] = Counter()
    for split, _, numbers in legs:
        totals[split] += numbers.weight or 0
    for split, backend, numbers in legs:
        yield Edge(
            source=_service(str(backend.get("apex") or ""), split[0]),
            target=_service(str(backend.get("name") or ""), split[0]),
            numbers=numbers,
            style="split",
            weight=(numbers.weight or 0, totals[split]),
            split="/".join(split),
        )


def _service(name: str, namespace: str) -> Peer:
    """Return the Service that a split means: `web`, `web.shop`, `web.shop.svc.cluster.local`."""
    short, _, rest = name.partition(".")
    return Peer(SERVICES.kind, rest.partition(".")[0] or namespace, short)


def links_of(graph: Graph) -> Iterator[Link]:
    """Yield what a picture draws: edges in both directions are one line with two heads; it begins where more traffic does."""
    strongest = sorted(graph.edges, key=lambda one: (-one.numbers.requests, one.source, one.target))
    edges: Mapping[_Key, Edge] = {one.key: one for one in strongest}
    drawn: set[_Key] = set()
    for key, edge in edges.items():
        source, target = key[:2]
        if key in drawn:
            continue
        back = edges.get((target, source, edge.style, edge.split)) if source != target else None
        drawn |= {key, (target, source, edge.style, edge.split)}
        yield Link(edge=edge, back=back)


def described(graph: Graph) -> Mapping[str, object]:
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
    numbers = edge.numbers
    return {
        "from": edge.source,
        "to": edge.target,
        "style": edge.style,
        **({"split": edge.split, "weight": edge.weight[0]} if edge.weight else {}),
        "success": numbers.success,
        "failure": numbers.failure,
        "connections": numbers.connections,
        "failedConnections": numbers.unreached,
        "denied": numbers.denied,
        "deniedConnections": numbers.denied_connections,
        "windowSeconds": numbers.window,
        "successRate": numbers.share,
        "requestsPerSecond": numbers.rps,
        **{f"{share}Seconds": getattr(numbers, share) for share in ("p50", "p90", "p99")},
    }
