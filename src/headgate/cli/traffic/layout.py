"""Compute a layered layout of boxes and lines, from left to right, with graphlay."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import graphlay
import msgspec

from headgate.cli.traffic.edges import EdgePeer
from headgate.cli.traffic.graph import ArrowPair

_LINE, _CHARACTER, _PADDING = 20.0, 8.5, 24.0
_PORT_GAP = 18.0
_ASKEW = 2.0
_OPTIONS: Mapping[str, Any] = {
    "direction": "leftright",
    "routing": {"port_sides": "long_edges_any", "bundle_parallel": False},
    "spacing": {"isolated_gap": 30.0},
}


class Point(NamedTuple):
    """A point in pixels; y grows downwards."""

    x: float
    y: float


class NodeBox(msgspec.Struct, frozen=True, kw_only=True):
    """The box of a node, in pixels. All boxes of a layer have the same `center`."""

    node: EdgePeer
    text: str
    left: float
    right: float
    top: float
    bottom: float

    @property
    def center(self) -> float:
        """Return the horizontal middle."""
        return (self.left + self.right) / 2


class EdgePath(msgspec.Struct, frozen=True, kw_only=True):
    """The line of a link from box to box: alternating horizontal and vertical segments."""

    link: ArrowPair
    points: tuple[Point, ...]

    @property
    def rightward(self) -> bool:
        """Return whether the line ends right of its start, or at the same x."""
        return self.points[0].x <= self.points[-1].x


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """The boxes by node, and the lines between them."""

    node_boxes: Mapping[EdgePeer, NodeBox]
    paths: tuple[EdgePath, ...]


def layout_graph(names: Mapping[EdgePeer, str], links: Sequence[ArrowPair]) -> Layout:
    """Lay out a graph. `names` has the texts of the boxes; the paths are in the order of the links."""
    drawing = graphlay.layout(_graph(names, links), options=_OPTIONS)
    node_boxes = {node: _place(node, names[node], placed) for node, placed in zip(names, drawing.nodes, strict=True)}
    paths = [_path(link, edge, node_boxes) for link, edge in zip(links, drawing.edges, strict=True)]
    layout = Layout(node_boxes=node_boxes, paths=tuple(paths))
    return _start_at_top(_mirrored(layout) if _runs_below(drawing.edges) else layout)


def _graph(names: Mapping[EdgePeer, str], links: Sequence[ArrowPair]) -> graphlay.Graph:
    graph = graphlay.Graph()
    width = (
        max(map(len, names.values()), default=0) * _CHARACTER + _PADDING
    )  # the same width for all boxes, so that a layer is a column
    out = Counter(link.edge.source for link in links)
    into = Counter(link.edge.target for link in links)
    for node in names:
        ports = max(out[node], into[node], 1)
        graph.node(node, width=width, height=2 * _LINE + (ports - 1) * _PORT_GAP)
    for link in links:
        graph.edge(link.edge.source, link.edge.target)
    return graph


def _place(node: EdgePeer, text: str, placed: Mapping[str, Any]) -> NodeBox:
    center, size = placed["center"], placed["size"]
    return NodeBox(
        node=node,
        text=text,
        left=center["x"] - size["width"] / 2,
        right=center["x"] + size["width"] / 2,
        top=center["y"] - size["height"] / 2,
        bottom=center["y"] + size["height"] / 2,
    )


def _path(link: ArrowPair, edge: Mapping[str, Any], node_boxes: Mapping[EdgePeer, NodeBox]) -> EdgePath:
    points = list(_corners(list(_orthogonal([Point(point["x"], point["y"]) for point in edge["points"]]))))
    points[0] = _attach(points[0], points[1], node_boxes[link.edge.source])
    points[-1] = _attach(points[-1], points[-2], node_boxes[link.edge.target])
    return EdgePath(link=link, points=tuple(points))


def _attach(end: Point, before: Point, node_box: NodeBox) -> Point:
    """Return the end of a line, moved to the border where the line meets its box."""
    if end.x == before.x:
        return Point(
            end.x, node_box.bottom if before.y > node_box.bottom else node_box.top if before.y < node_box.top else end.y
        )
    return Point(
        node_box.right if before.x > node_box.right else node_box.left if before.x < node_box.left else end.x, end.y
    )


def _orthogonal(points: Sequence[Point]) -> Iterator[Point]:
    """Yield the points of an orthogonal line: a slight slant is straightened, and a greater one gets a corner."""
    before = points[0]
    yield before
    shift = Point(0.0, 0.0)
    for x, y in points[1:]:
        point = Point(x + shift.x, y + shift.y)
        wide, high = point.x - before.x, point.y - before.y
        if 0 < abs(high) < _ASKEW <= abs(wide):
            shift, point = Point(shift.x, shift.y - high), Point(point.x, before.y)
        elif 0 < abs(wide) < _ASKEW <= abs(high):
            shift, point = Point(shift.x - wide, shift.y), Point(before.x, point.y)
        elif wide and high:
            yield Point(point.x, before.y)
        yield point
        before = point


def _corners(points: Sequence[Point]) -> Iterator[Point]:
    """Yield the ends and corners of a line, without repeated points and points on a straight segment."""
    for number, point in enumerate(points):
        if number not in (0, len(points) - 1):
            before, after = points[number - 1], points[number + 1]
            if point == before or before.x == point.x == after.x or before.y == point.y == after.y:
                continue
        yield point


def _runs_below(edges: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether more lines run below the boxes than above the boxes; 004 draws such lines above."""
    sides = Counter(edge[port]["side"] for edge in edges for port in ("source_port", "target_port"))
    return sides["bottom"] > sides["top"]


