"""The live table of `headgate up --watch`: each split, each backend, what it should get and what it gets."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from headgate.cli.output import stdout
from headgate.cli.shares import Fit, fits, root_of, wanted
from headgate.compiler.reasons import Condition
from headgate.compiler.report import Finding
from headgate.control.machine import Machine
from headgate.control.observed import Count, Counters, Observed
from headgate.errors import ProxyError
from headgate.model.refs import PortRef
from headgate.resources.meta import Object, Value
from headgate.resources.registry import SERVICE, TRAFFIC_SPLIT

REFRESH_S = 0.5
PLAIN_S = 5.0
RECENT_S = 10.0
COLUMNS = (("WANTED", 7), ("OBSERVED", 8), ("REQUESTS", 10), ("REQ/S", 7), ("FAILED", 7))
NOT_ACCEPTED = "Invalid"  # what `Programmed` says of a split that another condition explains
NONE = "There is no TrafficSplit. Create one with kubectl, or in the directory of manifests."

Claim = tuple[PortRef, str]
"""A Service port, and the split whose groups the requests fit; an empty name stands for requests that fit none."""
Counts = Mapping[tuple[Claim, str], Count]


class Line(Value, frozen=True, kw_only=True):
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


class Section(Value, frozen=True, kw_only=True):
    """One split on one port of its root, with what is wrong with it."""

    title: str
    state: str
    lines: tuple[Line, ...] = ()
    remarks: tuple[str, ...] = ()


class Moment(NamedTuple):
    """Counters and when they were read, in seconds."""

    time: float
    counts: Counts


class History:
    """The first reading, those of the last seconds, and for each port the one since which the shares are as wanted now."""

    def __init__(self) -> None:
        self._moments: deque[Moment] = deque()
        self._first: Moment | None = None
        self._wanted: dict[Claim, tuple[Sequence[float], Moment | None]] = {}

    def add(self, time: float, observed: Iterable[Observed]) -> None:
        """Take a reading."""
        counts = {
            ((item.ref, item.split), item.backend): Count(item.requests, item.failures, item.unreachable)
            for item in observed
        }
        moment = Moment(time, counts)
        self._first = self._first or moment
        self._moments.append(moment)
        while len(self._moments) > 1 and self._moments[1].time <= time - RECENT_S:
            self._moments.popleft()

    def total(self, claim: Claim) -> Mapping[str, Count]:
        """Return what each backend got since the first reading."""
        return self._growth(claim, self._first)

    def recent(self, claim: Claim, wanted: Sequence[float]) -> tuple[Mapping[str, Count], float]:
        """Return what each backend got of late, since these shares are wanted, and in how many seconds."""
        if not self._moments:
            return {}, 0.0
        if claim not in self._wanted:
            self._wanted[claim] = wanted, None
        elif self._wanted[claim][0] != wanted:
            self._wanted[claim] = wanted, self._moments[-1]
        since = self._wanted[claim][1]
        oldest = since if since and since.time > self._moments[0].time else self._moments[0]
        return self._growth(claim, oldest), self._moments[-1].time - oldest.time

    def _growth(self, claim: Claim, since: Moment | None) -> Mapping[str, Count]:
        if since is None:
            return {}
        now = self._moments[-1].counts
        return {
            backend: count.since(since.counts.get((at, backend), Count()))
            for (at, backend), count in now.items()
            if at == claim
        }


def sections(splits: Iterable[Object], history: History) -> Iterator[Section]:
    """Yield what the table shows, in the order of the splits."""
    for split in splits:
        metadata = split["metadata"]
        name = f"{metadata['namespace']}/{metadata['name']}"
        status = split.get("status") or {}
        remarks = tuple(_remarks(status.get("conditions") or ()))
        proxies = status.get("proxies") or {}
        state = (
            f"held by {proxies['programmed']} of {proxies['total']} proxies" if status.get("ports") else "not in force"
        )
        ports = [entry["port"] for entry in status.get("ports") or ()]
        for port in ports:
            last = remarks if port == ports[-1] else ()
            lines = tuple(_lines(split, port, history))
            yield Section(title=f"{name} port {port}", state=state, lines=lines, remarks=last)
        if not ports:
            yield Section(title=name, state=state, remarks=remarks)


def _remarks(conditions: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield what is not as it should be, once: `Conflicted` is well when False, and what is refused is not programmed."""
    for condition in conditions:
        programmed = condition["type"] == "Programmed" and condition["reason"] == NOT_ACCEPTED
        follows = programmed or condition["type"] == "Conflicted"
        if condition["status"] == "False" and not follows:
            yield f"{condition['reason']}: {condition['message']}"


