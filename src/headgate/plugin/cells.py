"""A layout on the cells of a terminal: everything keeps its order, and stands as close as it can.

First the columns, then the lines. Each box has two unknowns in each direction, each piece of a line one; what would meet
if it were moved keeps its order and a gap, and the smallest solution is the longest path (one-dimensional compaction).
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import combinations, pairwise
from operator import itemgetter
from typing import Literal

import msgspec

from headgate.plugin.edges import Peer
from headgate.plugin.errors import TooEntangled
from headgate.plugin.graph import Link
from headgate.plugin.layout import Layout, Place, Point, Run

_NEAR = 0.5  # pixels: less is the same place
_BESIDE, _APART = 4, 2  # cells between a box and an upright piece, between two of those
_COLUMN_GAP = 6  # cells between columns of boxes: room for ` --> `
_ROOM = 4  # cells at each end of a label: a blank, and a bit of line
_HEAD_ROOM = 3  # more of them beside a box: a head

Unknown = Hashable
Gap = tuple[Unknown, Unknown, int]
"""The second is at least so much greater than the first."""


class Box(msgspec.Struct, frozen=True, kw_only=True):
    """A box in cells: its border's columns and lines."""

    text: str
    left: int
    right: int
    top: int
    bottom: int


class Wire(msgspec.Struct, frozen=True, kw_only=True):
    """A line in cells, from border to border. Its label stands on a line, between two columns."""

    link: Link
    points: tuple[tuple[int, int], ...]
    label: str = ""
    label_line: int = 0
    label_span: tuple[int, int] = (0, 0)


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """What a terminal shows."""

    boxes: Mapping[Peer, Box]
    wires: tuple[Wire, ...]


class _Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A straight piece of a run: `number` counts from the source; `at` is where, `low` to `high` how far, in pixels.

    `ports` are the boxes that it ends at, `ends` the unknowns at `low` and `high`: a box's border, or the next piece.
    """

    run: int
    number: int
    level: bool
    at: float
    low: float
    high: float
    ports: tuple[Peer, ...]
    ends: tuple[Unknown, Unknown]

    @property
    def key(self) -> Unknown:
        return self.run, self.number


class _Span(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a level piece that carries a label: between two unknowns, `room` cells apart."""

    piece: Unknown
    start: Unknown
    end: Unknown
    room: int


def _pieces(layout: Layout, number: int, run: Run) -> Iterator[_Piece]:
    """Cut a run into straight pieces."""
    source, target = (layout.places[node] for node in (run.link.edge.source, run.link.edge.target))
    last = len(run.points) - 2
    for part, (a, b) in enumerate(pairwise(run.points)):
        level = abs(a.y - b.y) < abs(a.x - b.x)
        at_a = (_side(source, a), _layer(source)) if part == 0 else (number, part - 1)
        at_b = (_side(target, b), _layer(target)) if part == last else (number, part + 1)
        ends = (a.x if level else a.y, at_a), (b.x if level else b.y, at_b)
        (low, at_low), (high, at_high) = sorted(ends, key=itemgetter(0))
        yield _Piece(
            run=number,
            number=part,
            level=level,
            at=a.y if level else a.x,
            low=low,
            high=high,
            ports=(source.node,) * (part == 0) + (target.node,) * (part == last),
            ends=(at_low, at_high),
        )


def _side(place: Place, point: Point) -> Literal["left", "right"]:
    """Return the side of a box that a point is nearer to."""
    return "left" if abs(place.left - point.x) < abs(place.right - point.x) else "right"


def in_cells(layout: Layout, labels: Sequence[str] = ()) -> Picture:
    """Bring a layout onto cells. `labels` are texts for its runs, in order. Raises TooEntangled."""
    return _Cells(layout, labels).picture()


