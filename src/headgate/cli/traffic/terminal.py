"""Draw a topology in the terminal: boxes and arrows as in 004 (R105), or a list when they don't fit."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from operator import itemgetter
from typing import NamedTuple

from headgate.cli.traffic.ascii_layout import GridBox, GridLayout, GridPath, layout_on_grid
from headgate.cli.traffic.colors import Color, paint
from headgate.cli.traffic.errors import NotDrawable
from headgate.cli.traffic.graph import Arrow, ArrowPair, Graph, Style, build_links
from headgate.cli.traffic.kinds import SERVICES
from headgate.cli.traffic.layout import layout_graph

_DRAWABLE = 300  # maximum lines of a diagram: more are unreadable, and the layout time grows with their square
_HORIZONTAL: dict[Style, str] = {"calls": "-", "copies": ".", "split": "="}
_VERTICAL: dict[Style, str] = {"calls": "|", "copies": ":", "split": "|"}
_DENIED = "x"
_PARTLY_DENIED = "!"
_LEGEND: dict[Style, str] = {"copies": "..> copies of requests", "split": "==> shares of a TrafficSplit"}


class Drawing(NamedTuple):
    """The text to print: a diagram, or a list. If the diagram is too wide, `needs` is its width in columns, else 0."""

    text: str
    needs: int = 0


_Line = Sequence[tuple[str, Color]]
"""Characters, each with its color."""
_Position = tuple[int, int]
"""Column and row of a character."""


def _plain(text: str, color: Color = "") -> _Line:
    return [(character, color) for character in text]


def _to_text(line: _Line, *, colors: bool) -> str:
    if not colors:
        return "".join(character for character, _ in line)
    runs = groupby(line, key=itemgetter(1))
    return "".join(paint("".join(character for character, _ in run), color) for color, run in runs)


def draw(graph: Graph, *, wide: bool = False, width: int | None = None, colors: bool = False) -> Drawing:
    """Return a graph as a diagram, or as a list when it is wider than `width` columns. `wide` labels all edges."""
    links = list(build_links(graph))
    diagram = _diagram(graph, links, wide=wide)
    needs = max(map(len, diagram), default=0)
    listed = not diagram or (width is not None and needs > width)
    body = list(_outline(graph, links, wide=wide)) if listed else diagram
    lines = [*(_to_text(line, colors=colors) for line in body), *_notes(graph)]
    return Drawing("".join(line + "\n" for line in lines), needs if listed else 0)


def _diagram(graph: Graph, links: Sequence[ArrowPair], *, wide: bool) -> list[_Line]:
    """Return the rows of a diagram; an empty list if the graph has no edges, too many edges, or is not drawable."""
    if not 0 < len(links) <= _DRAWABLE:
        return []
    try:
        layout = layout_graph({node: graph.name(node) for node in graph.connected}, links)
        return _characters(
            layout_on_grid(layout, [_label(path.link, wide=wide, rightward=path.rightward) for path in layout.paths])
        )
    except NotDrawable:
        return []


def _label(link: ArrowPair, *, wide: bool, rightward: bool = True) -> str:
    return link.label(" --- ", rightward=rightward) if wide else link.edge.share


def _characters(grid: GridLayout) -> list[_Line]:
    characters: dict[_Position, tuple[str, Color]] = {}
    for draw_part in (_horizontal, _vertical, _corners, _ends):
        for path in grid.paths:
            characters |= {position: (character, path.link.color) for position, character in draw_part(path)}
    for box in grid.boxes.values():
        characters |= {position: (character, "") for position, character in _box(box)}
    first = min((y for _, y in characters), default=0)
    rows: dict[int, dict[int, tuple[str, Color]]] = defaultdict(dict)
    for (x, y), cell in characters.items():
        rows[y - first][x] = cell
    lines = (rows[y] for y in range(max(rows, default=-1) + 1))
    return [[row.get(x, (" ", "")) for x in range(max(row, default=-1) + 1)] for row in lines]


_Characters = Iterator[tuple[_Position, str]]


def _horizontal(path: GridPath) -> _Characters:
    for (ax, ay), (bx, by) in pairwise(path.points):
        if ay == by:
            yield from (((x, ay), _HORIZONTAL[path.link.edge.style]) for x in range(min(ax, bx), max(ax, bx) + 1))


def _vertical(path: GridPath) -> _Characters:
    """Yield the characters of the vertical segments, which interrupt the horizontal segments that they cross: `-|-`."""
    for (ax, ay), (bx, by) in pairwise(path.points):
        if ax == bx:
            yield from (((ax, y), _VERTICAL[path.link.edge.style]) for y in range(min(ay, by), max(ay, by) + 1))


def _corners(path: GridPath) -> _Characters:
    yield from ((point, "+") for point in path.points[1:-1])
    if path.label:
        first, last = path.label_span
        start = first + 1 + (last - first - len(path.label) - 3) // 2
        yield from (((x, path.label_row), letter) for x, letter in enumerate(f" {path.label} ", start))


def _ends(path: GridPath) -> _Characters:
    """Yield the characters at both ends of a line: a blank beside the box, and an arrowhead."""
    yield from _end(path.points[0], path.points[1], path.link.back)
    yield from _end(path.points[-1], path.points[-2], path.link.edge)


def _end(port: _Position, inner: _Position, edge: Arrow | None) -> _Characters:
    """Yield the characters at the end `port` of a line: a blank, and an arrowhead if an `edge` ends there."""
    (x, y), (inner_x, inner_y) = port, inner
    if y == inner_y:
        away = 1 if inner_x > x else -1
        yield (x + away, y), " "
        if edge:
            yield (x + 2 * away, y), _head(edge, "<" if away > 0 else ">")
    elif edge:
        away = 1 if inner_y > y else -1
        yield (x, y + away), _head(edge, "^" if away > 0 else "v")


def _head(edge: Arrow, usual: str) -> str:
    """Return the arrowhead: one character, because a line that ends above or below a box has room for no other."""
    if edge.metrics.is_denied:
        return _DENIED
    return _PARTLY_DENIED if edge.metrics.is_partly_denied else usual


def _box(box: GridBox) -> _Characters:
    border = "+" + "-" * (box.right - box.left - 1) + "+"
    text = f" {box.text}".ljust(box.right - box.left - 1)
    for y in range(box.top, box.bottom + 1):
        edge = y in (box.top, box.bottom)
        inner = text if y == (box.top + box.bottom) // 2 else " " * len(text)
        line = border if edge else f"|{inner}|"
        yield from (((x, y), character) for x, character in enumerate(line, box.left))


def _outline(graph: Graph, links: Sequence[ArrowPair], *, wide: bool) -> Iterator[_Line]:
    """Yield the list of edges, grouped by their first node."""
    for node in graph.connected:
        lines = list(_arrows(graph, [link for link in links if link.edge.source == node], wide=wide))
        yield from ([_plain(graph.name(node)), *lines] if lines else ())


def _arrows(graph: Graph, links: Sequence[ArrowPair], *, wide: bool) -> Iterator[_Line]:
    names = [graph.name(link.edge.target) for link in links]
    room = max(map(len, names), default=0)
    for link, name in zip(links, names, strict=True):
        shaft = _HORIZONTAL[link.edge.style]
        back = _head(link.back, "<") if link.back else ""
        arrow = f"{back}{shaft}{shaft}{_head(link.edge, '>')}"
        yield _plain(f"  {arrow:<4} {name.ljust(room)}  {_label(link, wide=wide)}".rstrip(), link.color)


def _notes(graph: Graph) -> Iterator[str]:
    """Yield the lines below the diagram: the legend of its arrows, and the nodes without traffic."""
    styles = {edge.style for edge in graph.edges}
    signs = [text for style, text in _LEGEND.items() if style in styles]
    if any(edge.metrics.is_denied for edge in graph.edges):
        signs.append(f"--{_DENIED} all denied by access rules")
    if any(edge.metrics.is_partly_denied for edge in graph.edges):
        signs.append(f"--{_PARTLY_DENIED} some denied by access rules")
    if graph.kind != SERVICES.kind and any(node.kind == SERVICES.kind for node in graph.connected):
        signs.append("service/NAME calls that reached no pod")
    if signs:
        yield ""
        yield "   ".join(signs)
    if graph.idle and graph.edges:
        yield ""
        yield f"no traffic: {', '.join(graph.name(node) for node in graph.idle)}"
