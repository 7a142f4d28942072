"""Diagrams of a topology: as in 004, and without ambiguous lines (R105, R106)."""

import random
import re
import subprocess
from itertools import combinations, pairwise
from xml.etree import ElementTree as ET

import msgspec
import pytest
from tests.cli.traffic.conftest import program
from tests.cli.traffic.graphs import NUMBERS, graph, peer, shop

from headgate.cli.traffic.ascii_layout import GridBox, GridLayout, layout_on_grid
from headgate.cli.traffic.diagram_formats import dot, mermaid
from headgate.cli.traffic.edges import EdgePeer
from headgate.cli.traffic.graph import Arrow, Graph, build_links
from headgate.cli.traffic.kinds import OUTSIDE
from headgate.cli.traffic.layout import layout_graph
from headgate.cli.traffic.metrics import Metrics
from headgate.cli.traffic.svg import svg
from headgate.cli.traffic.terminal import draw

SEED = [("traffic", "foo"), ("foo", "bar"), ("foo", "baz"), ("bar", "baz"), ("baz", "bar")]
SVG = "{http://www.w3.org/2000/svg}"


def test_the_example_of_004_is_drawn_as_in_004():
    # R105: `-->` for one direction, `<-->` for both, and a line over a box
    assert draw(graph(SEED)).text == (
        "                  +------------------------+\n"
        "                  |                        v\n"
        "+---------+     +-----+     +-----+      +-----+\n"
        "| traffic | --> | foo | --> | bar | <--> | baz |\n"
        "+---------+     +-----+     +-----+      +-----+\n"
    )


def test_the_wide_output_labels_lines_with_rate_and_success():
    text = draw(graph([("foo", "bar")]), wide=True).text
    assert text.splitlines()[1] == "| foo | ---- 100.00% 1.8rps ----> | bar |"


def test_a_line_with_two_arrowheads_has_a_label_beside_each_arrowhead():
    both = graph([("foo", "bar"), ("bar", "foo")])
    slow = msgspec.structs.replace(both.edges[1], metrics=msgspec.structs.replace(both.edges[1].metrics, success=27))
    text = draw(msgspec.structs.replace(both, edges=(both.edges[0], slow)), wide=True).text
    # Each label is beside the node that receives the requests; the line starts at the node that sends more.
    assert text.splitlines()[1] == "| foo | <--- 100.00% 0.9rps --- 100.00% 1.8rps ----> | bar |"


def test_mirrored_requests_are_dotted_lines_and_shares_of_a_split_are_double_lines(golden):
    # D22, R103 to R107.
    shown = graph(
        [("(gateway)", "web")], copies=[("(gateway)", "shadow")], shares=[("web", "v1", 80), ("web", "v2", 20)]
    )
    text = draw(shown).text
    golden("split-and-mirror.txt", text)
    assert re.search(r"\.> \| shadow", text)
    assert re.search(r"= 80% =+> \| v1", text)
    assert re.search(r"= 20% =+> \| v2", text)
    assert "..> copies of requests" in text
    assert "==> shares of a TrafficSplit" in text
    assert "(gateway)" in text


def test_a_workload_that_calls_itself_has_a_line_to_itself(golden):
    golden("self.txt", draw(graph([("foo", "foo"), ("foo", "bar"), ("bar", "foo")])).text)


def test_a_cycle_of_three_nodes_is_drawn(golden):
    golden("circle.txt", draw(graph([("a", "b"), ("b", "c"), ("c", "a")])).text)


def test_nodes_without_traffic_are_listed_below_the_diagram():
    assert draw(graph(SEED, idle=["cron", "batch"])).text.splitlines()[-1] == "no traffic: batch, cron"


def test_forty_deployments_fit_on_a_wide_screen(golden):
    text = draw(shop()).text
    golden("shop.txt", text)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 200
    assert len(lines) <= 100
    for node in shop().connected:
        assert len(re.findall(rf"\| {re.escape(node.name)} +\|", text)) == 1, node