class _Cells:
    """The unknowns of one layout, and what holds between them."""

    def __init__(self, layout: Layout, labels: Sequence[str]) -> None:
        self._layout = layout
        self._runs = layout.runs
        self._labels = labels or [""] * len(layout.runs)
        self._pieces = [piece for number, run in enumerate(layout.runs) for piece in _pieces(layout, number, run)]
        self._spans = {number: self._span(number, label) for number, label in enumerate(self._labels) if label}
        self._columns: Mapping[Unknown, int] = {}
        self._lines: Mapping[Unknown, int] = {}

    def picture(self) -> Picture:
        self._columns = solved(self._column_gaps())
        gaps = list(self._line_gaps())
        self._lines = self._gathered(solved(gaps), gaps)
        boxes = {node: self._box(place) for node, place in self._layout.places.items()}
        return Picture(boxes=boxes, wires=tuple(self._wire(number, boxes) for number in range(len(self._runs))))

    # Columns

    def _column_gaps(self) -> Iterator[Gap]:
        upright = [piece for piece in self._pieces if not piece.level]
        layers = sorted({_layer(place): place.center for place in self._layout.places.values()})
        for layer in layers:
            texts = [place.text for place in self._layout.places.values() if _layer(place) == layer]
            yield ("left", layer), ("right", layer), max(map(len, texts)) + 3
        for before, after in pairwise(layers):
            yield ("right", before), ("left", after), _COLUMN_GAP
        for one, other in combinations(upright, 2):
            if _meet(one, other) and (one.at != other.at or one.run != other.run):
                nearer, farther = sorted((one, other), key=_order)
                yield nearer.key, farther.key, _APART
        for piece in upright:
            for place in self._layout.places.values():
                yield from self._beside(piece, place)
        for span in self._spans.values():
            yield span.start, span.end, span.room
        for piece in self._pieces:
            run = self._runs[piece.run]
            if piece.level and len(run.points) == 2:
                yield *piece.ends, _COLUMN_GAP + (run.link.back is not None)

    def _beside(self, piece: _Piece, place: Place) -> Iterator[Gap]:
        """Yield what keeps an upright piece beside a box, or on it where the piece ends at its top or bottom."""
        layer = _layer(place)
        if place.node in piece.ports:
            yield ("left", layer), piece.key, 2
            yield piece.key, ("right", layer), 2
        elif place.top - _NEAR <= piece.high and piece.low <= place.bottom + _NEAR:
            if piece.at < place.center:
                yield piece.key, ("left", layer), _BESIDE
            else:
                yield ("right", layer), piece.key, _BESIDE

    def _span(self, run: int, label: str) -> _Span:
        """Choose where a label stands: on the longest part of a level piece that nothing crosses."""
        parts = [part for piece in self._pieces if piece.run == run and piece.level for part in self._parts(piece)]
        _, _, piece, start, end = max(parts, key=lambda part: part[:2])
        ends = sum(_HEAD_ROOM for key in (start, end) if _is_border(key))
        return _Span(piece=piece, start=start, end=end, room=len(label) + 2 * _ROOM + ends)

    def _parts(self, piece: _Piece) -> Iterator[tuple[float, int, Unknown, Unknown, Unknown]]:
        """Yield length, number and ends of the parts of a level piece between what crosses it."""
        ends = dict(zip((piece.low, piece.high), piece.ends, strict=True))
        crossing = {
            one.at: one.key
            for one in self._pieces
            if not one.level
            and one.run != piece.run
            and piece.low < one.at < piece.high
            and one.low - _NEAR <= piece.at <= one.high + _NEAR
        }
        marks = sorted({**crossing, **ends}.items(), key=lambda mark: mark[0])
        for (low, start), (high, end) in pairwise(marks):
            yield high - low, piece.number, piece.key, start, end

    # Lines

    def _line_gaps(self) -> Iterator[Gap]:
        level = [piece for piece in self._pieces if piece.level]
        reach = {piece.key: sorted(self._columns[end] for end in piece.ends) for piece in level}
        for place in self._layout.places.values():
            yield ("top", place.node), ("bottom", place.node), 2
        for one, other in combinations(self._layout.places.values(), 2):
            if _layer(one) == _layer(other):
                low, high = sorted((one, other), key=lambda place: place.top)
                yield ("bottom", low.node), ("top", high.node), 2
        for a, b in combinations(level, 2):
            shared = min(reach[a.key][1], reach[b.key][1]) - max(reach[a.key][0], reach[b.key][0])
            if shared >= -1 and (a.at != b.at or a.run != b.run):
                low_piece, high_piece = sorted((a, b), key=_order)
                yield low_piece.key, high_piece.key, 1 if shared > 1 or a.run == b.run else 2
        for piece in level:
            for place in self._layout.places.values():
                yield from self._above_or_below(piece, place, reach[piece.key])

    def _above_or_below(self, piece: _Piece, place: Place, reach: Sequence[int]) -> Iterator[Gap]:
        left, right = self._sides(place)
        if place.node in piece.ports:
            yield ("top", place.node), piece.key, 1
            yield piece.key, ("bottom", place.node), 1
        elif reach[0] <= right + 1 and reach[1] >= left - 1:
            if piece.at < (place.top + place.bottom) / 2:  # nearly always above it; at times a hair below its border
                yield piece.key, ("top", place.node), 2
            else:
                yield ("bottom", place.node), piece.key, 2

    def _sides(self, place: Place) -> tuple[int, int]:
        return self._columns["left", _layer(place)], self._columns["right", _layer(place)]

    def _gathered(self, lines: dict[Unknown, int], gaps: Iterable[Gap]) -> dict[Unknown, int]:
        """Move lines that turn beside their box down to those that can't: it need not be higher than they."""
        after: dict[Unknown, list[tuple[Unknown, int]]] = defaultdict(list)
        for low, high, gap in gaps:
            after[low].append((high, gap))
        lowest: dict[Peer, int] = defaultdict(int)
        turning: dict[Unknown, Peer] = {}
        for piece in (one for one in self._pieces if one.level):
            for node in piece.ports:
                lowest[node] = max(lowest[node], lines[piece.key])
            if len(set(piece.ports)) == 1:
                turning[piece.key] = piece.ports[0]
        for key in sorted(turning, key=lambda key: -lines[key]):
            node = turning[key]
            limits = [lines[high] - gap for high, gap in after[key] if high != ("bottom", node)]
            lines[key] = max(lines[key], min([lowest[node], *limits]))
        return lines

    # What comes of it

    def _box(self, place: Place) -> Box:
        """Return a box, not higher than the lines at its sides need."""
        ports = [self._lines[piece.key] for piece in self._pieces if piece.level and place.node in piece.ports]
        top = min(ports) - 1 if ports else self._lines["top", place.node]
        left, right = self._sides(place)
        return Box(
            text=place.text, left=left, right=right, top=top, bottom=max([top + 2, *(port + 1 for port in ports)])
        )

    def _wire(self, number: int, boxes: Mapping[Peer, Box]) -> Wire:
        run, label = self._runs[number], self._labels[number]
        points = tuple(self._points(number, run, boxes))
        span = self._spans.get(number)
        if span is None:
            return Wire(link=run.link, points=points)
        return Wire(
            link=run.link,
            points=points,
            label=label,
            label_line=self._lines[span.piece],
            label_span=(self._inner(span.start, 1), self._inner(span.end, -1)),
        )

    def _inner(self, end: Unknown, toward: int) -> int:
        return self._columns[end] + toward * (_HEAD_ROOM if _is_border(end) else 0)

    def _points(self, number: int, run: Run, boxes: Mapping[Peer, Box]) -> Iterator[tuple[int, int]]:
        """Yield the corners of a run and its ends, which are on the borders of boxes."""
        own = [piece for piece in self._pieces if piece.run == number]
        yield self._port(own[0], run.points[0], run.link.edge.source, boxes)
        for one, other in pairwise(own):
            upright, level = (other, one) if one.level else (one, other)
            yield self._columns[upright.key], self._lines[level.key]
        yield self._port(own[-1], run.points[-1], run.link.edge.target, boxes)

    def _port(self, piece: _Piece, point: Point, node: Peer, boxes: Mapping[Peer, Box]) -> tuple[int, int]:
        box, place = boxes[node], self._layout.places[node]
        if piece.level:
            return box.left if _side(place, point) == "left" else box.right, self._lines[piece.key]
        top = abs(point.y - place.top) < abs(point.y - place.bottom)
        return self._columns[piece.key], box.top if top else box.bottom


def _layer(place: Place) -> int:
    return round(place.center)


def _is_border(key: Unknown) -> bool:
    return isinstance(key, tuple) and key[0] in ("left", "right")


def _order(piece: _Piece) -> tuple[float, int, int]:
    """Say what is before what; of two that are on each other, which must not be, one is made the first."""
    return piece.at, piece.run, piece.number


def _meet(one: _Piece, other: _Piece) -> bool:
    return one.low - _NEAR <= other.high and other.low - _NEAR <= one.high


def solved(gaps: Iterable[Gap]) -> dict[Unknown, int]:
    """Return the smallest whole numbers of 0 or more that keep all gaps. Raises TooEntangled when there are none."""
    before: dict[Unknown, list[tuple[Unknown, int]]] = defaultdict(list)
    order: TopologicalSorter[Unknown] = TopologicalSorter()
    for low, high, gap in gaps:
        before[high].append((low, gap))
        order.add(high, low)
    values: dict[Unknown, int] = {}
    try:
        for key in order.static_order():
            values[key] = max((values[low] + gap for low, gap in before.get(key, ())), default=0)
    except CycleError as error:
        raise TooEntangled("this graph can't be drawn in rows and columns: use -o dot, or -o json") from error
    return values
