"""Place a pixel layout on the character grid of a terminal, as compactly as possible (one-dimensional compaction).

The columns are computed first, then the rows. Each border of a box and each segment of a line is a variable. A constraint
between two variables that could collide keeps their order and a minimum distance. The smallest value of a variable is the
length of the longest path to it in the graph of constraints.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import combinations, pairwise
from operator import itemgetter
from typing import Literal

import msgspec

from headgate.cli.traffic.edges import EdgePeer
from headgate.cli.traffic.errors import NotDrawable
from headgate.cli.traffic.graph import ArrowPair
from headgate.cli.traffic.layout import EdgePath, Layout, NodeBox, Point

_NEAR = 0.5  # Pixels; positions that differ by less are equal.
_BESIDE = 4  # Minimum number of cells between a box and a vertical segment.
_APART = 2  # Minimum number of cells between two vertical segments.
_COLUMN_GAP = 6  # Minimum number of cells between columns of boxes, for ` --> `.
_ROOM = 4  # Cells at each end of a label: a blank, and a part of the line.
_HEAD_ROOM = 3  # Additional cells beside a box, for an arrowhead.

Variable = Hashable
Constraint = tuple[Variable, Variable, int]
"""Two variables and a distance in cells: the second variable is greater than the first by at least the distance."""


class GridBox(msgspec.Struct, frozen=True, kw_only=True):
    """A box on the grid: the columns and rows of its border."""

    text: str
    left: int
    right: int
    top: int
    bottom: int


class GridPath(msgspec.Struct, frozen=True, kw_only=True):
    """A line on the grid, from border to border. The label is centered between the two columns of `label_span`."""

    link: ArrowPair
    points: tuple[tuple[int, int], ...]
    label: str = ""
    label_row: int = 0
    label_span: tuple[int, int] = (0, 0)


class GridLayout(msgspec.Struct, frozen=True, kw_only=True):
    """The boxes and lines of a diagram on the grid."""

    boxes: Mapping[EdgePeer, GridBox]
    paths: tuple[GridPath, ...]


class _Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A straight segment of an edge path. `number` is its index on the path: 0 at the source.

    `at` is its fixed coordinate; it extends from `low` to `high`, in pixels. `ports` has the boxes at which the
    segment ends. `ends` has the variables at `low` and `high`: the border of a box, or the adjacent segment.
    """

    path: int
    number: int
    horizontal: bool
    at: float
    low: float
    high: float
    ports: tuple[EdgePeer, ...]
    ends: tuple[Variable, Variable]

    @property
    def key(self) -> Variable:
        return self.path, self.number