def test_a_diagram_wider_than_the_terminal_becomes_a_list():
    drawing = draw(graph(SEED, copies=[("foo", "shadow")]), wide=True, width=60)
    assert drawing.needs > 60
    assert drawing.text == (
        "bar\n"
        "  <--> baz  100.00% 1.8rps --- 100.00% 1.8rps\n"
        "foo\n"
        "  -->  bar     100.00% 1.8rps\n"
        "  -->  baz     100.00% 1.8rps\n"
        "  ..>  shadow  100.00% 1.8rps\n"
        "traffic\n"
        "  -->  foo  100.00% 1.8rps\n"
        "\n"
        "..> copies of requests\n"
    )


def test_more_than_300_lines_become_a_list():
    text = draw(graph([("hub", f"leaf-{number}") for number in range(301)])).text
    assert text.startswith("hub\n  -->  leaf-0\n")


def test_the_order_of_edges_does_not_change_the_diagram():
    other = shop()
    edges = list(other.edges)
    random.Random(1).shuffle(edges)
    assert draw(msgspec.structs.replace(other, edges=tuple(edges))).text == draw(shop()).text


def random_graph(seed: int) -> Graph:
    chance = random.Random(seed)
    names = [f"{'service' * chance.randrange(2)}-{number}" for number in range(chance.randrange(2, 22))]
    calls = {(chance.choice(names), chance.choice(names)) for _ in range(chance.randrange(1, 2 * len(names)))}
    copies = {(chance.choice(names), chance.choice(names)) for _ in range(chance.randrange(3))}
    return graph(sorted(calls), copies=sorted(copies))


def inside(box: GridBox, x: int, y: int) -> bool:
    return box.left <= x <= box.right and box.top <= y <= box.bottom


def cells_of(points: tuple[tuple[int, int], ...]) -> list[tuple[int, int, bool]]:
    """Return the cells of a line between its ends, and whether the line is horizontal there."""
    return [
        (x, y, ay == by)
        for (ax, ay), (bx, by) in pairwise(points)
        for x in range(min(ax, bx), max(ax, bx) + 1)
        for y in range(min(ay, by), max(ay, by) + 1)
    ]


def faults(picture: GridLayout) -> list[str]:
    """Return the faults of a layout: boxes that overlap, and lines that cross a box, overlap a line or miss their boxes."""
    found = [
        f"{one.text} and {other.text} overlap"
        for one, other in combinations(picture.boxes.values(), 2)
        if one.left <= other.right and other.left <= one.right and one.top <= other.bottom and other.top <= one.bottom
    ]
    drawn_by: dict[tuple[int, int, bool], int] = {}
    corners = [(point, number) for number, path in enumerate(picture.paths) for point in path.points[1:-1]]
    for number, path in enumerate(picture.paths):
        edge = path.link.edge
        for end, node in ((path.points[0], edge.source), (path.points[-1], edge.target)):
            found += [] if inside(picture.boxes[node], *end) else [f"a line ends beside {node.name}"]
        for cell in cells_of(path.points):
            if (cell[0], cell[1]) in (path.points[0], path.points[-1]):
                continue
            found += [f"a line runs through {box.text}" for box in picture.boxes.values() if inside(box, *cell[:2])]
            if drawn_by.setdefault(cell, number) != number:
                found.append(f"two lines overlap at {cell}")
    on = {(x, y): number for (x, y, _), number in drawn_by.items()}
    found += [
        f"a corner is on another line at {point}" for point, number in corners if on.get(point) not in (number, None)
    ]
    return found


@pytest.mark.parametrize("seed", range(40))
def test_no_line_runs_through_a_box_or_on_another_line(seed: int):
    shown = random_graph(seed)
    links = list(build_links(shown))
    layout = layout_graph({node: shown.name(node) for node in shown.nodes}, links)
    labels = [link.edge.label for link in links]
    for texts in ((), labels):
        picture = layout_on_grid(layout, texts)
        assert faults(picture) == []
        for path in picture.paths if texts else ():
            assert path.label_span[1] - path.label_span[0] >= len(path.label) + 2


