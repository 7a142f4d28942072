"""What the live table of `headgate up --watch` shows: each split, each backend, what it should get and what it gets."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from headgate.cli.messages import Messages
from headgate.cli.output import stdout
from headgate.cli.screen import Line, Picture, Section, compose
from headgate.cli.shares import fits, root_of, wanted
from headgate.compiler.reasons import Severity
from headgate.compiler.report import Finding
from headgate.errors import ProxyError
from headgate.model.routing import PortRef
from headgate.plane.machine import Machine
from headgate.resources.meta import Object
from headgate.resources.registry import TRAFFIC_SPLIT
from headgate.resources.smi import STICKY
from headgate.standalone.request_counters import BackendRequests, Count, RequestCounters

REFRESH_S = 0.5
PLAIN_S = 5.0
RECENT_S = 10.0
NOT_ACCEPTED = "Invalid"  # what `Programmed` says of a split that another condition explains

Claim = tuple[PortRef, str]
"""A Service port, and the split whose groups the requests fit; an empty name stands for requests that fit none."""
Counts = Mapping[tuple[Claim, str], Count]


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

    def add(self, time: float, observed: Iterable[BackendRequests]) -> None:
        """Take a reading."""
        counts = {((item.ref, item.split), item.backend): Count(item.requests, item.failures) for item in observed}
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


def sections(
    splits: Iterable[Object], history: History, addresses: Mapping[str, Mapping[str, str]] | None = None
) -> Iterator[Section]:
    """Yield what the table shows, in the order of the splits; `addresses` are those of Services, by port."""
    for split in splits:
        metadata = split["metadata"]
        name = f"{metadata['namespace']}/{metadata['name']}"
        status = split.get("status") or {}
        remarks = tuple(_remarks(status.get("conditions") or ()))
        proxies = status.get("proxies") or {}
        ports = [entry["port"] for entry in status.get("ports") or ()]
        held = (proxies.get("programmed", 0), proxies.get("total", 0)) if ports else (0, 0)
        places = (addresses or {}).get(root_of(split), {})
        for port in ports:
            last = remarks if port == ports[-1] else ()
            lines = tuple(_lines(split, port, history))
            place = places.get(str(port), "")
            yield Section(name=name, port=port, address=place, held=held, lines=lines, remarks=last)
        if not ports:
            yield Section(name=name, port=0, address="", held=held, remarks=remarks)


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
    recents, seconds = history.recent(claim, [float(share) for _, share in want.shares])
    counts = Counter({backend: count.requests for backend, count in recents.items() if count.requests})
    totals = {backend: count for backend, count in history.total(claim).items() if count.requests}
    by_user = STICKY in (split["metadata"].get("annotations") or {})  # requests of one user are no independent draws
    for fit in fits(want, counts):
        total = totals.get(fit.backend, Count())
        yield Line(
            backend=fit.backend,
            wanted=fit.wanted,
            observed=fit.observed if counts else None,
            requests=total.requests,
            rate=counts[fit.backend] / seconds if seconds else 0.0,
            failures=total.failures,
            fits=fit.fits or (by_user and fit.wanted > 0),
        )


async def watch_table(
    machine: Machine, counters: RequestCounters, messages: Messages, console: Console | None = None
) -> None:
    """Show the table until cancelled: a terminal shows it full-screen, other outputs get it every few seconds."""
    screen = console or stdout(folds=True)
    whole = screen.is_terminal and not screen.is_dumb_terminal
    pictures = _pictures(machine, counters, messages, REFRESH_S if whole else PLAIN_S)
    if not whole:
        async for picture in pictures:
            screen.print(_drawn(picture, screen.width, None))
        return
    picture = Picture()
    try:
        with messages.on_screen(), Live(console=screen, auto_refresh=False, screen=True) as live:
            async for picture in pictures:
                live.update(_drawn(picture, screen.width, screen.height), refresh=True)
    finally:
        screen.print(_drawn(picture, screen.width, None))  # the terminal shows again what it showed before


def _drawn(picture: Picture, width: int, height: int | None) -> Group:
    rows = compose(picture, width, height)
    return Group(*(Text.assemble(*row, no_wrap=True, overflow="crop") for row in rows))


async def _pictures(
    machine: Machine, counters: RequestCounters, messages: Messages, every: float
) -> AsyncIterator[Picture]:
    history = History()
    loop = asyncio.get_running_loop()
    while True:
        trouble: tuple[str, ...] = ()
        try:
            history.add(loop.time(), await counters.read())
        except ProxyError as error:
            trouble = (str(error),)
        splits = (await machine.store.list(TRAFFIC_SPLIT.group, TRAFFIC_SPLIT.kind)).items
        addresses = machine.services()
        roots = {root_of(split) for split in splits}
        others = {name: ", ".join(ports.values()) for name, ports in addresses.items() if name not in roots}
        gateways = {f"gateway {name}": ", ".join(ports.values()) for name, ports in machine.gateways().items()}
        yield Picture(
            heading=messages.heading,
            sections=tuple(sections(splits, history, addresses)),
            urgent=(*messages.problems, *trouble),
            findings=(*messages.pods, *about_others(machine.findings())),
            news=messages.news,
            places=tuple((others | gateways).items()),
        )
        await asyncio.sleep(every)


def about_others(findings: Iterable[Finding]) -> Iterator[str]:
    """Yield what is wrong with other objects than splits, which have it beneath them."""
    for finding in findings:
        if finding.reason.severity is not Severity.NOTE and finding.about.kind != TRAFFIC_SPLIT.kind:
            where = f"{finding.about}: {finding.field}" if finding.field else f"{finding.about}"
            yield f"{finding.reason.value} {where}: {finding.message}"
