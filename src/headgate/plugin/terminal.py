"""Pictures in the terminal: boxes and arrows as 004 draws them (R105), and a list where they don't fit."""

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from operator import itemgetter
from typing import NamedTuple

from headgate.plugin.cells import Box, Picture, Wire, in_cells
from headgate.plugin.colours import Colour, painted
from headgate.plugin.errors import TooEntangled
from headgate.plugin.graph import Edge, Graph, Link, Style, links_of
from headgate.plugin.layout import laid_out

_DRAWABLE = 300  # lines; nobody follows more with the eye, and the time goes with their square
_LEVEL: dict[Style, str] = {"calls": "-", "copies": ".", "split": "="}
_UPRIGHT: dict[Style, str] = {"calls": "|", "copies": ":", "split": "|"}
_REFUSED = "x"
_LEGEND: dict[Style, str] = {"copies": "..> copies of requests", "split": "==> shares of a TrafficSplit"}


class Drawing(NamedTuple):
    """What to print. `needs` is how wide the picture would have been for which a list stands; 0 when it is the picture."""

    text: str
    needs: int = 0


class _Line(NamedTuple):
    """Characters, each with its colour."""

    characters: tuple[tuple[str, Colour], ...]

    @classmethod
    def of(cls, text: str, colour: Colour = "") -> "_Line":
        return cls(tuple((character, colour) for character in text))

    def written(self, *, colours: bool) -> str:
        if not colours:
            return "".join(character for character, _ in self.characters)
        runs = groupby(self.characters, key=itemgetter(1))
        return "".join(painted("".join(character for character, _ in run), colour) for colour, run in runs)


def drawn(graph: Graph, *, wide: bool = False, width: int | None = None, colours: bool = False) -> Drawing:
    """Return a graph as a picture, or as a list when it is wider than `width` characters. `wide` writes numbers on edges."""
    links = list(links_of(graph))
    picture = _picture(graph, links, wide=wide)
    needs = max((len(line.characters) for line in picture), default=0)
    listed = not picture or (width is not None and needs > width)
    body = list(_outline(graph, links, wide=wide)) if listed else picture
    lines = [*(line.written(colours=colours) for line in body), *_notes(graph)]
    return Drawing("".join(line + "\n" for line in lines), needs if listed else 0)


def _picture(graph: Graph, links: Sequence[Link], *, wide: bool) -> list[_Line]:
    """Return the lines of a picture; none when there is nothing to draw, or no way to."""
    if not 0 < len(links) <= _DRAWABLE:
        return []
    try:
        layout = laid_out({node: graph.name(node) for node in graph.connected}, links)
        return _painted(
            in_cells(
                layout, [_label(link, run.points, wide=wide) for link, run in zip(links, layout.runs, strict=True)]
            )
        )
    except TooEntangled:
        return []


def _label(link: Link, points: Sequence[tuple[float, float]], *, wide: bool) -> str:
    """Return what stands on a line. Where it has two heads, each has its own numbers on its side."""
    if not wide:
        edge = link.edge
        return f"{100 * edge.weight[0] / edge.weight[1]:.3g}%" if edge.weight and edge.weight[1] else ""
    if link.back is None:
        return link.edge.label
    ends = (link.back.label, link.edge.label) if points[0][0] <= points[-1][0] else (link.edge.label, link.back.label)
    return " --- ".join(ends)


def _painted(picture: Picture) -> list[_Line]:
    found: dict[tuple[int, int], tuple[str, Colour]] = {}
    for paint in (_level, _upright, _corners, _ends):
        for wire in picture.wires:
            cells: Cells = {}
            paint(cells, wire)
            found |= {place: (character, wire.link.colour) for place, character in cells.items()}
    for box in picture.boxes.values():
        cells = {}
        _box(cells, box)
        found |= {place: (character, "") for place, character in cells.items()}
    if not found:
        return []
    first, last = min(y for _, y in found), max(y for _, y in found)
    rows: list[dict[int, tuple[str, Colour]]] = [{} for _ in range(first, last + 1)]
    for (x, y), cell in found.items():
        rows[y - first][x] = cell
    return [_Line(tuple(row.get(x, (" ", "")) for x in range(max(row, default=-1) + 1))) for row in rows]


