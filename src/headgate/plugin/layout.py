"""Where boxes stand and how lines run: a layered layout, from left to right, by graphlay."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import graphlay
import msgspec

from headgate.plugin.edges import Peer
from headgate.plugin.graph import Link

LINE = 20.0
"""Height of a line of text, in pixels."""
CHARACTER = 8.5
"""Width of a character, in pixels."""
_PADDING = 24.0
_PORT_GAP = 18.0
_OPTIONS: Mapping[str, Any] = {
    "direction": "leftright",
    "routing": {"port_sides": "long_edges_any", "bundle_parallel": False},
    "labels": {"placement": "gap_centre", "reservation": "always"},
    "spacing": {"isolated_gap": 30.0},
}


class Point(NamedTuple):
    """A place, in pixels; y grows downwards."""

    x: float
    y: float


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where the box of a node stands; `center` is shared by all boxes of a layer."""

    node: Peer
    text: str
    left: float
    right: float
    top: float
    bottom: float

    @property
    def center(self) -> float:
        """The middle from left to right."""
        return (self.left + self.right) / 2


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """How the line of a link runs from box to box: level and upright pieces in turn. `label` is the middle of its text."""

    link: Link
    points: tuple[Point, ...]
    label: Point | None = None


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """Boxes by their nodes, and lines between them."""

    places: Mapping[Peer, Place]
    runs: tuple[Run, ...]


def laid_out(names: Mapping[Peer, str], links: Sequence[Link], labels: Sequence[Sequence[str]] = ()) -> Layout:
    """Lay a graph out. `names` are the texts of the boxes, `labels` the lines of text of each link."""
    drawing = graphlay.layout(_graph(names, links, labels), options=_OPTIONS)
    places = {node: _place(node, names[node], placed) for node, placed in zip(names, drawing.nodes, strict=True)}
    runs = [_run(link, edge) for link, edge in zip(links, drawing.edges, strict=True)]
    found = Layout(places=places, runs=tuple(runs))
    return _from_the_top(_mirrored(found) if _hangs_low(drawing.edges) else found)


def _graph(names: Mapping[Peer, str], links: Sequence[Link], labels: Sequence[Sequence[str]]) -> graphlay.Graph:
    graph = graphlay.Graph()
    width = max(map(len, names.values()), default=0) * CHARACTER + _PADDING  # one for all: a layer is a column
    out = Counter(link.edge.source for link in links)
    into = Counter(link.edge.target for link in links)
    for node in names:
        ports = max(out[node], into[node], 1)
        graph.node(node, width=width, height=2 * LINE + (ports - 1) * _PORT_GAP)
    for number, link in enumerate(links):
        text = labels[number] if labels else ()
        size = {"width": max(map(len, text)) * CHARACTER, "height": len(text) * LINE} if text else None
        fields: Mapping[str, Any] = {"label_size": size} if size else {}
        graph.edge(link.edge.source, link.edge.target, **fields)
    return graph


def _place(node: Peer, text: str, placed: Mapping[str, Any]) -> Place:
    center, size = placed["center"], placed["size"]
    return Place(
        node=node,
        text=text,
        left=center["x"] - size["width"] / 2,
        right=center["x"] + size["width"] / 2,
        top=center["y"] - size["height"] / 2,
        bottom=center["y"] + size["height"] / 2,
    )


def _run(link: Link, edge: Mapping[str, Any]) -> Run:
    anchor = edge["label_anchor"]
    return Run(
        link=link,
        points=tuple(_corners([Point(point["x"], point["y"]) for point in edge["points"]])),
        label=Point(anchor["x"], anchor["y"]) if anchor else None,
    )


def _corners(points: Sequence[Point]) -> Iterator[Point]:
    """Yield the ends and the corners: a point on a straight piece, or one that is told twice, is none."""
    for number, point in enumerate(points):
        if number not in (0, len(points) - 1):
            before, after = points[number - 1], points[number + 1]
            if point == before or before.x == point.x == after.x or before.y == point.y == after.y:
                continue
        yield point


def _hangs_low(edges: Sequence[Mapping[str, Any]]) -> bool:
    """Say whether lines rather run below the boxes than above, where 004 draws them."""
    sides = Counter(edge[port]["side"] for edge in edges for port in ("source_port", "target_port"))
    return sides["bottom"] > sides["top"]


def _mirrored(layout: Layout) -> Layout:
    """Turn a layout upside down."""
    places = {
        node: msgspec.structs.replace(place, top=-place.bottom, bottom=-place.top)
        for node, place in layout.places.items()
    }
    runs = [
        msgspec.structs.replace(
            run,
            points=tuple(Point(x, -y) for x, y in run.points),
            label=Point(run.label.x, -run.label.y) if run.label else None,
        )
        for run in layout.runs
    ]
    return Layout(places=places, runs=tuple(runs))


def _from_the_top(layout: Layout) -> Layout:
    """Let a line that goes up and over everything leave its box at the top, as in 004, not at the side."""
    runs = list(layout.runs)
    for number, run in enumerate(runs):
        place = layout.places[run.link.edge.source]
        if len(run.points) < 4 or not _goes_over(run, place) or _is_taken(place, number, runs, layout):
            continue
        port = place.left + CHARACTER
        runs[number] = msgspec.structs.replace(
            run, points=(Point(port, place.top), Point(port, run.points[2].y), *run.points[3:])
        )
    return Layout(places=layout.places, runs=tuple(runs))


def _goes_over(run: Run, place: Place) -> bool:
    """Say whether a line leaves to the right, and turns up and to the right above its box."""
    start, corner, turn, lane = run.points[:4]
    return start.y == corner.y and corner.x == turn.x > place.right and turn.y == lane.y < place.top and lane.x > turn.x


def _is_taken(place: Place, number: int, runs: Sequence[Run], layout: Layout) -> bool:
    """Say whether something stands above a box, or in the way of a lane that is made longer to reach above it."""
    _, corner, lane, *_ = runs[number].points
    above = (
        other.center == place.center and lane.y < other.bottom and other.top < place.top
        for other in layout.places.values()
    )
    others = (pairwise(run.points) for other, run in enumerate(runs) if other != number)
    met = (
        min(a.x, b.x) <= corner.x and max(a.x, b.x) >= place.left and lane.y - _PORT_GAP <= min(a.y, b.y) <= place.top
        for ends in others
        for a, b in ends
        if max(a.x, b.x) >= place.left
    )
    return any(above) or any(met)
