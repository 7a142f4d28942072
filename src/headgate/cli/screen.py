"""The picture of the live table as lines that fit a terminal. Pure.

What gives way first: news, other Services, the table's form (a line for each split), the least columns, and names last.
Mistakes stay whole, and each split keeps its address.
"""

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple, TypeAlias

from headgate.resources.meta import Value

NO_SPLITS = "There is no TrafficSplit. Create one with kubectl, or in the directory of manifests."
LEAST_SPLITS = 3
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_PLAIN, _DIM, _BOLD, _GOOD, _WARN, _BAD = "", "dim", "bold", "green", "yellow", "bold red"

Part: TypeAlias = tuple[str, str]
"""A text and its style."""
Row: TypeAlias = tuple[Part, ...]


class BackendRow(Value, frozen=True, kw_only=True):
    """One backend: shares of 1, counts since the table began.

    `observed` (None without requests) and `rate`, in requests per second, are of the last seconds with these weights.
    """

    backend: str
    wanted: float
    observed: float | None
    requests: int
    rate: float
    failures: int
    fits: bool


class SplitSection(Value, frozen=True, kw_only=True):
    """One split on one port of its root (0: on none), its address, how many proxies of how many hold it, what is wrong."""

    name: str
    port: int
    address: str
    held: tuple[int, int]
    lines: tuple[BackendRow, ...] = ()
    remarks: tuple[str, ...] = ()


class Screen(Value, frozen=True, kw_only=True):
    """All that there is to show. `urgent` stays whole, `findings` come as far as there is room beneath all splits.

    `places` are names and addresses of other Services.
    """

    heading: tuple[str, ...] | Sequence[str] = ()
    sections: tuple[SplitSection, ...] = ()
    urgent: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    recent: tuple[str, ...] | Sequence[str] = ()
    other_addresses: tuple[tuple[str, str], ...] = ()


class _Column(NamedTuple):
    """A column of numbers; `rank` says in which order columns leave when names need room, 0 never."""

    title: str
    width: int
    rank: int


_FULL = (
    _Column("WANTED", 7, 0),
    _Column("OBSERVED", 9, 0),
    _Column("REQUESTS", 9, 2),
    _Column("REQ/S", 8, 1),
    _Column("FAILED", 7, 0),
)


def compose(screen: Screen, width: int, height: int | None) -> list[Row]:
    """Return the lines of the picture, each at most `width` wide, and at most `height` of them if that is given."""
    heading = [((text, _PLAIN),) for line in screen.heading for text in _wrap(line, width)]
    full, compact = list(_full_table(screen.sections, width)), list(_compact_table(screen.sections, width))
    urgent, findings = _messages(screen.urgent, width), _messages(screen.findings, width)
    if height is None:
        return [_crop(row, width) for row in (*full, *chain(*urgent, *findings))]
    room = height - len(heading)
    table = full
    if len(full) + sum(map(len, (*urgent, *findings))) > room:
        remarks = (f"{section.name}: {remark}" for section in screen.sections for remark in section.remarks)
        findings += _messages(remarks, width)
        least = min(len(compact), LEAST_SPLITS + 2)
        table = _truncate(compact, max(room - sum(map(len, urgent)), least), "splits: kubectl get trafficsplits -A")
    room -= len(table)
    messages = _uncut(urgent, room)
    room -= len(messages)
    room -= bool(screen.recent) and room > 1  # the newest of the news is always shown
    messages += _uncut(findings, room) if len(messages) == sum(map(len, urgent)) else []
    room = height - len(heading) - len(table) - len(messages)
    recent = [((text, _DIM),) for line in screen.recent for text in _wrap(line, width)][-room:] if room > 0 else []
    room -= len(recent)
    other_addresses = [
        ((_shortened(name, width - len(place) - 2) + "  " + place, _DIM),) for name, place in screen.other_addresses
    ]
    others = (
        _truncate([(("OTHER SERVICES", _DIM),), *other_addresses], room, "Services: kubectl get services -A")
        if other_addresses
        else []
    )
    return [_crop(row, width) for row in [*heading, *table, *messages, *others, *recent][:height]]


def _messages(texts: Iterable[str], width: int) -> list[list[Row]]:
    return [[((part, _WARN),) for part in _wrap(text, width)] for text in texts]


def _crop(row: Row, width: int) -> Row:
    """Cut what a terminal of a few columns can't show."""
    parts, left = [], width
    for text, style in row:
        parts.append((text[:left], style))
        left -= len(parts[-1][0])
    return tuple(parts)


def _truncate(rows: list[Row], room: int, what: str) -> list[Row]:
    """Return the first rows that have room, with a last one that says how many more there are; the first is a header."""
    if len(rows) <= room:
        return rows
    if room < 3:
        return []
    return [*rows[: room - 1], ((f"and {len(rows) - room + 1} more {what}", _DIM),)]


def _uncut(messages: Sequence[Sequence[Row]], room: int) -> list[Row]:
    """Return the messages that fit, none of them cut, and how many more there are."""
    shown: list[Row] = []
    for number, message in enumerate(messages):
        left = len(messages) - number
        if len(shown) + len(message) + (left > 1) > room:
            return [*shown, ((f"and {left} more messages: kubectl get events, headgate check DIR", _WARN),)][:room]
        shown += message
    return shown