@pytest.mark.parametrize("seed", range(10))
def test_every_label_is_complete_in_the_diagram(seed: int):
    text = draw(random_graph(seed), wide=True).text
    arrows = sum(1 + (link.back is not None) for link in build_links(random_graph(seed)))
    assert text.count("100.00% 1.8rps") == arrows


def awkward() -> Graph:
    """Return a graph whose names contain special characters of DOT, Mermaid and XML."""
    return graph([('say "hi"', "back\\slash"), ("<b>&amp;</b>", "a;b->c"), ("end", "subgraph"), ("(10.0.0.1)", "#1")])


def test_graphviz_reads_the_dot_output():
    # R106
    shown = awkward()
    done = subprocess.run([program("dot"), "-Tjson"], input=dot(shown), capture_output=True, text=True, check=True)
    read = msgspec.json.decode(done.stdout)
    names = [node["name"] for node in read["objects"]]
    # Graphviz keeps the backslash that escapes a character or a backslash.
    assert sorted(name.replace("\\\\", "\\") for name in names) == sorted(shown.name(node) for node in shown.nodes)
    assert len(read["edges"]) == len(shown.edges)
    assert {edge["label"] for edge in read["edges"]} == {"100.00% 1.8rps"}


def test_the_mermaid_output_has_each_node_and_arrow():
    shown = graph([("a", 'b "c"')], copies=[("a", "d")], shares=[("d", "e", 1)])
    assert mermaid(shown) == (
        "flowchart LR\n"
        '  n0["a"]\n'
        '  n1["b #quot;c#quot;"]\n'
        '  n2["d"]\n'
        '  n3["e"]\n'
        '  n0 -->|"100.00% 1.8rps"| n1\n'
        '  n0 -.->|"100.00% 1.8rps"| n2\n'
        '  n2 ==>|"100%: 100.00% 1.8rps"| n3\n'
    )


@pytest.mark.parametrize("shown", [awkward(), shop(), graph([]), graph(SEED)])
def test_the_svg_output_has_a_box_for_each_node_and_an_arrow_for_each_line(shown: Graph):
    root = ET.fromstring(svg(shown))
    boxes = [one for one in root.iter(SVG + "rect") if "box" in (one.get("class") or "").split()]
    assert len(boxes) == len(shown.nodes)
    texts = [one.text for one in root.iter(SVG + "text")]
    assert sorted(text for text in texts if text and "rps" not in text) == sorted(map(shown.name, shown.nodes))
    arrows = [one for one in root.iter(SVG + "path") if one.get("marker-end")]
    assert len(arrows) == len(list(build_links(shown)))
    assert sum("outside" in (box.get("class") or "") for box in boxes) == sum(n.kind == OUTSIDE for n in shown.nodes)


def test_a_line_with_failures_is_red_in_svg():
    fine = graph([("a", "b")])
    failing = msgspec.structs.replace(fine.edges[0].metrics, failure=1)
    broken = msgspec.structs.replace(fine, edges=(msgspec.structs.replace(fine.edges[0], metrics=failing),))
    assert 'class="line calls failing"' in svg(broken)
    assert "failing" not in re.sub(r"<style>.*</style>|<marker.*</marker>", "", svg(fine))


def test_a_peer_of_another_namespace_or_kind_has_a_qualified_name():
    shown = graph([])
    assert shown.name(peer("foo")) == "foo"
    other = msgspec.structs.replace(peer("foo"), namespace="shop")
    assert shown.name(other) == "shop/foo"
    assert shown.name(msgspec.structs.replace(other, kind="Pod")) == "pod/shop/foo"


def denied_graph() -> Graph:
    shown = graph([("buyer", "shop"), ("thief", "shop"), ("shop", "bank")])
    metrics = [NUMBERS, Metrics(denied=9, window=30.0), Metrics(success=5, failure=1, window=30.0)]
    edges = [msgspec.structs.replace(edge, metrics=found) for edge, found in zip(shown.edges, metrics, strict=True)]
    return msgspec.structs.replace(shown, edges=tuple(edges))


