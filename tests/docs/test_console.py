"""Every console example of the documentation prints what the page shows."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest
from tests.docs.console import ROOT, Session, blocks, differs

from headgate.manifests.files import read
from headgate.resources.registry import KINDS

PAGES = sorted((ROOT / "docs").rglob("*.md"))


def runs(page: Path) -> bool:
    return any(block.language == "console" and block.directive != "not run" for block in blocks(page))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    """Return a function that returns the state directory of the shared mesh with some manifests."""
    with ExitStack() as stack:

        @cache
        def state(manifests: str) -> Path:
            directory = tmp_path_factory.mktemp("shared")
            stack.enter_context(Session(directory)).up(f"headgate up {manifests}")
            return directory / ".headgate"

        yield state


@pytest.mark.e2e
@pytest.mark.parametrize(
    "page", [page for page in (ROOT / "README.md", *PAGES) if runs(page)], ids=lambda page: page.stem
)
def test_the_examples_of_a_page_print_the_shown_output(
    page: Path, tmp_path: Path, shared: Callable[[str], Path]
) -> None:
    with Session(tmp_path, shared) as session:
        for block in blocks(page):
            session.play(block)


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.stem)
def test_a_block_that_is_not_run_gives_a_reason(page: Path) -> None:
    assert all(block.argument for block in blocks(page) if block.directive == "not run")


@pytest.mark.parametrize("page", sorted((ROOT / "docs/tasks").glob("*.md")), ids=lambda page: page.stem)
def test_a_page_of_a_task_begins_with_the_set_up_and_ends_with_what_is_next(page: Path) -> None:
    lines = page.read_text().splitlines()
    assert re.match(r"Set-up: \[.*\]\(\.\./start/(setup|cluster)\.md\)", lines[2])
    example = re.search(r"with `make run EXAMPLE=(.*)`", lines[2])
    assert example is None or (ROOT / example[1]).is_dir()
    last = max(index for index, line in enumerate(lines) if line.startswith("## "))
    assert lines[last] == "## Next"
    assert all(re.match(r"- \[.*\]\(", line) for line in lines[last + 2 :])


@pytest.mark.parametrize("page", sorted((ROOT / "examples").glob("*/README.md")), ids=lambda page: page.parent.name)
def test_the_page_of_an_example_names_the_environment_of_its_commands(page: Path) -> None:
    """Commands in the second terminal need PATH and KUBECONFIG of the mesh that `make run` starts."""
    text = page.read_text()
    started = re.search(r"^\$ make run(?: EXAMPLE=(?:[\w-]+/)*([\w-]+))?$", text, re.MULTILINE)
    if started and re.search(r"`(kubectl|headgate) ", text):
        assert f"`source .headgate/{started[1] or 'canary'}/env`" in text


def test_the_page_of_checks_has_the_numbers_of_random_meshes() -> None:
    comparisons = (ROOT / f"tests/differential/{name}_comparison.py" for name in ("routing", "access", "commands"))
    usual = [re.findall(r'"FUZZ_WORLDS", "(\d+)"', path.read_text()) for path in comparisons]
    counts = "{}, {} and {}".format(*(count for (count,) in usual))
    assert f"`make test` runs {counts} meshes" in (ROOT / "docs/tasks/checks.md").read_text()


def test_differs_returns_the_first_line_that_differs() -> None:
    assert differs(["a 1", "...", "c"], ["a   22", "x", "c"]) == ""
    assert differs(["a", "c"], ["a", "b", "c"]) == "c"
    assert differs(["a", "...", "d"], ["a", "b", "c"]) == "d"
    assert differs(["a"], ["a", "b"]) == "the end of the output before b"


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.stem)
def test_the_manifests_of_a_page_are_valid(page: Path, tmp_path: Path) -> None:
    """Blocks with the directive `file` may show mistakes. Kinds that only clusters have (Role) are ignored."""
    manifests = [block for block in blocks(page) if block.language == "yaml" and "apiVersion:" in block.text]
    for block in (block for block in manifests if block.directive != "file"):
        (tmp_path / f"line-{block.line}.yaml").write_text(block.text)
    problems = [str(problem) for problem in read([tmp_path]).problems if manifests]
    assert [problem for problem in problems if "is not a kind that headgate knows" not in problem] == []


_LIST = re.compile(r"kubectl get (\w+)(?: -n \S+)?")


def shown_headers() -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield where a page shows the table of a kind of headgate, the columns there, and those of the kind."""
    columns = {
        name: [column.name.upper() for column in kind.columns if not column.wide]
        for kind in KINDS
        for name in (kind.plural, kind.names.singular)
        if kind.is_of_mesh
    }
    for page in (ROOT / "README.md", *PAGES):
        for step in (step for block in blocks(page) if block.language == "console" for step in block.steps()):
            match = _LIST.fullmatch(step.command)
            if match and match[1] in columns and step.shown:
                yield f"{page.name}:{step.line}", re.split(r" {2,}", step.shown[0]), columns[match[1]]


def test_tables_of_kinds_have_their_columns_also_in_examples_that_are_not_run() -> None:
    shown = list(shown_headers())
    assert any(where.startswith("first-canary.md") for where, *_ in shown)
    assert [where for where, header, columns in shown if header != columns] == []