def _full_table(sections: Sequence[SplitSection], width: int) -> Iterator[Row]:
    """Yield a title for each split, and a row for each of its backends."""
    longest = max((len(line.backend) for section in sections for line in section.lines), default=0) + 2
    columns = _visible_columns(_FULL, width, longest)
    room = width - sum(column.width for column in columns)
    yield (("SPLIT".ljust(room) + "".join(column.title.rjust(column.width) for column in columns), _DIM),)
    for section in sections:
        yield _title(section, width)
        for line in section.lines:
            cells = _cells(line)
            name = _shortened(f"  {line.backend}", room - 1).ljust(room)
            yield (
                (name, _PLAIN),
                *((cells[column.title][0].rjust(column.width), cells[column.title][1]) for column in columns),
            )
        for remark in section.remarks:
            yield from (((text, _WARN),) for text in _wrap(remark, width, "  "))
    if not sections:
        yield from (((text, _PLAIN),) for text in _wrap(NO_SPLITS, width))


def _title(section: SplitSection, width: int) -> Row:
    """Return the line above the backends: the split, its address, and how many proxies hold it."""
    programmed, total = section.held
    style = _DIM if programmed == total else _WARN
    forms = (
        ["not in force"]
        if not section.port
        else [f"held by {programmed} of {total} proxies", f"{programmed}/{total} held"]
    )
    port = f" port {section.port}" if section.port else ""
    state = next((form for form in forms if len(section.name + port + section.address + form) + 4 <= width), forms[-1])
    room = width - len(state) - len(section.address) - 4
    name = _shortened(section.name, room - len(port)) + port
    return (
        (name, _BOLD),
        ("  " + section.address, _PLAIN),
        (state.rjust(width - len(name) - len(section.address) - 2), style),
    )


def _cells(line: BackendRow) -> dict[str, Part]:
    return {
        "WANTED": (_percent(line.wanted), _PLAIN),
        "OBSERVED": (_observed(line), _style(line)),
        "REQUESTS": (str(line.requests), _PLAIN),
        "REQ/S": (f"{line.rate:.1f}", _PLAIN),
        "FAILED": (str(line.failures), _BAD if line.failures else _DIM),
    }


def _observed(line: BackendRow) -> str:
    """Return the share; a mark says what the colour says where there is none."""
    return _percent(line.observed) + ("" if line.observed is None or line.fits else "!")


def _style(line: BackendRow) -> str:
    return _PLAIN if line.observed is None else _GOOD if line.fits else _WARN


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _compact_table(sections: Sequence[SplitSection], width: int) -> Iterator[Row]:
    """Yield one row for each split: its address, and the shares of its backends in the order of the split."""
    rows = [_summary(section) for section in sections]
    titles = ("ADDRESS", "WANTED %", "OBSERVED %", "HELD", "REQ/S", "FAILED")
    ranks = (0, 3, 0, 2, 1, 0)
    columns = (
        [
            _Column(title, max(len(title), *(len(row[title][0]) for row in rows), 0) + 2, rank)
            for title, rank in zip(titles, ranks, strict=True)
        ]
        if rows
        else []
    )
    names = [_display_name(section) for section in sections]
    shown = _visible_columns(columns, width, max(map(len, names), default=0))
    room = width - sum(column.width for column in shown)
    yield (("SPLIT".ljust(room) + "".join(column.title.rjust(column.width) for column in shown), _DIM),)
    for name, row in zip(names, rows, strict=True):
        cells = ((row[column.title][0].rjust(column.width), row[column.title][1]) for column in shown)
        yield ((_shortened(name, room).ljust(room), _PLAIN), *cells)


def _display_name(section: SplitSection) -> str:
    return section.name if section.address or not section.port else f"{section.name}:{section.port}"


def _summary(section: SplitSection) -> dict[str, Part]:
    programmed, total = section.held
    lines = section.lines
    observed = "/".join(_number(line.observed) for line in lines) + (
        "" if all(line.observed is None or line.fits for line in lines) else "!"
    )
    failures = sum(line.failures for line in lines)
    styles = {_style(line) for line in lines}
    return {
        "ADDRESS": (section.address or "-", _PLAIN),
        "WANTED %": ("/".join(_number(line.wanted) for line in lines) or "-", _PLAIN),
        "OBSERVED %": (observed or "-", _WARN if _WARN in styles else _GOOD if _GOOD in styles else _PLAIN),
        "HELD": (f"{programmed}/{total}", _DIM if programmed == total and section.port else _WARN),
        "REQ/S": (f"{sum(line.rate for line in lines):.1f}", _PLAIN),
        "FAILED": (str(failures), _BAD if failures else _DIM),
    }


def _number(share: float | None) -> str:
    return "-" if share is None else f"{share * 100:.1f}".removesuffix(".0")


def _visible_columns(columns: Sequence[_Column], width: int, names: int) -> list[_Column]:
    """Return the columns without those that must leave so that the longest name has room."""
    shown = list(columns)
    for rank in sorted({column.rank for column in columns} - {0}):
        if width - sum(column.width for column in shown) > names:
            break
        shown = [column for column in shown if column.rank != rank]
    return shown


def _shortened(name: str, room: int) -> str:
    """Shorten a name in its middle: names of one mesh often begin alike, and differ at their end."""
    if len(name) <= room:
        return name
    tail = max(room - 1, 0) // 2
    return name[: max(room - 1 - tail, 0)] + "…" + (name[-tail:] if tail else "")


def _wrap(text: str, width: int, indent: str = "") -> list[str]:
    """Return a message as lines that fit; its own lines stay apart, and nothing in it can move the cursor."""
    wrap: Callable[[str], list[str]] = textwrap.TextWrapper(
        width=width, initial_indent=indent, subsequent_indent=indent, drop_whitespace=False, replace_whitespace=False
    ).wrap
    return [part.rstrip() for line in text.splitlines() for part in wrap(_CONTROL.sub("", line))]