def _lines(split: Object, port: int, history: History) -> Iterator[Line]:
    want = wanted(root_of(split), port, [split])
    claim = PortRef(want.service, port), want.split if split["spec"].get("matches") else ""
    totals = {backend: count for backend, count in history.total(claim).items() if count.requests}
    overall = _by_backend(fits(want, _requests(totals)))
    recents, seconds = history.recent(claim, [fit.wanted for fit in overall.values()])
    of_late = _by_backend(fits(want, _requests(recents)))
    for backend, fit in overall.items():
        late = of_late.get(backend)
        count, recent = totals.get(backend, Count()), recents.get(backend, Count())
        yield Line(
            backend=backend,
            wanted=fit.wanted,
            observed=late.observed if late and sum(_requests(recents).values()) else None,
            requests=count.requests,
            rate=recent.requests / seconds if seconds else 0.0,
            failures=count.failures,
            fits=late is None or late.fits,
        )


def _requests(counts: Mapping[str, Count]) -> Counter[str]:
    return Counter({backend: count.requests for backend, count in counts.items() if count.requests})


def _by_backend(rows: Iterable[Fit]) -> dict[str, Fit]:
    return {row.backend: row for row in rows}


def service_faults(findings: Iterable[Finding]) -> Iterator[str]:
    """Yield what keeps Services from answering as they are written, whether or not a split names them."""
    for finding in findings:
        if finding.about.kind == SERVICE.kind and finding.reason.condition is Condition.RESOLVED_REFS:
            yield f"{finding.about}: {finding.message}"


def render(found: Sequence[Section], trouble: str = "", faults: Iterable[str] = ()) -> Group:
    """Draw the table; `trouble` says why it is not of this moment, `faults` are about Services."""
    parts: list[Table | Text | Padding] = [_frame(header=True)]
    for section in found:
        parts.append(_title(section))
        frame = _frame(header=False)
        for line in section.lines:
            frame.add_row(*_cells(line))
        if section.lines:
            parts.append(frame)
        parts += [Padding(Text(remark, style="yellow"), (0, 0, 0, 2)) for remark in section.remarks]
    if not found:
        parts.append(Text(NONE))
    parts += [Text(fault, style="yellow") for fault in faults]
    if trouble:
        parts.append(Text(trouble, style="bold red"))
    return Group(*parts)


def _title(section: Section) -> Table:
    """Return the line above the backends: the split, and how many proxies hold it."""
    line = Table.grid(expand=True)
    line.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    line.add_column(justify="right", no_wrap=True)
    line.add_row(Text(section.title, style="bold"), Text(section.state, style="dim"))
    return line


def _frame(*, header: bool) -> Table:
    """Return an empty table; all of them have the same widths, so that they stand as one."""
    frame = Table(box=None, expand=True, pad_edge=False, show_header=header, header_style="dim")
    frame.add_column("SPLIT", ratio=1, no_wrap=True, overflow="ellipsis")
    for title, width in COLUMNS:
        frame.add_column(title, width=width, justify="right", no_wrap=True)
    return frame


def _cells(line: Line) -> Sequence[str | Text]:
    style = "" if line.observed is None else "green" if line.fits else "yellow"
    failed = Text(str(line.failures), style="bold red" if line.failures else "dim")
    return (
        f"  {line.backend}",
        _percent(line.wanted),
        Text(_percent(line.observed), style=style),
        str(line.requests),
        f"{line.rate:.1f}",
        failed,
    )


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


async def watch_table(machine: Machine, counters: Counters, console: Console | None = None) -> None:
    """Show the table until cancelled: in place on a terminal, anew every few seconds elsewhere."""
    screen = console or stdout()
    pictures = _pictures(machine, counters, REFRESH_S if screen.is_terminal else PLAIN_S)
    if not screen.is_terminal:
        async for picture in pictures:
            screen.print(picture)
        return
    with Live(console=screen, auto_refresh=False) as live:
        async for picture in pictures:
            live.update(picture, refresh=True)


async def _pictures(machine: Machine, counters: Counters, every: float) -> AsyncIterator[Group]:
    history = History()
    loop = asyncio.get_running_loop()
    while True:
        trouble = ""
        try:
            history.add(loop.time(), await counters.read())
        except ProxyError as error:
            trouble = str(error)
        splits = (await machine.store.list(TRAFFIC_SPLIT.group, TRAFFIC_SPLIT.kind)).items
        yield render(list(sections(splits, history)), trouble, service_faults(machine.findings()))
        await asyncio.sleep(every)
