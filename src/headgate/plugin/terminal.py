"""Pictures in the terminal: boxes and arrows as 004 draws them (R105), and a list where they don't fit."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from headgate.plugin.cells import Box, Picture, Wire, in_cells
from headgate.plugin.errors import TooEntangled
from headgate.plugin.graph import Graph, Link, Style, links_of
from headgate.plugin.layout import laid_out

_DRAWABLE = 300  # lines; nobody follows more with the eye, and the time goes with their square
_LEVEL: dict[Style, str] = {"calls": "-", "copies": ".", "split": "="}
_UPRIGHT: dict[Style, str] = {"calls": "|", "copies": ":", "split": "|"}
_LEGEND: dict[Style, str] = {"copies": "..> copies of requests", "split": "==> shares of a TrafficSplit"}


class Drawing(NamedTuple):
    """What to print. `needs` is how wide the picture would have been for which a list stands; 0 when it is the picture."""

    text: str
    needs: int = 0


def drawn(graph: Graph, *, wide: bool = False, width: int | None = None) -> Drawing:
    """Return a graph as a picture, or as a list when it is wider than `width` characters. `wide` writes numbers on edges."""
    links = list(links_of(graph))
    picture = _picture(graph, links, wide=wide)
    needs = max(map(len, picture), default=0)
    listed = not picture or (width is not None and needs > width)
    body = list(_outline(graph, links, wide=wide)) if listed else picture
    return Drawing("".join(line + "\n" for line in (*body, *_notes(graph))), needs if listed else 0)


def _picture(graph: Graph, links: Sequence[Link], *, wide: bool) -> list[str]:
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


def _painted(picture: Picture) -> list[str]:
    cells: dict[tuple[int, int], str] = {}
    for paint in (_level, _upright, _corners, _ends):
        for wire in picture.wires:
            paint(cells, wire)
    for box in picture.boxes.values():
        _box(cells, box)
    if not cells:
        return []
    first, last = min(y for _, y in cells), max(y for _, y in cells)
    rows: list[dict[int, str]] = [{} for _ in range(first, last + 1)]
    for (x, y), character in cells.items():
        rows[y - first][x] = character
    return ["".join(row.get(x, " ") for x in range(max(row, default=-1) + 1)) for row in rows]


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
    _end(cells, wire.points[0], wire.points[1], head=wire.link.back is not None)
    _end(cells, wire.points[-1], wire.points[-2], head=True)


def _end(cells: Cells, port: tuple[int, int], inner: tuple[int, int], *, head: bool) -> None:
    (x, y), (inner_x, inner_y) = port, inner
    if y == inner_y:
        away = 1 if inner_x > x else -1
        cells[x + away, y] = " "
        if head:
            cells[x + 2 * away, y] = "<" if away > 0 else ">"
    elif head:
        away = 1 if inner_y > y else -1
        cells[x, y + away] = "^" if away > 0 else "v"


def _box(cells: Cells, box: Box) -> None:
    border = "+" + "-" * (box.right - box.left - 1) + "+"
    text = f" {box.text}".ljust(box.right - box.left - 1)
    for y in range(box.top, box.bottom + 1):
        edge = y in (box.top, box.bottom)
        inner = text if y == (box.top + box.bottom) // 2 else " " * len(text)
        line = border if edge else f"|{inner}|"
        cells |= {(box.left + offset, y): character for offset, character in enumerate(line)}


def _outline(graph: Graph, links: Sequence[Link], *, wide: bool) -> Iterator[str]:
    """Yield a list of edges, by the node that they begin at."""
    for node in graph.connected:
        lines = list(_arrows(graph, [link for link in links if link.edge.source == node], wide=wide))
        yield from ([graph.name(node), *lines] if lines else ())


def _arrows(graph: Graph, links: Sequence[Link], *, wide: bool) -> Iterator[str]:
    names = [graph.name(link.edge.target) for link in links]
    labels = [_label(link, ((0, 0), (1, 0)), wide=wide) for link in links]
    room = max(map(len, names), default=0)
    for link, name, label in zip(links, names, labels, strict=True):
        shaft = _LEVEL[link.edge.style]
        arrow = f"<{shaft}{shaft}>" if link.back else f"{shaft}{shaft}>"
        yield f"  {arrow:<4} {name.ljust(room)}  {label}".rstrip()


def _notes(graph: Graph) -> Iterator[str]:
    """Yield what stands beneath: signs that need a word, and what has no traffic."""
    styles = {edge.style for edge in graph.edges}
    signs = [text for style, text in _LEGEND.items() if style in styles]
    if signs:
        yield ""
        yield "   ".join(signs)
    if graph.idle and graph.edges:
        yield ""
        yield f"no traffic: {', '.join(graph.name(node) for node in graph.idle)}"
