"""Render a topology as an SVG document, with the layout of the terminal diagram."""

from collections.abc import Sequence
from itertools import pairwise
from math import dist
from xml.sax.saxutils import escape

from headgate.cli.traffic.ascii_layout import GridBox, GridLayout, GridPath, layout_on_grid
from headgate.cli.traffic.edges import EdgePeer
from headgate.cli.traffic.graph import Graph, build_links
from headgate.cli.traffic.kinds import OUTSIDE
from headgate.cli.traffic.layout import Point, layout_graph

_CELL = Point(8.5, 18.0)  # size of a character in pixels
_LABEL_SCALE = 0.86
_MARGIN = 24.0
_CORNER = 6.0
_STYLE = (
    "text { font: 14px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; fill: #1f2933 }"
    " .box { fill: #f5f7fa; stroke: #52606d; stroke-width: 1.5 } .outside { stroke-dasharray: 5 3 }"
    " .line { fill: none; stroke: #52606d; stroke-width: 1.5 } .failing { stroke: #c81e1e } .denied { stroke: #b7791f } .copies { stroke-dasharray: 3 4 }"
    " .split { stroke-width: 3 } .label { font-size: 12px } .paper { fill: #ffffff }"
)


def svg(graph: Graph) -> str:
    """Return a graph as SVG. Raises NotDrawable.

    Arrows with failures are red, arrows with denials yellow. Arrows of mirrored requests are dotted, and those of a split's shares thick.
    """
    links = list(build_links(graph))
    names = {node: graph.name(node) for node in graph.nodes}  # including nodes without an edge
    layout = layout_graph(names, links)
    grid = layout_on_grid(layout, [path.link.label(" ↔ ", rightward=path.rightward) for path in layout.paths])
    low, high = _bounds(grid)
    width, height = high.x - low.x + 2 * _MARGIN, high.y - low.y + 2 * _MARGIN
    box = f"{low.x - _MARGIN:g} {low.y - _MARGIN:g} {width:g} {height:g}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width:g}" height="{height:g}" viewBox="{box}">',
        f"<title>{escape(_title(graph))}</title>",
        f"<style>{_STYLE}</style>",
        _marker("head", "#52606d"),
        _marker("failing-head", "#c81e1e"),
        _marker("denied-head", "#b7791f"),
        f'<rect class="paper" x="{low.x - _MARGIN:g}" y="{low.y - _MARGIN:g}" width="{width:g}" height="{height:g}"/>',
        *map(_line, grid.paths),
        *(_box(node, box) for node, box in grid.boxes.items()),
        *map(_text, (path for path in grid.paths if path.label)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _title(graph: Graph) -> str:
    where = f" in {graph.namespace}" if graph.namespace else ""
    return f"Traffic between resources of the kind {graph.kind}{where}"


def _marker(name: str, color: str) -> str:
    return (
        f'<marker id="{name}" viewBox="0 0 10 10" refX="9" refY="5" markerUnits="userSpaceOnUse" markerWidth="11"'
        f' markerHeight="11" orient="auto-start-reverse"><path d="M0 0 10 5 0 10z" fill="{color}"/></marker>'
    )


def _at(column: float, line: float) -> Point:
    return Point(column * _CELL.x, line * _CELL.y)


def _bounds(grid: GridLayout) -> tuple[Point, Point]:
    cells = [point for path in grid.paths for point in path.points]
    for box in grid.boxes.values():
        cells += [(box.left, box.top), (box.right, box.bottom)]
    columns, lines = [x for x, _ in cells] or [0], [y for _, y in cells] or [0]
    return _at(min(columns), min(lines)), _at(max(columns), max(lines))


def _line(path: GridPath) -> str:
    link = path.link
    head = f"url(#{link.color}-head)" if link.color else "url(#head)"
    classes = f"line {link.edge.style} {link.color}".rstrip()
    back = f' marker-start="{head}"' if link.back else ""
    return f'<path class="{classes}" d="{_path([_at(*point) for point in path.points])}" marker-end="{head}"{back}/>'


def _path(points: Sequence[Point]) -> str:
    """Return the SVG path data of a line, with rounded corners."""
    steps = [f"M{points[0].x:.1f} {points[0].y:.1f}"]
    for (before, corner), (_, after) in pairwise(pairwise(points)):
        start, end = _toward(corner, before), _toward(corner, after)
        steps.append(f"L{start.x:.1f} {start.y:.1f}Q{corner.x:.1f} {corner.y:.1f} {end.x:.1f} {end.y:.1f}")
    return "".join([*steps, f"L{points[-1].x:.1f} {points[-1].y:.1f}"])


def _toward(corner: Point, other: Point) -> Point:
    length = dist(corner, other)
    part = min(_CORNER, length / 2) / length if length else 0.0
    return Point(corner.x + (other.x - corner.x) * part, corner.y + (other.y - corner.y) * part)


def _box(node: EdgePeer, box: GridBox) -> str:
    low, high = _at(box.left, box.top), _at(box.right, box.bottom)
    outside = " outside" if node.kind == OUTSIDE else ""
    return (
        f'<rect class="box{outside}" x="{low.x:g}" y="{low.y:g}" width="{high.x - low.x:g}"'
        f' height="{high.y - low.y:g}" rx="6"/>'
    ) + _centered((low.x + high.x) / 2, (low.y + high.y) / 2, box.text)


def _text(path: GridPath) -> str:
    middle = _at(sum(path.label_span) / 2, path.label_row)
    half = (len(path.label) / 2 + 1) * _CELL.x * _LABEL_SCALE
    paper = f'<rect class="paper" x="{middle.x - half:g}" y="{middle.y - 8:g}" width="{2 * half:g}" height="16"/>'
    return paper + _centered(middle.x, middle.y, path.label, ' class="label"')


def _centered(x: float, y: float, text: str, attributes: str = "") -> str:
    return (
        f'<text{attributes} x="{x:g}" y="{y:g}" text-anchor="middle" dominant-baseline="central">{escape(text)}</text>'
    )