Cells = dict[tuple[int, int], str]


def _level(cells: Cells, wire: Wire) -> None:
    for (ax, ay), (bx, by) in pairwise(wire.points):
        if ay == by:
            cells |= {(x, ay): _LEVEL[wire.link.edge.style] for x in range(min(ax, bx), max(ax, bx) + 1)}


def _upright(cells: Cells, wire: Wire) -> None:
    """Paint upright pieces: where one crosses a level piece, that is interrupted (`-|-`); `+` is a corner."""
    for (ax, ay), (bx, by) in pairwise(wire.points):
        if ax == bx:
            cells |= {(ax, y): _UPRIGHT[wire.link.edge.style] for y in range(min(ay, by), max(ay, by) + 1)}


def _corners(cells: Cells, wire: Wire) -> None:
    cells |= dict.fromkeys(wire.points[1:-1], "+")
    room = wire.label_span[1] - wire.label_span[0] - 1
    start = wire.label_span[0] + 1 + (room - len(wire.label) - 2) // 2
    if wire.label:
        cells |= {(start + offset, wire.label_line): letter for offset, letter in enumerate(f" {wire.label} ")}


def _ends(cells: Cells, wire: Wire) -> None:
    """Leave a blank beside the boxes, and paint the heads."""
    _end(cells, wire.points[0], wire.points[1], wire.link.back)
    _end(cells, wire.points[-1], wire.points[-2], wire.link.edge)


def _end(cells: Cells, port: tuple[int, int], inner: tuple[int, int], edge: Edge | None) -> None:
    """Paint one end of a wire; it has a head where an `edge` ends there."""
    (x, y), (inner_x, inner_y) = port, inner
    if y == inner_y:
        away = 1 if inner_x > x else -1
        cells[x + away, y] = " "
        if edge:
            cells[x + 2 * away, y] = _head(edge, "<" if away > 0 else ">")
    elif edge:
        away = 1 if inner_y > y else -1
        cells[x, y + away] = _head(edge, "^" if away > 0 else "v")


def _head(edge: Edge, usual: str) -> str:
    return _REFUSED if edge.numbers.is_refused else usual


def _box(cells: Cells, box: Box) -> None:
    border = "+" + "-" * (box.right - box.left - 1) + "+"
    text = f" {box.text}".ljust(box.right - box.left - 1)
    for y in range(box.top, box.bottom + 1):
        edge = y in (box.top, box.bottom)
        inner = text if y == (box.top + box.bottom) // 2 else " " * len(text)
        line = border if edge else f"|{inner}|"
        cells |= {(box.left + offset, y): character for offset, character in enumerate(line)}


def _outline(graph: Graph, links: Sequence[Link], *, wide: bool) -> Iterator[_Line]:
    """Yield a list of edges, by the node that they begin at."""
    for node in graph.connected:
        lines = list(_arrows(graph, [link for link in links if link.edge.source == node], wide=wide))
        yield from ([_Line.of(graph.name(node)), *lines] if lines else ())


def _arrows(graph: Graph, links: Sequence[Link], *, wide: bool) -> Iterator[_Line]:
    names = [graph.name(link.edge.target) for link in links]
    labels = [_label(link, ((0, 0), (1, 0)), wide=wide) for link in links]
    room = max(map(len, names), default=0)
    for link, name, label in zip(links, names, labels, strict=True):
        shaft = _LEVEL[link.edge.style]
        back = _head(link.back, "<") if link.back else ""
        arrow = f"{back}{shaft}{shaft}{_head(link.edge, '>')}"
        yield _Line.of(f"  {arrow:<4} {name.ljust(room)}  {label}".rstrip(), link.colour)


def _notes(graph: Graph) -> Iterator[str]:
    """Yield what stands beneath: signs that need a word, and what has no traffic."""
    styles = {edge.style for edge in graph.edges}
    signs = [text for style, text in _LEGEND.items() if style in styles]
    if any(edge.numbers.is_refused for edge in graph.edges):
        signs.append(f"--{_REFUSED} refused by access rules")
    if signs:
        yield ""
        yield "   ".join(signs)
    if graph.idle and graph.edges:
        yield ""
        yield f"no traffic: {', '.join(graph.name(node) for node in graph.idle)}"
