"""The resource `trafficgraphs`: the traffic between Services, or between workloads, in a window."""

from collections.abc import Sequence

from headgate.api.inspect.resource import InspectCall, InspectResource
from headgate.api.status import ApiError
from headgate.durations import seconds
from headgate.formatting import NONE
from headgate.resources.traffic_graphs import GRAPHS, TrafficGraph, TrafficGraphList

DEFAULT_WINDOW = "30s"
_SHORTEST_S, _LONGEST_S = 1.0, 24 * 3600.0


async def _get(call: InspectCall) -> TrafficGraph | None:
    graphs = await _graphs(call, [name for name in GRAPHS if name == call.path.name])
    return graphs[0] if graphs else None


async def _list(call: InspectCall) -> TrafficGraphList:
    names = [name for name in GRAPHS if call.path.selected in ("", name)]
    return TrafficGraphList(items=await _graphs(call, names))


async def _graphs(call: InspectCall, names: Sequence[str]) -> tuple[TrafficGraph, ...]:
    """Return graphs for the parameter `window`. Raises ApiError 400, 501."""
    if call.inspector.graphs is None:
        raise ApiError(501, "no proxies report traffic to this server; use `headgate up`")
    return await call.inspector.graphs.graphs(names, call.path.namespace, _window(call.query.get("window", "")))


def _window(text: str) -> float:
    try:
        length = seconds(text or DEFAULT_WINDOW)
    except ValueError as error:
        raise ApiError(400, f"window: Invalid value: {error}") from None
    return max(min(length, _LONGEST_S), _SHORTEST_S)


TRAFFIC_GRAPHS = InspectResource(
    "trafficgraphs",
    "TrafficGraph",
    TrafficGraph,
    get=_get,
    list=_list,
    columns=(
        ("Nodes", "The number of Services or workloads.", lambda graph: str(len(graph.status.nodes))),
        ("Edges", "The number of pairs with traffic.", lambda graph: str(len(graph.status.edges))),
        (
            "Requests",
            "The number of requests in the window, without mirrored copies.",
            lambda graph: str(sum(edge.requests for edge in graph.status.edges if not edge.copy)),
        ),
        ("Reason", "Why there is no traffic.", lambda graph: graph.status.reason or NONE),
    ),
    spans_namespaces=True,
    makes_selected=True,
    parameters={"window": _window},
)
