"""Fit tables to the width of a terminal without breaking a word: narrower columns, or a block for each row."""

import textwrap
from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

_GAP = 2  # columns of a terminal between two columns of a table


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
    """Return the lines of a text, wrapped between words; all lines but the first are indented."""
    return textwrap.wrap(
        text,
        width,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
    )


def _cells(table: Table) -> list[list[str]]:
    """Return the texts of each column, with its title first."""
    return [[_text(column.header), *map(_text, column.cells)] for column in table.columns]


def _text(cell: object) -> str:
    return cell.plain if isinstance(cell, Text) else str(cell)