def test_an_arrow_with_only_denied_requests_ends_in_a_cross():
    # R68
    assert draw(denied_graph()).text == (
        "+-------+       +------+     +------+\n"
        "| buyer | ----> | shop | --> | bank |\n"
        "+-------+   +-x |      |     +------+\n"
        "            |   +------+\n"
        "+-------+   |\n"
        "| thief | --+\n"
        "+-------+\n"
        "\n"
        "--x all denied by access rules\n"
    )
    assert draw(denied_graph(), width=10).text.splitlines()[-3] == "  --x  shop"
    assert "9 denied" in draw(denied_graph(), wide=True).text
    assert '"thief" -> "shop" [label="9 denied", color=orange, arrowhead=tee];' in dot(denied_graph())
    assert '--x|"9 denied"|' in mermaid(denied_graph())
    assert 'class="line calls denied"' in svg(denied_graph())


def partly_denied(shown: Graph, source: str) -> Graph:
    """Return a graph in which access rules denied 54 requests of `source`, and no others."""
    some = msgspec.structs.replace(NUMBERS, denied=54)
    edges = [
        msgspec.structs.replace(edge, metrics=some if edge.source.name == source else edge.metrics)
        for edge in shown.edges
    ]
    return msgspec.structs.replace(shown, edges=tuple(edges))


def test_an_arrow_with_some_denied_requests_ends_in_an_exclamation_mark():
    shown = partly_denied(graph([("thief", "shop"), ("buyer", "shop")]), "thief")
    assert draw(shown).text == (
        "+-------+       +------+\n"
        "| buyer | ----> | shop |\n"
        "+-------+   +-! |      |\n"
        "            |   +------+\n"
        "+-------+   |\n"
        "| thief | --+\n"
        "+-------+\n"
        "\n"
        "--! some denied by access rules\n"
    )
    listed = draw(shown, width=10).text.splitlines()
    assert "  --!  shop" in listed
    assert "  -->  shop" in listed
    assert "100.00% 1.8rps, 54 denied" in draw(shown, wide=True).text


def test_each_end_of_a_line_shows_whether_rules_deny_the_calls_that_arrive_there():
    both = partly_denied(graph([("foo", "bar"), ("bar", "foo")]), "foo")
    assert draw(both).text.splitlines()[1] in ("| foo | <--! | bar |", "| bar | !--> | foo |")
    above = partly_denied(graph(SEED), "foo")
    assert draw(above).text.splitlines()[1].rstrip() == "                  |                        !"


def test_some_denied_connections_have_the_sign_and_a_legend_too():
    shown = graph([("a", "db"), ("thief", "db")])
    metrics = [
        Metrics(connections=9, denied_connections=4, window=30.0),
        Metrics(connections=4, denied_connections=4, window=30.0),
    ]
    edges = [msgspec.structs.replace(edge, metrics=of) for edge, of in zip(shown.edges, metrics, strict=True)]
    text = draw(msgspec.structs.replace(shown, edges=tuple(edges))).text
    assert text.endswith("\n--x all denied by access rules   --! some denied by access rules\n")
    assert "| a     | ----! | db" in text


def test_the_legend_says_what_the_box_of_a_called_service_is():
    shown = graph([("foo", "bar")])
    called = EdgePeer("Service", "default", "bookstore")
    unreached = Arrow(source=peer("foo"), target=called, metrics=Metrics(failure=3, window=30.0))
    both = msgspec.structs.replace(shown, nodes=(*shown.nodes, called), edges=(*shown.edges, unreached))
    text = draw(both).text
    assert "| service/bookstore |" in text
    assert text.endswith("\nservice/NAME calls that reached no pod\n")
    assert "service/NAME" not in draw(shown).text
    assert "service/NAME" not in draw(msgspec.structs.replace(both, kind="Service")).text


def test_lines_are_colored_and_boxes_are_not():
    plain, colored = draw(denied_graph()).text, draw(denied_graph(), colors=True).text
    assert re.sub(r"\x1b\[\d+m", "", colored) == plain
    paint = "".join(re.findall(r"\x1b\[3[13]m([^\x1b]*)", colored))
    assert set(paint) <= set("-|+>x^v< ")
    assert {"31", "33"} == set(re.findall(r"\x1b\[(3\d)m", colored))
