"""The layout of the live table: rows that fit a terminal.

Without enough room, these shrink in this order: recent messages, other Services, the table (to one line for each
split), the less important columns, and last the names. Errors in files and the addresses of splits are always shown in
full.
"""

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple, TypeAlias

from headgate.resources.meta import Value

NO_SPLITS = "There is no TrafficSplit. Create one with kubectl, or add one to the directory of manifests."
LEAST_SPLITS = 3  # rows of splits that are shown even if urgent messages need more room
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_PLAIN, _DIM, _BOLD, _GOOD, _WARN, _BAD, _ROLLOUT = "", "dim", "bold", "green", "yellow", "bold red", "cyan"

Part: TypeAlias = tuple[str, str]
"""A text and its rich style."""
Row: TypeAlias = tuple[Part, ...]


class SplitRow(Value, frozen=True, kw_only=True):
    """A backend: shares from 0 to 1, and counts since the start of the table.

    `observed` (None without requests) and `rate`, in requests per second, cover the last seconds. They start again when
    the weights change.
    """

    backend: str
    wanted: float
    observed: float | None
    requests: int
    rate: float
    failures: int
    fits: bool


class SplitSection(Value, frozen=True, kw_only=True):
    """A split on a port of its root Service; port 0 if the split has no port.

    `acknowledged` is the number of proxies that have acknowledged the split, and the number of all proxies. `rollout` is
    the state of the Canary that owns the split. `remarks` has the conditions of the split that report a fault.
    """

    name: str
    port: int
    address: str
    acknowledged: tuple[int, int]
    backends: tuple[SplitRow, ...] = ()
    rollout: str = ""
    remarks: tuple[str, ...] = ()


class Screen(Value, frozen=True, kw_only=True):
    """The content of the table. `urgent` is always shown in full, `findings` as far as there is room below the splits.

    `other_addresses` has names and addresses of Services without a split, and of Gateways.
    """

    heading: tuple[str, ...] | Sequence[str] = ()
    sections: tuple[SplitSection, ...] = ()
    urgent: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    recent: tuple[str, ...] | Sequence[str] = ()
    other_addresses: tuple[tuple[str, str], ...] = ()


class _Column(NamedTuple):
    """A column of numbers.

    When names need room, the column with the lowest `rank` is hidden first; rank 0 is never hidden.
    """

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
    """Return the rows of the table, at most `width` wide, and at most `height` rows unless it is None."""
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
    room -= bool(screen.recent) and room > 1  # reserve a row for the latest message
    messages += _uncut(findings, room) if len(messages) == sum(map(len, urgent)) else []
    room = height - len(heading) - len(table) - len(messages)
    recent = [((text, _DIM),) for line in screen.recent for text in _wrap(line, width)][-room:] if room > 0 else []
    room -= len(recent)
    addresses = [
        ((_shortened(name, width - len(address) - 2) + "  " + address, _DIM),)
        for name, address in screen.other_addresses
    ]
    services = (
        _truncate([(("OTHER SERVICES", _DIM),), *addresses], room, "Services: kubectl get services -A")
        if addresses
        else []
    )
    return [_crop(row, width) for row in [*heading, *table, *messages, *services, *recent][:height]]


def _messages(texts: Iterable[str], width: int) -> list[list[Row]]:
    return [[((part, _WARN),) for part in _wrap(text, width)] for text in texts]


def _crop(row: Row, width: int) -> Row:
    """Return a row, cut to a width."""
    parts, left = [], width
    for text, style in row:
        parts.append((text[:left], style))
        left -= len(parts[-1][0])
    return tuple(parts)


def _truncate(rows: list[Row], room: int, hidden: str) -> list[Row]:
    """Return the header and the rows that fit into `room`, and a row with the number of hidden ones."""
    if len(rows) <= room:
        return rows
    if room < 3:
        return []
    return [*rows[: room - 1], ((f"and {len(rows) - room + 1} more {hidden}", _DIM),)]


def _uncut(messages: Sequence[Sequence[Row]], room: int) -> list[Row]:
    """Return the messages that fit in full, and a row with the number of hidden ones."""
    shown: list[Row] = []
    for number, message in enumerate(messages):
        left = len(messages) - number
        if len(shown) + len(message) + (left > 1) > room:
            return [*shown, ((f"and {left} more messages: kubectl get events, headgate check DIR", _WARN),)][:room]
        shown += message
    return shown