class _Span(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a horizontal segment that has the label: from `start` to `end`, at least `room` cells apart."""

    segment: Variable
    start: Variable
    end: Variable
    room: int


def _segments(layout: Layout, number: int, path: EdgePath) -> Iterator[_Segment]:
    """Yield the straight segments of an edge path."""
    source, target = (layout.node_boxes[node] for node in (path.link.edge.source, path.link.edge.target))
    last = len(path.points) - 2
    for part, (a, b) in enumerate(pairwise(path.points)):
        horizontal = abs(a.y - b.y) < abs(a.x - b.x)
        at_a = (_side(source, a), _layer(source)) if part == 0 else (number, part - 1)
        at_b = (_side(target, b), _layer(target)) if part == last else (number, part + 1)
        ends = (a.x if horizontal else a.y, at_a), (b.x if horizontal else b.y, at_b)
        (low, at_low), (high, at_high) = sorted(ends, key=itemgetter(0))
        yield _Segment(
            path=number,
            number=part,
            horizontal=horizontal,
            at=a.y if horizontal else a.x,
            low=low,
            high=high,
            ports=(source.node,) * (part == 0) + (target.node,) * (part == last),
            ends=(at_low, at_high),
        )


def _side(node_box: NodeBox, point: Point) -> Literal["left", "right"]:
    """Return the side of a box that is nearer to a point."""
    return "left" if abs(node_box.left - point.x) < abs(node_box.right - point.x) else "right"


def layout_on_grid(layout: Layout, labels: Sequence[str] = ()) -> GridLayout:
    """Place a layout on the grid. `labels` has the texts of the edge paths, in order. Raises NotDrawable."""
    return _Compaction(layout, labels).solution()


class _Compaction:
    """The variables of a layout and the constraints between them."""

    def __init__(self, layout: Layout, labels: Sequence[str]) -> None:
        self._layout = layout
        self._paths = layout.paths
        self._labels = labels or [""] * len(layout.paths)
        self._segments = [
            segment for number, path in enumerate(layout.paths) for segment in _segments(layout, number, path)
        ]
        self._spans = {number: self._span(number, label) for number, label in enumerate(self._labels) if label}
        self._columns: Mapping[Variable, int] = {}
        self._rows: Mapping[Variable, int] = {}

    def solution(self) -> GridLayout:
        self._columns = solve(self._column_constraints())
        constraints = list(self._row_constraints())
        self._rows = self._aligned(solve(constraints), constraints)
        boxes = {node: self._box(node_box) for node, node_box in self._layout.node_boxes.items()}
        return GridLayout(boxes=boxes, paths=tuple(self._wire(number, boxes) for number in range(len(self._paths))))

    # Step 1: columns

    def _column_constraints(self) -> Iterator[Constraint]:
        vertical = [segment for segment in self._segments if not segment.horizontal]
        layers = sorted({_layer(node_box): node_box.center for node_box in self._layout.node_boxes.values()})
        for layer in layers:
            texts = [node_box.text for node_box in self._layout.node_boxes.values() if _layer(node_box) == layer]
            yield ("left", layer), ("right", layer), max(map(len, texts)) + 3
        for before, after in pairwise(layers):
            yield ("right", before), ("left", after), _COLUMN_GAP
        for left, right in combinations(vertical, 2):
            if _overlap(left, right) and (left.at != right.at or left.path != right.path):
                nearer, farther = sorted((left, right), key=_order)
                yield nearer.key, farther.key, _APART
        for segment in vertical:
            for node_box in self._layout.node_boxes.values():
                yield from self._beside(segment, node_box)
        for span in self._spans.values():
            yield span.start, span.end, span.room
        for segment in self._segments:
            path = self._paths[segment.path]
            if segment.horizontal and len(path.points) == 2:
                yield *segment.ends, _COLUMN_GAP + (path.link.back is not None)

    def _beside(self, segment: _Segment, node_box: NodeBox) -> Iterator[Constraint]:
        """Yield the constraints that keep a vertical segment beside a box, or within a box where the segment ends."""
        layer = _layer(node_box)
        if node_box.node in segment.ports:
            yield ("left", layer), segment.key, 2
            yield segment.key, ("right", layer), 2
        elif node_box.top - _NEAR <= segment.high and segment.low <= node_box.bottom + _NEAR:
            if segment.at < node_box.center:
                yield segment.key, ("left", layer), _BESIDE
            else:
                yield ("right", layer), segment.key, _BESIDE

    def _span(self, path: int, label: str) -> _Span:
        """Return the place for the label of a path: its longest horizontal part that no other line crosses."""
        parts = [
            part
            for segment in self._segments
            if segment.path == path and segment.horizontal
            for part in self._parts(segment)
        ]
        _, _, segment, start, end = max(parts, key=lambda part: part[:2])
        ends = sum(_HEAD_ROOM for key in (start, end) if _is_border(key))
        return _Span(segment=segment, start=start, end=end, room=len(label) + 2 * _ROOM + ends)

    def _parts(self, segment: _Segment) -> Iterator[tuple[float, int, Variable, Variable, Variable]]:
        """Yield the parts of a horizontal segment between the lines that cross the segment.

        Each part is a tuple: its length in pixels, the segment's number, the segment's variable, and the variables at
        the part's start and end.
        """
        ends = dict(zip((segment.low, segment.high), segment.ends, strict=True))
        crossing = {
            line.at: line.key
            for line in self._segments
            if not line.horizontal
            and line.path != segment.path
            and segment.low < line.at < segment.high
            and line.low - _NEAR <= segment.at <= line.high + _NEAR
        }
        marks = sorted({**crossing, **ends}.items(), key=lambda mark: mark[0])
        for (low, start), (high, end) in pairwise(marks):
            yield high - low, segment.number, segment.key, start, end

    # Step 2: rows

    def _row_constraints(self) -> Iterator[Constraint]:
        horizontal = [segment for segment in self._segments if segment.horizontal]
        reach = {segment.key: sorted(self._columns[end] for end in segment.ends) for segment in horizontal}
        for node_box in self._layout.node_boxes.values():
            yield ("top", node_box.node), ("bottom", node_box.node), 2
        for first, second in combinations(self._layout.node_boxes.values(), 2):
            if _layer(first) == _layer(second):
                low, high = sorted((first, second), key=lambda node_box: node_box.top)
                yield ("bottom", low.node), ("top", high.node), 2
        for a, b in combinations(horizontal, 2):
            shared = min(reach[a.key][1], reach[b.key][1]) - max(reach[a.key][0], reach[b.key][0])
            if shared >= -1 and (a.at != b.at or a.path != b.path):
                low_piece, high_piece = sorted((a, b), key=_order)
                yield low_piece.key, high_piece.key, 1 if shared > 1 or a.path == b.path else 2
        for segment in horizontal:
            for node_box in self._layout.node_boxes.values():
                yield from self._above_or_below(segment, node_box, reach[segment.key])

    def _above_or_below(self, segment: _Segment, node_box: NodeBox, reach: Sequence[int]) -> Iterator[Constraint]:
        left, right = self._sides(node_box)
        if node_box.node in segment.ports:
            yield ("top", node_box.node), segment.key, 1
            yield segment.key, ("bottom", node_box.node), 1
        elif reach[0] <= right + 1 and reach[1] >= left - 1:
            # Rounding can put a segment above the box slightly below the box's upper border, so compare with the middle.
            if segment.at < (node_box.top + node_box.bottom) / 2:
                yield segment.key, ("top", node_box.node), 2
            else:
                yield ("bottom", node_box.node), segment.key, 2

    def _sides(self, node_box: NodeBox) -> tuple[int, int]:
        return self._columns["left", _layer(node_box)], self._columns["right", _layer(node_box)]

    def _aligned(self, rows: dict[Variable, int], constraints: Iterable[Constraint]) -> dict[Variable, int]:
        """Move each line that turns beside its box down to the box's lowest line, so that the box needs fewer rows."""
        after: dict[Variable, list[tuple[Variable, int]]] = defaultdict(list)
        for low, high, distance in constraints:
            after[low].append((high, distance))
        lowest: dict[EdgePeer, int] = defaultdict(int)
        turning: dict[Variable, EdgePeer] = {}
        for segment in (candidate for candidate in self._segments if candidate.horizontal):
            for node in segment.ports:
                lowest[node] = max(lowest[node], rows[segment.key])
            if len(set(segment.ports)) == 1:
                turning[segment.key] = segment.ports[0]
        for key in sorted(turning, key=lambda key: -rows[key]):
            node = turning[key]
            limits = [rows[high] - distance for high, distance in after[key] if high != ("bottom", node)]
            rows[key] = max(rows[key], min([lowest[node], *limits]))
        return rows

    # Step 3: boxes and paths on the grid

    def _box(self, node_box: NodeBox) -> GridBox:
        """Return a box that is only as high as the lines at its sides need."""
        ports = [
            self._rows[segment.key]
            for segment in self._segments
            if segment.horizontal and node_box.node in segment.ports
        ]
        top = min(ports) - 1 if ports else self._rows["top", node_box.node]
        left, right = self._sides(node_box)
        return GridBox(
            text=node_box.text, left=left, right=right, top=top, bottom=max([top + 2, *(port + 1 for port in ports)])
        )

    def _wire(self, number: int, boxes: Mapping[EdgePeer, GridBox]) -> GridPath:
        path, label = self._paths[number], self._labels[number]
        points = tuple(self._points(number, path, boxes))
        span = self._spans.get(number)
        if span is None:
            return GridPath(link=path.link, points=points)
        return GridPath(
            link=path.link,
            points=points,
            label=label,
            label_row=self._rows[span.segment],
            label_span=(self._inner(span.start, 1), self._inner(span.end, -1)),
        )

    def _inner(self, end: Variable, toward: int) -> int:
        return self._columns[end] + toward * (_HEAD_ROOM if _is_border(end) else 0)

    def _points(self, number: int, path: EdgePath, boxes: Mapping[EdgePeer, GridBox]) -> Iterator[tuple[int, int]]:
        """Yield the corners of an edge path and its ends, which are on the borders of boxes."""
        own = [segment for segment in self._segments if segment.path == number]
        yield self._port(own[0], path.points[0], path.link.edge.source, boxes)
        for first, second in pairwise(own):
            vertical, horizontal = (second, first) if first.horizontal else (first, second)
            yield self._columns[vertical.key], self._rows[horizontal.key]
        yield self._port(own[-1], path.points[-1], path.link.edge.target, boxes)

    def _port(
        self, segment: _Segment, point: Point, node: EdgePeer, boxes: Mapping[EdgePeer, GridBox]
    ) -> tuple[int, int]:
        box, node_box = boxes[node], self._layout.node_boxes[node]
        if segment.horizontal:
            return box.left if _side(node_box, point) == "left" else box.right, self._rows[segment.key]
        top = abs(point.y - node_box.top) < abs(point.y - node_box.bottom)
        return self._columns[segment.key], box.top if top else box.bottom


def _layer(node_box: NodeBox) -> int:
    return round(node_box.center)


def _is_border(key: Variable) -> bool:
    return isinstance(key, tuple) and key[0] in ("left", "right")


def _order(segment: _Segment) -> tuple[float, int, int]:
    """Return the sort key of parallel segments; segments with equal coordinates are in the order of their paths."""
    return segment.at, segment.path, segment.number


def _overlap(segment: _Segment, other: _Segment) -> bool:
    return segment.low - _NEAR <= other.high and other.low - _NEAR <= segment.high


def solve(constraints: Iterable[Constraint]) -> dict[Variable, int]:
    """Return the smallest integers, from 0, that satisfy all constraints. Raises NotDrawable for a contradiction."""
    before: dict[Variable, list[tuple[Variable, int]]] = defaultdict(list)
    order: TopologicalSorter[Variable] = TopologicalSorter()
    for low, high, distance in constraints:
        before[high].append((low, distance))
        order.add(high, low)
    values: dict[Variable, int] = {}
    try:
        for key in order.static_order():
            values[key] = max((values[low] + distance for low, distance in before.get(key, ())), default=0)
    except CycleError as error:
        raise NotDrawable("this graph can't be drawn in rows and columns; use -o dot or -o json") from error
    return values