def _mirrored(layout: Layout) -> Layout:
    """Return the layout, mirrored vertically."""
    node_boxes = {
        node: msgspec.structs.replace(node_box, top=-node_box.bottom, bottom=-node_box.top)
        for node, node_box in layout.node_boxes.items()
    }
    paths = [msgspec.structs.replace(path, points=tuple(Point(x, -y) for x, y in path.points)) for path in layout.paths]
    return Layout(node_boxes=node_boxes, paths=tuple(paths))


def _start_at_top(layout: Layout) -> Layout:
    """Let each line that ends at the top of its target start at the top of its source, as in 004.

    A line stays unchanged if another box or line is in the way.
    """
    paths = list(layout.paths)
    for number, path in enumerate(paths):
        node_box = layout.node_boxes[path.link.edge.source]
        if len(path.points) == 5 and _ends_at_top(path, node_box) and not _is_blocked(node_box, number, paths, layout):
            port, lane = node_box.left + _CHARACTER, path.points[2].y
            points = (Point(port, node_box.top), Point(port, lane), *path.points[3:])
            paths[number] = msgspec.structs.replace(path, points=points)
    return Layout(node_boxes=layout.node_boxes, paths=tuple(paths))


def _ends_at_top(path: EdgePath, node_box: NodeBox) -> bool:
    """Return whether a line starts to the right, goes up beside its box, then right, and down to its target."""
    start, corner, turn, lane, end = path.points
    right_and_up = start.y == corner.y and corner.x == turn.x > node_box.right and turn.y < node_box.top
    return right_and_up and turn.y == lane.y and lane.x == end.x > turn.x and end.y > lane.y


def _is_blocked(node_box: NodeBox, number: int, paths: Sequence[EdgePath], layout: Layout) -> bool:
    """Return whether another box or line prevents `_start_at_top` for the line `number`, which starts at a box.

    The checked region is between the top of the box and the line's horizontal segment above the box.
    """
    _, corner, lane, *_ = paths[number].points
    above = (
        other.center == node_box.center and lane.y < other.bottom and other.top < node_box.top
        for other in layout.node_boxes.values()
    )
    other_lines = (pairwise(path.points) for other, path in enumerate(paths) if other != number)
    met = (
        min(a.x, b.x) <= corner.x
        and max(a.x, b.x) >= node_box.left
        and max(a.y, b.y) >= lane.y - _PORT_GAP
        and min(a.y, b.y) <= node_box.top
        for ends in other_lines
        for a, b in ends
    )
    return any(above) or any(met)
