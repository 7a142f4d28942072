"""The live table of `headgate up --watch`: for each backend of a split, its configured and observed share."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from headgate.cli.messages import Messages
from headgate.cli.output import stdout
from headgate.cli.rollout_status import summary
from headgate.cli.screen import Screen, SplitRow, SplitSection, compose
from headgate.cli.shares import fits, of_outcome, root_of
from headgate.compiler.report import Finding, SplitOutcome
from headgate.errors import ProxyError
from headgate.model.routing import PortRef
from headgate.plane.live_state import LiveState
from headgate.resources.inspect import Severity
from headgate.resources.meta import Key, Object, annotations_of
from headgate.resources.registry import CANARY, TRAFFIC_SPLIT, key_of
from headgate.resources.smi.split_fields import STICKY
from headgate.standalone.request_counters import BackendRequests, Count, RequestCounters

REFRESH_S = 0.5  # Seconds between refreshes of the table on a terminal.
PRINT_S = 5.0  # Seconds between printed tables without a terminal, for example in a pipe.
RECENT_S = 10.0  # Seconds of traffic from which the observed shares are computed.
NOT_ACCEPTED = "Invalid"  # The reason in `Programmed` if `Accepted` is False; only `Accepted` states the cause.

CountKey = tuple[PortRef, str]
"""A Service port, and the split that matches the counted requests: `namespace/name`, or empty if no split matches."""
Counts = Mapping[tuple[CountKey, str], Count]


class TimedCounters(NamedTuple):
    """Counters and the time when they were read, in seconds."""

    time: float
    counts: Counts


class ReadingHistory:
    """The readings that the table needs.

    These are the first reading, the readings of the last RECENT_S seconds, and for each port the reading at the last
    change to its shares.
    """

    def __init__(self) -> None:
        self._readings: deque[TimedCounters] = deque()
        self._first: TimedCounters | None = None
        self._wanted: dict[CountKey, tuple[Sequence[float], TimedCounters | None]] = {}

    def add(self, time: float, observed: Iterable[BackendRequests]) -> None:
        """Add a reading of all counters at `time`, in seconds."""
        counts = {
            ((requests.ref, requests.split), requests.backend): Count(requests.requests, requests.failures)
            for requests in observed
        }
        reading = TimedCounters(time, counts)
        self._first = self._first or reading
        self._readings.append(reading)
        while len(self._readings) > 1 and self._readings[1].time <= time - RECENT_S:
            self._readings.popleft()

    def total(self, key: CountKey) -> Mapping[str, Count]:
        """Return the counts of each backend since the first reading."""
        return self._increase(key, self._first)

    def recent(self, key: CountKey, windows: Sequence[float]) -> tuple[Mapping[str, Count], float]:
        """Return the recent counts of each backend, and the seconds that they cover.

        They cover RECENT_S, or the time since the last change to the shares if that is shorter.
        """
        if not self._readings:
            return {}, 0.0
        if key not in self._wanted:
            self._wanted[key] = windows, None
        elif self._wanted[key][0] != windows:
            self._wanted[key] = windows, self._readings[-1]
        since = self._wanted[key][1]
        oldest = since if since and since.time > self._readings[0].time else self._readings[0]
        return self._increase(key, oldest), self._readings[-1].time - oldest.time

    def _increase(self, key: CountKey, since: TimedCounters | None) -> Mapping[str, Count]:
        if since is None:
            return {}
        now = self._readings[-1].counts
        return {
            backend: count.since(since.counts.get((at, backend), Count()))
            for (at, backend), count in now.items()
            if at == key
        }


def sections(
    splits: Iterable[Object],
    outcomes: Iterable[SplitOutcome],
    history: ReadingHistory,
    *,
    addresses: Mapping[str, Mapping[str, str]] | None = None,
    rollouts: Mapping[str, str] | None = None,
) -> Iterator[SplitSection]:
    """Yield a section for each port of each split.

    `addresses` has the Services' addresses, by Service and port. `rollouts` are lines about rollouts, by split.
    """
    outcomes_of: dict[Key, list[SplitOutcome]] = {}
    for outcome in outcomes:
        outcomes_of.setdefault(outcome.about, []).append(outcome)
    for split in splits:
        metadata = split["metadata"]
        name = f"{metadata['namespace']}/{metadata['name']}"
        status = split.get("status") or {}
        remarks = tuple(_condition_remarks(status.get("conditions") or ()))
        proxies = status.get("proxies") or {}
        on_ports = outcomes_of.get(key_of(split), [])
        acknowledged = (proxies.get("programmed", 0), proxies.get("total", 0)) if on_ports else (0, 0)
        addresses_by_port = (addresses or {}).get(root_of(split), {})
        for outcome in on_ports:
            is_last = outcome is on_ports[-1]
            yield SplitSection(
                name=name,
                port=outcome.ref.port,
                address=addresses_by_port.get(str(outcome.ref.port), ""),
                acknowledged=acknowledged,
                backends=tuple(_backend_rows(split, outcome, history)),
                rollout=(rollouts or {}).get(name, "") if is_last else "",
                remarks=remarks if is_last else (),
            )
        if not on_ports:
            yield SplitSection(name=name, port=0, address="", acknowledged=acknowledged, remarks=remarks)


def _condition_remarks(conditions: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the conditions that report a fault.

    For `Conflicted`, False is the good status. `Programmed` is left out if it only repeats that the
    split is not accepted.
    """
    for condition in conditions:
        programmed = condition["type"] == "Programmed" and condition["reason"] == NOT_ACCEPTED
        follows = programmed or condition["type"] == "Conflicted"
        if condition["status"] == "False" and not follows:
            yield f"{condition['reason']}: {condition['message']}"


