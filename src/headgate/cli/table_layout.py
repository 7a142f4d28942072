"""Lay out tables: as text with a line for each row; or for a terminal without breaking a word, by narrower columns or blocks."""

import textwrap
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import cache

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import RenderableType
from rich.style import Style, StyleType
from rich.table import Table
from rich.text import Text

from headgate.formatting import printable

_GAP = 2  # columns of a terminal between two columns of a table


def table_text(table: Table, *, colors: bool = False) -> str:
    """Return a table with a line for each row, or for each line of its cells. Lines end with their last letter.

    Cells and rows have the colors of their styles. Rich's own layout takes 1 ms for a row, and this one 0.03 ms.
    """
    columns = [[column.header, *column.cells] for column in table.columns]
    texts = [[_printable_lines(cell) for cell in cells] for cells in columns]
    widths = [max((cell_len(line) for lines in cells for line in lines), default=0) for cells in texts]
    gap = " " * table.padding[1]
    written: list[str] = []
    for number in range(len(table.rows) + 1):
        row_style = table.rows[number - 1].style if number else None
        styles = [_style(cells[number], row_style) if colors else Style.null() for cells in columns]
        for height in range(max(len(cells[number]) for cells in texts)):
            parts: list[str] = []
            for column, cells, width, style in zip(table.columns, texts, widths, styles, strict=True):
                line = cells[number][height] if height < len(cells[number]) else ""
                padding = " " * (width - cell_len(line))
                painted = style.render(line, color_system=ColorSystem.STANDARD)
                parts.append(padding + painted if column.justify == "right" else painted + padding)
            written.append(gap.join(parts).rstrip() + "\n")
    return "".join(written)


def _printable_lines(cell: object) -> list[str]:
    return printable(_text(cell)).expandtabs().split("\n")


def _style(cell: object, row_style: StyleType | None) -> Style:
    return _parsed(cell.style if isinstance(cell, Text) and cell.style else row_style or "")


@cache
def _parsed(style: StyleType) -> Style:
    return style if isinstance(style, Style) else Style.parse(style)


def fit(table: Table, width: int) -> bool:
    """Set the widths of the columns so that the table has at most `width` and no word is broken; return whether that is possible."""
    cells = _cells(table)
    room = width - _GAP * (len(cells) - 1)
    needed = [max(cell_len(word) for text in column for word in text.split() or [""]) for column in cells]
    natural = [max(cell_len(line) for text in column for line in text.splitlines() or [""]) for column in cells]
    if sum(natural) <= room:
        return True
    if sum(needed) > room:
        return False
    # The narrow columns get their natural width first: a wide one has long sentences, which wrap.
    spare = room - sum(needed)
    for index in sorted(range(len(cells)), key=lambda index: natural[index] - needed[index]):
        share = min(natural[index] - needed[index], spare)
        needed[index] += share
        spare -= share
    for column, size in zip(table.columns, needed, strict=True):
        column.width = size
    return True


def blocks(table: Table, width: int) -> Iterator[str]:
    """Yield the lines of a table that does not fit: for each row a line for each cell, after the title of its column."""
    cells = _cells(table)
    titles = [column[0] for column in cells]
    indent = max(map(cell_len, titles)) + _GAP
    for number, row in enumerate(zip(*(column[1:] for column in cells), strict=True)):
        if number:
            yield ""
        for title, text in zip(titles, row, strict=True):
            if text.strip():
                yield from wrapped(f"{title.ljust(indent)}{text.strip()}", width, indent=indent)


def wrapped(text: str, width: int, *, indent: int = 0) -> Sequence[str]:
    """Return the lines of a text, wrapped between words; all lines but the first are indented.

    Control characters are escapes, which have a width.
    """
    return textwrap.wrap(
        printable(text),
        width,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
    )


def printable_table(table: Table) -> Table:
    """Return a table with control characters of its cells as escapes, which have a width when columns are measured."""
    escaped = copy(table)
    escaped.columns = [
        replace(column, header=_printable(column.header), _cells=[_printable(cell) for cell in column.cells])
        for column in table.columns
    ]
    return escaped


def _printable(cell: RenderableType) -> RenderableType:
    text = printable(_text(cell))
    return cell if text == _text(cell) else Text(text, cell.style if isinstance(cell, Text) else "")


def _cells(table: Table) -> list[list[str]]:
    """Return the texts of each column, with its title first."""
    return [[_text(column.header), *map(_text, column.cells)] for column in table.columns]


def _text(cell: object) -> str:
    return cell.plain if isinstance(cell, Text) else str(cell)
