"""`kubectl traffic topology`: the queries that a graph is made of: one list, and the edges of each of its items (R107)."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import msgspec

from headgate.errors import NotFound
from headgate.plugin.api import Api, Asked, Document
from headgate.plugin.edges import Exchange, Peer, exchanges_of
from headgate.plugin.errors import Forbidden, NoMetrics
from headgate.plugin.graph import Edge, Graph, graph_of, nodes_of, splits_of
from headgate.plugin.kinds import SERVICES, SPLITS

_AT_A_TIME = 8


def topology(api: Api, asked: Asked) -> Graph:
    """Ask for a kind's resources and each one's edges, and return who calls whom.

    Services have the shares of TrafficSplits besides, where the API tells of them; of TrafficSplits there is nothing else.
    """
    if asked.kind is SPLITS:
        return graph_of(SERVICES.kind, asked.namespace, {"items": []}, {}, splits_of(api.list(asked)))
    listed = api.list(asked)
    nodes = nodes_of(asked.kind.kind, listed)
    everybody = msgspec.structs.replace(asked, selector="")  # labels choose resources, not with whom they exchange
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        edges = dict(zip(nodes, pool.map(lambda node: _edges(api, everybody, node), nodes), strict=True))
    return graph_of(asked.kind.kind, asked.namespace, listed, edges, _splits(api, asked, listed))


def _edges(api: Api, asked: Asked, node: Peer) -> Iterable[Exchange]:
    """Return a resource's edges; none when it went away since it was listed."""
    try:
        return exchanges_of(api.edges(asked, node.name, node.namespace))
    except NotFound:
        return ()


def _splits(api: Api, asked: Asked, listed: Document) -> Iterator[Edge]:
    """Yield the shares of the splits, if the kind is Service; an API without splits, or a user without the right, has none."""
    if asked.kind is not SERVICES or not listed.get("items"):
        return
    try:
        yield from splits_of(api.list(Asked(kind=SPLITS, namespace=asked.namespace, window=asked.window)))
    except (NoMetrics, Forbidden):
        return
