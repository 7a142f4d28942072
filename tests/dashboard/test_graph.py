"""The graph in a real browser: what it draws, its keys and pointers, and its table and empty states (issue 35; R110)."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import ConsoleMessage, Error, sync_playwright
from tests.browser import AXE, LAUNCH, NETWORK_CHANGED, needs_axe, needs_chromium, visit_sync
from tests.dashboard import meshes
from tests.dashboard.graph_page import served

pytestmark = needs_chromium

WIDE, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
NODE, LINK = ".graph-stage g.node", ".graph-stage g.link"


class GraphPage:
    """A page with the graph, and what the browser reported about it."""

    def __init__(self, page: Any, url: str) -> None:
        self.page = page
        self.problems: list[str] = []
        page.on("console", self.note_message)
        page.on("pageerror", self.note_error)
        visit_sync(page, url)
        page.wait_for_selector("form")

    def note_message(self, message: ConsoleMessage) -> None:
        if message.type == "error" and NETWORK_CHANGED not in message.text:
            self.problems.append(message.text)

    def note_error(self, error: Error) -> None:
        self.problems.append(str(error))

    def show(self, graph: dict[str, Any] | None) -> None:
        self.page.evaluate("graph => show(JSON.parse(graph))", json.dumps(graph))  # ten times faster than as an object

    def draw(self, graph: dict[str, Any]) -> None:
        self.show(graph)
        self.page.wait_for_selector(NODE)

    def names(self) -> list[str]:
        return sorted(self.page.locator(f"{NODE} .name").all_text_contents())

    def await_names(self, *names: str) -> None:
        for name in names:
            self.page.wait_for_selector(f'{NODE} .name:text-is("{name}")')
        self.page.locator(f"{NODE} .name").nth(len(names)).wait_for(state="detached")

    def places(self) -> dict[str, str]:
        return dict(
            self.page.eval_on_selector_all(
                NODE, "all => all.map(node => [node.dataset.id, node.getAttribute('transform')])"
            )
        )

    def view(self) -> str:
        return str(self.page.get_attribute(".graph-stage svg > g", "transform"))

    def panel(self) -> str:
        return str(self.page.inner_text(".graph-panel"))

    def focused(self) -> str:
        return str(self.page.evaluate("document.activeElement.closest('[data-id]')?.dataset.id ?? ''"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(**LAUNCH)
        yield started
        started.close()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served() as address:
        yield address


@pytest.fixture(scope="module")
def tab(browser: Any) -> Any:
    """A tab for all tests: a new one has a process of its own, which compiles the files again."""
    return browser.new_page(viewport=WIDE)


@pytest.fixture
def graph(tab: Any, url: str) -> Iterator[GraphPage]:
    """The page as it is after it has loaded: each test loads it again."""
    tab.mouse.move(0, 0)
    opened = GraphPage(tab, url)
    yield opened
    tab.remove_listener("console", opened.note_message)
    tab.remove_listener("pageerror", opened.note_error)
    assert opened.problems == []  # the content security policy forbids nothing that the graph needs


def test_each_node_and_line_has_a_name_for_screen_readers(graph: GraphPage) -> None:
    graph.draw(meshes.splits(630, 370))
    stage = graph.page.get_by_role("application", name=re.compile("Traffic graph"))
    assert stage.get_by_role("button").count() == 11 + 13
    for name in (
        "Service payments in namespace pay, 2 pods, receives",
        "Traffic from gateway to website, 41.3/s, 97.5 %, p99",
        "Split website, wanted 30 %, observed 37 % to website-green, outside 25.7\u201334.3 %",
        "for cookie: beta=1, in its band",
        "Mirror from website to website-next, copies 20 %",
    ):
        assert stage.get_by_role("button", name=name).count() == 1, name


def test_signs_have_shapes_and_texts_beside_their_colors(graph: GraphPage) -> None:
    graph.draw(meshes.bookstore())
    denied = graph.page.locator('g.label[data-id*="bookthief"]')
    assert denied.text_content().strip() == "412 denied"
    assert denied.locator(".sign-denied").count() == 1
    line = graph.page.locator(f'{LINK}[data-id*="bookthief"] .line')
    assert line.get_attribute("marker-end") == "url(#head-refused)"
    assert line.evaluate("line => getComputedStyle(line).strokeDasharray") != "none"


def test_keys_walk_the_graph_and_select(graph: GraphPage) -> None:
    graph.draw(meshes.bookstore())
    graph.page.get_by_label("Only failing").focus()
    graph.page.keyboard.press("Tab")
    assert graph.focused() == "Service/people/bookbuyer"
    graph.page.keyboard.press("ArrowDown")  # this graph flows downward
    assert graph.focused() == "traffic:Service/people/bookbuyer>Service/bookstore/bookstore"
    assert "1,200 (40/s)" in graph.panel()
    graph.page.keyboard.press("ArrowDown")
    graph.page.keyboard.press("Enter")
    assert graph.page.get_attribute('[data-id="Service/bookstore/bookstore"] .card', "aria-pressed") == "true"
    assert graph.page.evaluate("state.selected") == "Service/bookstore/bookstore"
    graph.page.keyboard.press("Tab")
    assert graph.focused() == ""  # the graph is one stop of the Tab key
    graph.page.keyboard.press("Shift+Tab")
    assert graph.focused() == "Service/bookstore/bookstore"
    graph.page.keyboard.press("Escape")
    assert graph.page.evaluate("state.selected") == ""


def test_keys_walk_beside_a_pointer_that_rests_on_a_node(graph: GraphPage) -> None:
    graph.draw(meshes.bookstore())
    graph.page.hover('[data-id="Service/people/bookthief"]')
    assert "bookthief" in graph.panel()
    graph.page.get_by_label("Only failing").focus()
    graph.page.keyboard.press("Tab")
    assert graph.focused() == "Service/people/bookbuyer"
    assert "bookbuyer" in graph.panel()
    graph.page.keyboard.press("Tab")
    assert graph.focused() == ""  # the graph stays one stop of the Tab key
    graph.page.hover('[data-id="Service/people/bookthief"]')
    assert "bookthief" in graph.panel()  # the pointer moved: it counts again


def test_pointing_at_a_line_shows_its_numbers(graph: GraphPage) -> None:
    graph.draw(meshes.splits(630, 370))
    graph.page.hover('g.label[data-id$="website-blue"]')
    text = graph.panel()
    for part in (
        "website → website-blue",
        "TrafficSplit shop/website",
        "63 % (630 of 1,000 requests)",
        "65.7\u201374.3 %",
        "outside",
    ):
        assert part in text
    graph.page.hover("h1")
    assert "Point at a node or a line" in graph.panel()


def test_numbers_change_without_a_move_or_new_elements(graph: GraphPage) -> None:
    graph.draw(meshes.services(60, 120))
    before = graph.places()
    graph.page.evaluate(f"for (const element of document.querySelectorAll('{NODE}, {LINK}')) element.dataset.seen = 1")
    titles = graph.page.locator(LINK).first.get_attribute("aria-label")
    graph.show(meshes.services(60, 120, tick=1))
    graph.page.wait_for_selector(f'{LINK}:not([aria-label="{titles}"]) >> nth=0')
    assert graph.places() == before
    assert graph.page.locator(f"{NODE}:not([data-seen]), {LINK}:not([data-seen])").count() == 0
    assert graph.page.locator(LINK).first.get_attribute("aria-label") != titles


def test_a_change_of_weight_moves_and_names_the_share_before(graph: GraphPage) -> None:
    graph.draw(meshes.splits(700, 300))
    blue = f'{LINK}[data-id$="website-blue"] .line'
    before, places = graph.page.eval_on_selector(blue, "line => line.style.strokeWidth"), graph.places()
    graph.show(meshes.splits(700, 300, weight=40))
    changed = graph.page.locator('g.label.changed[data-id$="website-blue"]')
    changed.wait_for()
    assert "wanted 40 %, was 70 %" in changed.text_content()
    assert graph.page.eval_on_selector(blue, "line => line.style.strokeWidth") != before
    assert graph.page.eval_on_selector(blue, "line => getComputedStyle(line).transitionProperty") == "stroke-width, d"
    assert graph.places() == places


def test_only_a_change_of_weight_moves_and_not_each_new_number(graph: GraphPage) -> None:
    """Numbers change each second: transitions of them would paint frames as long as the page is open."""
    graph.draw(meshes.splits(700, 300))
    graph.page.evaluate(
        "moved = []; addEventListener('transitionrun', event => moved.push(event.target.getAttribute('class')))"
    )
    graph.show(meshes.splits(630, 370))
    graph.page.get_by_text("observed 63 %").first.wait_for()
    graph.page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done())))")
    assert graph.page.evaluate("moved") == []
    graph.show(meshes.splits(630, 370, weight=40))
    graph.page.evaluate(
        "new Promise(done => { const poll = () => moved.includes('line') ? done() : requestAnimationFrame(poll); poll(); })"
    )


def test_reduced_motion_has_no_transition(browser: Any, url: str) -> None:
    page = browser.new_page(viewport=WIDE, reduced_motion="reduce")
    graph = GraphPage(page, url)
    graph.draw(meshes.splits())
    moving = "line => { const style = getComputedStyle(line); return [style.transitionDuration, style.animationName] }"
    assert page.eval_on_selector(f"{LINK}.link-split .line", moving) == ["0s", "none"]
    page.close()


def test_the_filter_bar_restricts_the_graph(graph: GraphPage) -> None:
    graph.draw(meshes.splits())
    page = graph.page
    page.get_by_label("Search").fill("ledger")
    graph.await_names("ledger", "payments", "reports")
    page.get_by_label("Search").fill("")
    page.get_by_text("Namespaces: all").click()
    page.get_by_role("checkbox", name="analytics").check()
    graph.await_names("ledger", "reports")
    assert page.evaluate("state.filter.namespaces") == ["analytics"]
    page.get_by_role("button", name="Clear").click()
    page.get_by_label("Only failing").check()
    graph.await_names("gateway", "website", "cart", "payments", "ledger", "reports")
    page.get_by_label("Search").fill("no such name")
    page.get_by_text("Nothing fits the filter").wait_for()
    page.get_by_role("button", name="Clear the filter").click()
    page.wait_for_selector(f'{NODE} .name:text-is("website-beta")')


def test_a_selected_node_offers_its_neighbors(graph: GraphPage) -> None:
    graph.draw(meshes.splits())
    graph.page.click('[data-id="Service/pay/payments"]')
    graph.page.get_by_role("button", name="Show only its neighbors").click()
    graph.await_names("cart", "ledger", "payments")
    graph.page.get_by_role("combobox", name="Neighbors of payments").select_option("2")
    graph.await_names("cart", "ledger", "payments", "reports", "website-blue", "website-green")


def test_dragging_and_zooming_move_the_view_and_fit_restores_it(graph: GraphPage) -> None:
    graph.draw(meshes.bookstore())
    page, start = graph.page, graph.view()
    stage = page.locator(".graph-stage svg").bounding_box()
    page.mouse.move(stage["x"] + 10, stage["y"] + 10)
    page.mouse.down()
    page.mouse.move(stage["x"] + 110, stage["y"] + 50)
    page.mouse.up()
    dragged = graph.view()
    assert dragged != start
    assert page.evaluate("state.selected") == ""
    page.get_by_role("button", name="Zoom in").click()
    zoomed = graph.view()
    assert re.search(r"scale\((.*)\)", zoomed)[1] != re.search(r"scale\((.*)\)", dragged)[1]
    graph.show(meshes.bookstore())
    assert graph.view() == zoomed  # an update leaves the view
    page.get_by_role("button", name="Fit").click()
    assert graph.view() == start


def test_a_mesh_that_is_too_large_to_draw_is_a_table_with_neighborhoods(graph: GraphPage) -> None:
    graph.show(meshes.services(5000, 20_000, kind="Deployment"))
    rows = graph.page.locator("tbody tr")
    rows.first.wait_for()
    assert "5,000 nodes are too many to draw" in graph.page.inner_text(".traffic-graph")
    assert rows.count() == 100
    assert rows.first.locator(".sign-failing").count() > 0  # the worst first
    name = rows.first.locator("th").inner_text()
    graph.page.get_by_role("button", name=f"Show the neighbors of {name}").first.click()
    graph.page.wait_for_selector(f'{NODE} .name:text-is("{name}")')
    assert 2 <= graph.page.locator(NODE).count() <= 300


@pytest.mark.parametrize(
    ("reason", "title"),
    [
        ("NoTraffic", "No traffic in this window"),
        ("NoSidecars", "No pod has a sidecar"),
        ("NothingRouted", "Nothing is routed yet"),
    ],
)
def test_an_empty_graph_says_why(graph: GraphPage, reason: str, title: str) -> None:
    graph.show(None)
    graph.page.get_by_text("Loading the graph").wait_for()
    graph.show(meshes.empty(reason, "The message of the API."))
    graph.page.get_by_text(title).wait_for()
    assert "The message of the API." in graph.page.inner_text(".traffic-graph, .state")


def test_a_narrow_page_has_no_horizontal_scrollbar(browser: Any, url: str) -> None:
    page = browser.new_page(viewport=PHONE)
    graph = GraphPage(page, url)
    for mesh in (meshes.splits(), meshes.services(60, 120)):
        graph.draw(mesh)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert graph.problems == []
    page.close()


@needs_axe
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation(browser: Any, url: str, scheme: str) -> None:
    page = browser.new_page(viewport=WIDE, color_scheme=scheme, reduced_motion="reduce")
    graph = GraphPage(page, url)
    graph.draw(meshes.splits(630, 370))
    page.click('g.label[data-id$="website-blue"]')
    page.get_by_text("Legend").click()
    page.evaluate(AXE.read_text())
    assert violations(page) == []
    graph.show(meshes.services(301, 900))
    page.wait_for_selector("tbody tr")
    assert violations(page) == []
    page.close()


def violations(page: Any) -> list[str]:
    """Return the rules of axe-core that the page breaks, each with an element."""
    broken = page.evaluate("axe.run()")["violations"]
    return [f"{rule['id']}: {rule['nodes'][0]['html']}" for rule in broken]