def _backend_rows(split: Object, outcome: SplitOutcome, history: ReadingHistory) -> Iterator[SplitRow]:
    want = of_outcome(outcome)
    key = outcome.ref, want.split if split["spec"].get("matches") else ""
    recent, seconds = history.recent(key, [float(share) for _, share in want.shares])
    counts = Counter({backend: count.requests for backend, count in recent.items() if count.requests})
    totals = {backend: count for backend, count in history.total(key).items() if count.requests}
    by_user = STICKY in annotations_of(split)  # requests of one user are not independent samples
    for fit in fits(want, counts):
        total = totals.get(fit.backend, Count())
        yield SplitRow(
            backend=fit.backend,
            wanted=fit.wanted,
            observed=fit.observed if counts else None,
            requests=total.requests,
            rate=counts[fit.backend] / seconds if seconds else 0.0,
            failures=total.failures,
            fits=fit.fits or (by_user and fit.wanted > 0),
        )


async def watch_table(
    live_state: LiveState, counters: RequestCounters, messages: Messages, console: Console | None = None
) -> None:
    """Show the table until canceled: full-screen on a terminal, else printed every PRINT_S seconds."""
    terminal = console or stdout(folds=True)
    full_screen = terminal.is_terminal and not terminal.is_dumb_terminal
    screens = _screens(live_state, counters, messages, REFRESH_S if full_screen else PRINT_S)
    if not full_screen:
        async for screen in screens:
            terminal.print(_render(screen, terminal.width, None))
        return
    screen = Screen()
    try:
        with messages.on_screen(), Live(console=terminal, auto_refresh=False, screen=True) as live:
            async for screen in screens:
                live.update(_render(screen, terminal.width, terminal.height), refresh=True)
    finally:
        terminal.print(_render(screen, terminal.width, None))  # leaving the full screen has erased the table


def _render(screen: Screen, width: int, height: int | None) -> Group:
    rows = compose(screen, width, height)
    return Group(*(Text.assemble(*row, no_wrap=True, overflow="crop") for row in rows))


async def _screens(
    live_state: LiveState, counters: RequestCounters, messages: Messages, every: float
) -> AsyncIterator[Screen]:
    history = ReadingHistory()
    loop = asyncio.get_running_loop()
    while True:
        errors: tuple[str, ...] = ()
        try:
            history.add(loop.time(), await counters.read())
        except ProxyError as error:
            errors = (str(error),)
        splits = (await live_state.store.list(TRAFFIC_SPLIT.group, TRAFFIC_SPLIT.kind)).items
        canaries = (await live_state.store.list(CANARY.group, CANARY.kind)).items
        rollouts = {f"{key.namespace}/{key.name}": summary(obj) for obj in canaries for key in [key_of(obj)]}
        addresses = live_state.services()
        compiled = live_state.loop.compiled.get()
        outcomes = compiled.report.outcomes if compiled else ()
        roots = {root_of(split) for split in splits}
        other_services = {name: ", ".join(ports.values()) for name, ports in addresses.items() if name not in roots}
        gateways = {f"gateway {name}": ", ".join(ports.values()) for name, ports in live_state.gateways().items()}
        yield Screen(
            heading=messages.heading,
            sections=tuple(sections(splits, outcomes, history, addresses=addresses, rollouts=rollouts)),
            urgent=(*messages.problems, *errors),
            findings=(*messages.pods, *counters.ejections, *other_findings(live_state.findings())),
            recent=messages.recent,
            other_addresses=tuple((other_services | gateways).items()),
        )
        await asyncio.sleep(every)


def other_findings(findings: Iterable[Finding]) -> Iterator[str]:
    """Yield the findings on objects other than splits; the table shows a split's conditions below the split."""
    for finding in findings:
        if finding.reason.severity is not Severity.NOTE and finding.about.kind != TRAFFIC_SPLIT.kind:
            where = f"{finding.about}: {finding.field}" if finding.field else f"{finding.about}"
            yield f"{finding.reason.value} {where}: {finding.message}"
