"""A topology as an SVG document: the same layout, with room for numbers."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import dist
from xml.sax.saxutils import escape

from headgate.plugin.graph import Graph, Link, links_of
from headgate.plugin.kinds import OUTSIDE
from headgate.plugin.layout import LINE, Layout, Place, Point, Run, laid_out

_MARGIN = 24.0
_CORNER = 8.0
_STYLE = (
    "text { font: 14px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; fill: #1f2933 }"
    " .box { fill: #f5f7fa; stroke: #52606d; stroke-width: 1.5 } .outside { stroke-dasharray: 5 3 }"
    " .line { fill: none; stroke: #52606d; stroke-width: 1.5 } .failing { stroke: #c81e1e } .copies { stroke-dasharray: 3 4 }"
    " .split { stroke-width: 3 } .label { font-size: 12px } .paper { fill: #ffffff }"
)


def svg(graph: Graph) -> str:
    """Return a graph as SVG. Arrows with failures are red, those of copies dotted, those of splits thick."""
    links = list(links_of(graph))
    labels = [_texts(link) for link in links]
    nodes = graph.nodes  # those without traffic too: a picture has room
    layout = laid_out({node: graph.name(node) for node in nodes}, links, labels)
    low, high = _bounds(layout)
    width, height = high.x - low.x + 2 * _MARGIN, high.y - low.y + 2 * _MARGIN
    corner = Point(low.x - _MARGIN, low.y - _MARGIN)
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width:.0f}" height="{height:.0f}"'
            f' viewBox="{corner.x:.1f} {corner.y:.1f} {width:.1f} {height:.1f}">'
        ),
        f"<title>{escape(_title(graph))}</title>",
        f"<style>{_STYLE}</style>",
        _marker("head", "#52606d"),
        _marker("failing-head", "#c81e1e"),
        f'<rect class="paper" x="{corner.x:.1f}" y="{corner.y:.1f}" width="{width:.1f}" height="{height:.1f}"/>',
        *(_line(run) for run in layout.runs),
        *(_box(place) for place in layout.places.values()),
        *(text for run, lines in zip(layout.runs, labels, strict=True) for text in _label(run, lines)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _title(graph: Graph) -> str:
    where = f" in {graph.namespace}" if graph.namespace else ""
    return f"Traffic between resources of the kind {graph.kind}{where}"


def _texts(link: Link) -> Sequence[str]:
    """Return a label's lines; where a line has two heads, each way has its own."""
    if link.back is None:
        return (link.edge.label,)
    return (f"→ {link.edge.label}", f"← {link.back.label}")


def _marker(name: str, color: str) -> str:
    return (
        f'<marker id="{name}" viewBox="0 0 10 10" refX="9" refY="5" markerUnits="userSpaceOnUse" markerWidth="11"'
        f' markerHeight="11" orient="auto-start-reverse"><path d="M0 0 10 5 0 10z" fill="{color}"/></marker>'
    )


def _bounds(layout: Layout) -> tuple[Point, Point]:
    points = [point for run in layout.runs for point in run.points]
    for place in layout.places.values():
        points += [Point(place.left, place.top), Point(place.right, place.bottom)]
    for run, lines in ((run, _texts(run.link)) for run in layout.runs if run.label):
        half = max(map(len, lines)) * 4
        if run.label:
            points += [Point(run.label.x - half, run.label.y - LINE), Point(run.label.x + half, run.label.y + LINE)]
    points = points or [Point(0, 0)]
    return Point(min(point.x for point in points), min(point.y for point in points)), Point(
        max(point.x for point in points), max(point.y for point in points)
    )


def _line(run: Run) -> str:
    link = run.link
    failing = any(edge and edge.numbers.failure for edge in (link.edge, link.back))
    head = "url(#failing-head)" if failing else "url(#head)"
    classes = f"line {link.edge.style}{' failing' if failing else ''}"
    back = f' marker-start="{head}"' if link.back else ""
    return f'<path class="{classes}" d="{_path(run.points)}" marker-end="{head}"{back}/>'


def _path(points: Sequence[Point]) -> str:
    """Return a line with round corners."""
    steps = [f"M{points[0].x:.1f} {points[0].y:.1f}"]
    for (before, corner), (_, after) in pairwise(pairwise(points)):
        start, end = _toward(corner, before), _toward(corner, after)
        steps.append(f"L{start.x:.1f} {start.y:.1f}Q{corner.x:.1f} {corner.y:.1f} {end.x:.1f} {end.y:.1f}")
    return "".join([*steps, f"L{points[-1].x:.1f} {points[-1].y:.1f}"])


def _toward(corner: Point, other: Point) -> Point:
    length = dist(corner, other)
    part = min(_CORNER, length / 2) / length if length else 0.0
    return Point(corner.x + (other.x - corner.x) * part, corner.y + (other.y - corner.y) * part)


def _box(place: Place) -> str:
    outside = " outside" if place.node.kind == OUTSIDE else ""
    middle = (place.top + place.bottom) / 2
    return (
        f'<g><rect class="box{outside}" x="{place.left:.1f}" y="{place.top:.1f}" width="{place.right - place.left:.1f}"'
        f' height="{place.bottom - place.top:.1f}" rx="6"/>'
        f'<text x="{place.center:.1f}" y="{middle:.1f}" text-anchor="middle" dominant-baseline="central">'
        f"{escape(place.text)}</text></g>"
    )


def _label(run: Run, lines: Sequence[str]) -> Iterator[str]:
    if run.label is None:
        return
    half, height = max(map(len, lines)) * 3.8, LINE * 0.8 * len(lines)
    top = run.label.y - height / 2
    yield f'<rect class="paper" x="{run.label.x - half:.1f}" y="{top:.1f}" width="{2 * half:.1f}" height="{height:.1f}"/>'
    for number, line in enumerate(lines):
        y = top + (number + 0.5) * height / len(lines)
        yield (
            f'<text class="label" x="{run.label.x:.1f}" y="{y:.1f}" text-anchor="middle" dominant-baseline="central">'
            f"{escape(line)}</text>"
        )
