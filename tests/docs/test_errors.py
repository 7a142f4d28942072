"""The page of errors has every response text and response flag of the proxies, and only messages that the code has."""

import ast
import re
from collections.abc import Iterator
from functools import cache

from tests.docs.console import ROOT

from headgate.envoy import outcomes

PAGE = (ROOT / "docs/reference/errors.md").read_text()
ENVOY = ROOT / "src/headgate/envoy"
VARIABLE = "..."
_PLACEHOLDER = re.compile(r"%[A-Z_]+(?:\([^)]*\))?%|%s|\{\w+\}")
_BODY = re.compile(r"headgate: (?:[^\"\\\n])+")


def rows(title: str) -> list[str]:
    """Return the messages in the first cells of a section's tables."""
    section = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return [cell[1] for line in section.splitlines() if (cell := re.match(r"\| `([^`]*)`", line))]


def texts(node: ast.AST) -> Iterator[str]:
    """Yield the strings of a module, those of an f-string with `...` for its values."""
    if isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else VARIABLE for part in node.values)
        return
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    for child in ast.iter_child_nodes(node):
        yield from texts(child)


def pattern(row: str) -> re.Pattern[str]:
    """Return the expression for a message on the page."""
    return re.compile(".*".join(map(re.escape, row.split(VARIABLE))))


def bodies() -> set[str]:
    """Return the bodies that proxies send, with `...` for their variable parts."""
    sources = [text for path in ENVOY.glob("*.py") if "headgate: " in (text := path.read_text())]
    strings = [text for source in sources for text in texts(ast.parse(source))]
    return {body for text in strings for body in _BODY.findall(_PLACEHOLDER.sub(VARIABLE, text))}


def test_the_page_has_every_body_that_a_proxy_sends() -> None:
    shown = [row for row in rows("Responses of proxies") if row.startswith("headgate: ")]
    assert len(bodies()) > 10
    missing = {body for body in bodies() if not any(body.startswith(row.rstrip(".")) for row in shown)}
    stale = {row for row in shown if not any(body.startswith(row.rstrip(".")) for body in bodies())}
    assert (missing, stale) == (set(), set())


def test_the_page_has_every_response_flag_that_users_see() -> None:
    assert set(rows("Response flags")) == outcomes.FLAGS


def test_the_code_has_every_message_of_a_command_on_the_page() -> None:
    """A message is one string of the code, in which `...` of the page stands for any text."""
    shown = rows("Messages of commands")
    assert len(shown) > 10
    sources = [path.read_text() for path in (ROOT / "src/headgate").rglob("*.py")]
    assert [row for row in shown if not any(has_message(source, row) for source in sources)] == []


@cache
def strings(source: str) -> set[str]:
    return set(texts(ast.parse(source)))


def has_message(source: str, row: str) -> bool:
    """Return whether a module has a message of the page. Parses only modules with all words of it: parsing all takes 5 s."""
    return all(word in source for word in re.findall(r"[A-Za-z]{5,}", row)) and any(
        map(pattern(row).search, strings(source))
    )
