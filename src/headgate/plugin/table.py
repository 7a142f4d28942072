"""Tables as kubectl prints them, and the figures right-aligned (R103)."""

from collections.abc import Sequence
from typing import NamedTuple

from headgate.plugin.colours import Colour, painted

_GAP = "   "


class Cell(NamedTuple):
    """A text, and the colour that it has where colours show."""

    text: str
    colour: Colour = ""


def written(header: Sequence[str], rows: Sequence[Sequence[Cell]], *, left: int = 1, colours: bool = False) -> str:
    """Return a table as text. The first `left` columns are names, left-aligned; the others are figures."""
    lines = [[Cell(title) for title in header], *rows]
    widths = [max(len(line[column].text) for line in lines) for column in range(len(header))]
    return "".join(_line(line, widths, left, colours=colours) + "\n" for line in lines)


def _line(cells: Sequence[Cell], widths: Sequence[int], left: int, *, colours: bool) -> str:
    aligned = [
        Cell(cell.text.ljust(width) if column < left else cell.text.rjust(width), cell.colour)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    aligned[-1] = Cell(aligned[-1].text.rstrip(), aligned[-1].colour)
    return _GAP.join(painted(*cell) if colours else cell.text for cell in aligned).rstrip()
