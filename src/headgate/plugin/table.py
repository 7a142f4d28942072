"""Tables as kubectl prints them, and the figures right-aligned (R103)."""

from collections.abc import Sequence

_GAP = "   "


def written(header: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """Return a table as text. The first `left` columns are names, left-aligned; the others are figures."""
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "".join(_line(line, widths, left) + "\n" for line in lines)


def _line(cells: Sequence[str], widths: Sequence[int], left: int) -> str:
    aligned = [
        cell.ljust(width) if column < left else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return _GAP.join(aligned).rstrip()
