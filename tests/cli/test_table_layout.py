"""Tables on narrow terminals break no word."""

import io
import sys

import pytest
from rich.table import Table
from rich.text import Text
from tests.cli.test_history import REVISIONS

from headgate.cli.history import _list
from headgate.cli.output import WrappedText, make_table, print_table, print_whole, stdout
from headgate.cli.table_layout import table_text
from headgate.resources.revisions import RevisionList


class Terminal(io.StringIO):
    """A terminal without colors."""

    def isatty(self) -> bool:
        return True


def terminal_of(width: int, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Make stdout a terminal. Call this in the test: pytest replaces stdout after the fixtures."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    for name, value in {"TERM": "xterm", "NO_COLOR": "1", "COLUMNS": str(width)}.items():
        monkeypatch.setenv(name, value)
    return terminal


def printed(terminal: Terminal) -> list[str]:
    """Return the lines without the codes of styles and without trailing spaces."""
    return [line.rstrip() for line in Text.from_ansi(terminal.getvalue()).plain.splitlines()]


def table() -> Table:
    made = Table("NAME", "TIME", "CHANGE", box=None, pad_edge=False)
    made.add_row("website", "2026-01-31T12:00:00Z", "the weight of website-v2 rises from 10 to 50")
    made.add_row("a", Text("2026-01-31T12:00:00Z", style="red"), "created")
    return made


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (
            80,
            [
                "NAME     TIME                  CHANGE",
                "website  2026-01-31T12:00:00Z  the weight of website-v2 rises from 10 to 50",
                "a        2026-01-31T12:00:00Z  created",
            ],
        ),
        (
            50,
            [
                "NAME     TIME                  CHANGE",
                "website  2026-01-31T12:00:00Z  the weight of",
                "                               website-v2 rises",
                "                               from 10 to 50",
                "a        2026-01-31T12:00:00Z  created",
            ],
        ),
        (
            36,
            [
                "NAME    website",
                "TIME    2026-01-31T12:00:00Z",
                "CHANGE  the weight of website-v2",
                "        rises from 10 to 50",
                "",
                "NAME    a",
                "TIME    2026-01-31T12:00:00Z",
                "CHANGE  created",
            ],
        ),
    ],
)
def test_a_table_wraps_between_words_or_becomes_blocks(
    monkeypatch: pytest.MonkeyPatch, width: int, lines: list[str]
) -> None:
    terminal = terminal_of(width, monkeypatch)
    print_table(table())
    assert printed(terminal) == lines


@pytest.mark.parametrize("width", [40, 80, 100, 130, 200])
def test_the_history_has_all_words_at_every_width(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    terminal = terminal_of(width, monkeypatch)
    _list(RevisionList(items=REVISIONS), across=False)
    lines = printed(terminal)
    assert max(map(len, lines)) <= width
    words = set(" ".join(lines).split())
    assert {"spec.backends[v1].weight", "trafficsplit/website", "2026-01-31T12:00:00Z", "headgate-rollout"} <= words


def test_a_word_longer_than_the_terminal_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(20, monkeypatch)
    made = Table("A")
    made.add_row("x" * 30)
    print_table(made)
    assert "x" * 30 in [line.strip() for line in printed(terminal)]


def test_a_table_as_text_has_a_line_for_each_line_of_its_cells_and_the_colors_of_its_rows() -> None:
    table = make_table(("NAME", "COUNT", "NOTE"), right=("COUNT",), gap=3)
    table.add_row("日本", "7", "")
    table.add_row("web", Text("12", "yellow"), "first\nsecond \x1b[31m", style="red")
    assert table_text(table) == (
        "NAME   COUNT   NOTE\n"
        "日本       7\n"
        "web       12   first\n"
        "               second \\x1b[31m\n"
    )  # fmt: skip
    assert table_text(table, colors=True) == (
        "NAME   COUNT   NOTE\n"
        "日本       7\n"
        "\x1b[31mweb\x1b[0m       \x1b[33m12\x1b[0m   \x1b[31mfirst\x1b[0m\n"
        "               \x1b[31msecond \\x1b[31m\x1b[0m\n"
    )  # fmt: skip


@pytest.mark.parametrize("width", [70, 45])
def test_control_characters_do_not_move_the_columns_or_lines(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A control character has no width, and its escape has up to six columns."""
    terminal = terminal_of(width, monkeypatch)
    made = make_table(("NAME", "TIME", "CHANGE"))
    made.add_row("web", "2026-01-31T12:00:00Z", "created")
    made.add_row(
        "\x1b[31m\u202e", Text("2026-01-31T12:00:00Z", style="red"), "\x9b2J rises \x9b2J from \x9b2J to \x9b2J"
    )
    print_table(made)
    lines = printed(terminal)
    assert max(map(len, lines)) <= width
    titles, plain, hostile = lines[:3]
    assert hostile.startswith(r"\x1b[31m\u202e  2026-01-31T12:00:00Z  \x9b2J")
    assert hostile.index("2026") == plain.index("2026") == titles.index("TIME")
    assert hostile.index(r"\x9b2J") == plain.index("created") == titles.index("CHANGE")


def test_a_message_with_control_characters_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(40, monkeypatch)
    print_whole(stdout(), WrappedText("\x9b2J " * 20))
    lines = printed(terminal)
    assert " ".join(lines).split() == [r"\x9b2J"] * 20
    assert max(map(len, lines)) <= 40