def _full_table(sections: Sequence[SplitSection], width: int) -> Iterator[Row]:
    """Yield a title row for each split, and a row for each of its backends."""
    longest = max((len(row.backend) for section in sections for row in section.backends), default=0) + 2
    columns = _visible_columns(_FULL, width, longest)
    room = width - sum(column.width for column in columns)
    yield (("SPLIT".ljust(room) + "".join(column.title.rjust(column.width) for column in columns), _DIM),)
    for section in sections:
        yield _title(section, width)
        for row in section.backends:
            cells = _cells(row)
            name = _shortened(f"  {row.backend}", room - 1).ljust(room)
            yield (
                (name, _PLAIN),
                *((cells[column.title][0].rjust(column.width), cells[column.title][1]) for column in columns),
            )
        yield from (((text, _ROLLOUT),) for text in _wrap(section.rollout, width, "  "))
        for remark in section.remarks:
            yield from (((text, _WARN),) for text in _wrap(remark, width, "  "))
    if not sections:
        yield from (((text, _PLAIN),) for text in _wrap(NO_SPLITS, width))


def _title(section: SplitSection, width: int) -> Row:
    """Return the title row of a split: name, address, and the number of proxies that have acknowledged the split."""
    programmed, total = section.acknowledged
    style = _DIM if programmed == total else _WARN
    forms = (
        ["not active"]
        if not section.port
        else [f"active on {programmed} of {total} proxies", f"{programmed}/{total} proxies"]
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


def _cells(row: SplitRow) -> dict[str, Part]:
    return {
        "WANTED": (_percent(row.wanted), _PLAIN),
        "OBSERVED": (_observed(row), _style(row)),
        "REQUESTS": (str(row.requests), _PLAIN),
        "REQ/S": (f"{row.rate:.1f}", _PLAIN),
        "FAILED": (str(row.failures), _BAD if row.failures else _DIM),
    }


def _observed(row: SplitRow) -> str:
    """Return the observed share, marked with `!` outside of its band, for terminals without color."""
    return _percent(row.observed) + ("" if row.observed is None or row.fits else "!")


def _style(row: SplitRow) -> str:
    return _PLAIN if row.observed is None else _GOOD if row.fits else _WARN


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _compact_table(sections: Sequence[SplitSection], width: int) -> Iterator[Row]:
    """Yield a row for each split: its address, and the shares of its backends in the order of the spec."""
    rows = [_summary(section) for section in sections]
    titles = ("ADDRESS", "WANTED %", "OBSERVED %", "PROXIES", "REQ/S", "FAILED")
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
    programmed, total = section.acknowledged
    backends = section.backends
    observed = "/".join(_number(row.observed) for row in backends) + (
        "" if all(row.observed is None or row.fits for row in backends) else "!"
    )
    failures = sum(row.failures for row in backends)
    styles = {_style(row) for row in backends}
    return {
        "ADDRESS": (section.address or "-", _PLAIN),
        "WANTED %": ("/".join(_number(row.wanted) for row in backends) or "-", _PLAIN),
        "OBSERVED %": (observed or "-", _WARN if _WARN in styles else _GOOD if _GOOD in styles else _PLAIN),
        "PROXIES": (f"{programmed}/{total}", _DIM if programmed == total and section.port else _WARN),
        "REQ/S": (f"{sum(row.rate for row in backends):.1f}", _PLAIN),
        "FAILED": (str(failures), _BAD if failures else _DIM),
    }


def _number(share: float | None) -> str:
    return "-" if share is None else f"{share * 100:.1f}".removesuffix(".0")


def _visible_columns(columns: Sequence[_Column], width: int, names: int) -> list[_Column]:
    """Return the columns that leave room for the longest name, `names` characters long."""
    shown = list(columns)
    for rank in sorted({column.rank for column in columns} - {0}):
        if width - sum(column.width for column in shown) > names:
            break
        shown = [column for column in shown if column.rank != rank]
    return shown


def _shortened(name: str, room: int) -> str:
    """Shorten a name in its middle: names in a mesh often start alike and differ at their end."""
    if len(name) <= room:
        return name
    tail = max(room - 1, 0) // 2
    return name[: max(room - 1 - tail, 0)] + "…" + (name[-tail:] if tail else "")


def _wrap(text: str, width: int, indent: str = "") -> list[str]:
    """Return the lines of a message, wrapped to a width and without control characters."""
    wrap: Callable[[str], list[str]] = textwrap.TextWrapper(
        width=width,
        initial_indent=indent,
        subsequent_indent=indent,
        drop_whitespace=False,
        replace_whitespace=False,
        break_on_hyphens=False,
    ).wrap
    return [part.rstrip() for line in text.splitlines() for part in wrap(_CONTROL.sub("", line))]
