"""The page of keys, conditions and Events names all that the code has, and nothing else."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from headgate.compiler.reasons import ConditionType, Reason
from headgate.resources.mesh_keys import ANNOTATIONS, LABELS

ROOT = Path(__file__).parents[2]
SOURCES = {path: path.read_text() for path in (ROOT / "src/headgate").rglob("*.py")}
PAGE = (ROOT / "docs/reference/keys.md").read_text()
KEY = r"(?:conversion\.)?headgate\.dev/[a-z][a-z-]+[a-z]"
WORD = r"[A-Z][a-z]+(?:[A-Z][a-z]+)*"
VERSION = "headgate.dev/v1"
_CALLS = {"StatusCondition": None, "Problem": 0, "record": None, "condition": 0, "_verdict": 0, "Announce": 2}
"""Calls with a reason, and the position of a positional one; the reason of `record_event` is at position 1."""
_NOT_HEADGATES = {"HeadgateError"}
_NOT_CHECKED = {
    f"headgate.dev/{name}" for name in ("adopted", "stop-process", "state", "gateway-controller", "mesh-controller")
}
"""Keys of definitions, and keys that are no label and no annotation. All other unknown keys are reported as mistakes."""


def section(title: str) -> str:
    """Return a section of the page."""
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def first_cells(text: str, pattern: str) -> set[str]:
    """Return the names in the first cells of tables."""
    rows = (line.split("|")[1] for line in text.splitlines() if line.startswith("| `"))
    return {name for cell in rows for name in re.findall(rf"`({pattern})`", cell)}


def reasons_in(source: str) -> Iterator[str]:
    """Yield the words that calls give as the reason of a condition or of an Event."""
    if not any(f"{name}(" in source for name in (*_CALLS, "record_event")):  # parsing all modules would take seconds
        return
    for call in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        position = 1 if name == "record_event" else _CALLS.get(name)
        given = [word.value for word in call.keywords if word.arg == "reason"] if name in _CALLS else []
        if position is not None and len(call.args) > position:
            given.append(call.args[position])
        for word in (node for value in given for node in ast.walk(value) if isinstance(node, ast.Constant)):
            if isinstance(word.value, str) and re.fullmatch(WORD, word.value):
                yield word.value


def test_the_page_has_every_key_of_the_code_and_no_other() -> None:
    keys = first_cells(section("Keys that users write") + section("Keys that headgate writes"), KEY)
    found = {key for text in SOURCES.values() for key in re.findall(rf"[\"`]({KEY})[\"`]", text)}
    assert keys == found - {VERSION}
    assert {key for key in keys if key.startswith("headgate.dev/")} - _NOT_CHECKED == ANNOTATIONS | LABELS


def test_the_page_has_every_condition_of_the_code() -> None:
    types = first_cells(section("Conditions").partition("| Reason |")[0], rf"(?:headgate\.dev/)?{WORD}")
    assert types >= {condition.value for condition in ConditionType}
    written = set()
    for text in SOURCES.values():
        written |= set(re.findall(rf'StatusCondition\(\s*type="({WORD})"', text))
        written |= {f"headgate.dev/{name}" for name in re.findall(rf'prefixed\("({WORD})"\)', text)}
    assert written <= types
    for name in types:
        word = name.removeprefix("headgate.dev/")
        assert any(f'"{word}"' in text or f'"{name}"' in text for text in SOURCES.values()), name


def test_the_page_has_every_reason_that_no_finding_sets() -> None:
    listed = first_cells(section("Conditions").partition("| Reason |")[2] + section("Events"), WORD)
    given = {word for text in SOURCES.values() for word in reasons_in(text)}
    assert len(given) > 25
    assert given - {reason.value for reason in Reason} - listed == set()
    for word in listed:
        assert any(f'"{word}"' in text for text in SOURCES.values()) or word.endswith("Responses"), word
