"""Render a topology as Graphviz DOT (R106) or Mermaid."""

from collections.abc import Iterator, Mapping

from headgate.cli.traffic.edges import EdgePeer
from headgate.cli.traffic.graph import Arrow, Graph
from headgate.cli.traffic.kinds import OUTSIDE

_DOT_STYLES = {"calls": "", "copies": ", style=dotted", "split": ", penwidth=2"}
_DOT_COLORS = {"": "", "failing": ", color=red", "denied": ", color=orange"}
_MERMAID_ARROWS = {"calls": "-->", "copies": "-.->", "split": "==>"}


def dot(graph: Graph) -> str:
    """Return a graph in DOT. All names are quoted, so they may have any character."""
    return "\n".join(["digraph traffic {", "  rankdir=LR;", "  node [shape=box];", *_dot(graph), "}", ""])


def _dot(graph: Graph) -> Iterator[str]:
    for node in graph.nodes:
        style = " [style=dashed]" if node.kind == OUTSIDE else ""
        yield f"  {_quoted(graph.name(node))}{style};"
    for edge in graph.edges:
        ends = f"{_quoted(graph.name(edge.source))} -> {_quoted(graph.name(edge.target))}"
        style = _DOT_STYLES[edge.style] + _DOT_COLORS[edge.metrics.color] + ", arrowhead=tee" * edge.metrics.is_denied
        yield f"  {ends} [label={_quoted(edge.label)}{style}];"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def mermaid(graph: Graph) -> str:
    """Return a graph as a Mermaid flowchart."""
    ids = {node: f"n{number}" for number, node in enumerate(graph.nodes)}
    return "\n".join(["flowchart LR", *_mermaid(graph, ids), ""])


def _mermaid(graph: Graph, ids: Mapping[EdgePeer, str]) -> Iterator[str]:
    for node, name in ids.items():
        left, right = ("([", "])") if node.kind == OUTSIDE else ("[", "]")
        yield f'  {name}{left}"{_entities(graph.name(node))}"{right}'
    for edge in graph.edges:
        yield f"  {ids[edge.source]} {_arrow(edge)} {ids[edge.target]}"


def _arrow(edge: Arrow) -> str:
    arrow = _MERMAID_ARROWS[edge.style]
    if edge.metrics.is_denied:
        arrow = arrow.removesuffix(">") + "x"
    return f'{arrow}|"{_entities(edge.label)}"|'


def _entities(text: str) -> str:
    """Return a text with the characters that end a Mermaid label replaced by entities."""
    return text.replace("#", "#35;").replace('"', "#quot;")
