"""Writes what the compiler and the proxies say onto the users' objects: conditions, shares, Events.

Off the path of publishing: it looks at the latest state when something changed, a moment later, judges the objects that this
touched (`agenda`), and writes what differs. It works in slices and rests in between, so that it never holds up the streams.
"""

import asyncio
import logging
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

from headgate.compiler.report import Compiled, Finding
from headgate.envoy.view import SIDECAR
from headgate.errors import Conflict, NotFound, StoreError
from headgate.kinds import ACCESS, GATEWAY, MESH, SPLIT
from headgate.latest import Latest, until
from headgate.objects.ports import Ports
from headgate.plane.loop import Loop
from headgate.plane.status.conditions import ObjectReport, StatusInputs, service_status, split_status, summary
from headgate.plane.status.finding_events import FindingEvents
from headgate.plane.status.findings import dropped_copies, faults, refusals
from headgate.plane.status.gateway_api import class_status, gateway_status, route_status
from headgate.plane.status.mesh import mesh_status, names_in
from headgate.plane.status.receipts import AckStates, Receipts
from headgate.plane.status.work_queue import Observation, ReportIndex, StatusQueue
from headgate.resources.meta import Key, Object, timestamp
from headgate.resources.registry import SERVICE, key_of
from headgate.xds.fleet import Fleet, Proxy

SETTLE_SECONDS = 0.02  # lets the proxies' answers to a change arrive, so that one status tells it all
PATIENCE_SECONDS = 0.25  # at most without news of any proxy, if they take longer
LONGEST_SECONDS = 1.0  # at most for all answers, and between two looks
SLICE_SECONDS = 0.02  # of work; then the streams have their turn
REST = 3  # times as long as the work took
LOOK_REST = 9  # the same between two looks at the proxies, and between two rounds
COMING_SECONDS, LONGEST_COMING_SECONDS = 0.25, 2.0  # without a proxy that comes or goes before a round, and at most
TOGETHER = 32  # proxies that are looked at without a turn for other tasks
AGAIN_SECONDS = 1.0  # until a write that failed, or an Event that was held back, is tried again
_Judge = Callable[[Object, ObjectReport, StatusInputs], Mapping[str, Any] | None]
STATUSES: Mapping[tuple[str, str], _Judge] = {
    (SPLIT, "TrafficSplit"): split_status,
    (GATEWAY, "GatewayClass"): class_status,
    (GATEWAY, "Gateway"): gateway_status,
    (GATEWAY, "HTTPRoute"): route_status,
    (GATEWAY, "GRPCRoute"): route_status,
    (GATEWAY, "TCPRoute"): route_status,
    (MESH, "TLSConfig"): mesh_status,
    (ACCESS, "TrafficTarget"): mesh_status,
}
"""The kinds whose status headgate writes: each with the function that returns it, or None to leave it alone."""
_OF_FAULTS: Mapping[tuple[str, str], _Judge] = {(SERVICE.group, SERVICE.kind): service_status}
"""Kinds that get a status only when something is wrong: to look at each of their objects each time would cost too much."""

log = logging.getLogger(__name__)


class StatusWriter:
    """Keeps `status` and Events of the users' objects true. `judged` counts how often each object's was computed."""

    def __init__(self, ports: Ports, loop: Loop, fleet: Fleet, dropped: Latest[Mapping[str, int]]) -> None:
        """`dropped` are copies that are dropped now, by the name of the mirror's cluster."""
        self.judged: Counter[Key] = Counter()
        self._dropped = dropped
        self._store = ports.objects
        self._loop = loop
        self._compiled = loop.compiled
        self._faults = loop.credentials.faults
        self._mtls_migration = loop.mtls_migration
        self._fleet = fleet
        self._events = ports.events
        self._active = ports.active
        self._announcements = FindingEvents(self._store, self._events)
        self._shares: dict[Key, str] = {}
        self._withheld: set[Key] = set()
        self._wake = asyncio.Event()
        self._agenda = StatusQueue(STATUSES, _OF_FAULTS)
        self._standings = AckStates()
        self._look: Observation | None = None
        self._found: dict[Key, tuple[int, Any]] = {}  # generation and status of each object when it was judged
        self._again: dict[Key, None] = {}
        self._pace = Pace()
        self._timer: asyncio.TimerHandle | None = None  # wakes up for what could not be done yet
        self._timed = 0.0  # when, by the event loop's clock
        self._late: Proxy | None = None  # one that is about to answer

    async def run(self) -> None:
        """Write for ever, when this control plane is the active one. A write that fails is repeated a second later."""
        await until(self._active.get, self._active)

        async def follow(cell: Latest[Any]) -> None:
            async for _ in cell.changes():
                self._wake.set()

        async with asyncio.TaskGroup() as group:
            group.create_task(follow(self._compiled), name="status follows builds")
            group.create_task(follow(self._fleet.change_count), name="status follows proxies")
            group.create_task(follow(self._faults), name="status follows certificates")
            group.create_task(follow(self._dropped), name="status follows mirrors")
            while True:
                if self._agenda.is_empty:
                    await self._wake.wait()
                await asyncio.sleep(self._pace.pause())
                if self._wake.is_set():
                    self._wake.clear()
                    self._pace.notice(self._fleet.change_count.get())
                    if self._is_look_due():
                        self._pace.begin_look()
                        await self._take_look()
                self._pace.begin()
                await self._work()
                self._plan_round()
                self._pace.end()

    def _is_look_due(self) -> bool:
        """Say whether to look at the proxies now: not while some are about to answer; wake up when it is time."""
        left = self._pace.patience()
        if left > 0:
            self._late = self._fleet.find(lambda proxy: proxy.session is not None and not proxy.settled(), self._late)
        left = max(left if self._late else 0.0, self._pace.until_look())
        if left > 0:
            self._wake_in(left)
        return left <= 0

    def _wake_in(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + seconds
        if not loop.time() < self._timed <= due:
            if self._timer:
                self._timer.cancel()
            self._timer, self._timed = loop.call_at(due, self._wake_now), due

    def _wake_now(self) -> None:
        self._timed = 0.0  # uvloop may be early
        self._wake.set()

    async def _take_look(self) -> None:
        """Note what changed since the last look."""
        compiled = self._compiled.get()
        if compiled is None:
            return
        before = self._look
        is_built = before is None or before.reported.compiled is not compiled
        reported = ReportIndex(compiled) if before is None or is_built else before.reported
        receipts = await self._receipts()
        awaited = self._mtls_migration.pending_proxies() if reported.underway else ()
        unnamed = frozenset(self._unnamed(compiled))
        look = self._look = Observation(reported, receipts, self._findings(compiled, receipts), unnamed, awaited)
        self._agenda.take(look)
        if before and before.receipts.census != receipts.census:
            self._pace.coming.note()
        if is_built:
            for key in self._announcements.keys() - compiled.report.seen.keys():
                self._forget(key)
            self._agenda.touch([key async for key in self._overwritten()])

    async def _receipts(self) -> Receipts:
        """Return what the proxies hold; other tasks have their turns meanwhile."""
        receipts, began = Receipts(standings=self._standings), time.monotonic()
        for number, proxy in enumerate(self._fleet.configured(), 1):
            receipts.add(proxy)
            if number % TOGETHER == 0:
                self._pace.spend_on_look(time.monotonic() - began)
                await asyncio.sleep(0)
                began = time.monotonic()
        self._standings.keep(receipts.of)
        return receipts

    def _plan_round(self) -> None:
        """Begin a round over all objects if proxies came or went, once it is time; wake up then."""
        if not self._agenda.is_round_due:
            return
        if (left := self._pace.until_round()) <= 0:
            self._agenda.begin_round()
            self._pace.begin_round()
        else:
            self._wake_in(left)

    def _findings(self, compiled: Compiled, receipts: Receipts) -> Mapping[Key, tuple[Finding, ...]]:
        """Return what there is to say beside the build's report, by object."""
        refusing = (one for standing, node_ids in receipts.alike.items() if standing.refused for one in node_ids)
        proxies = (proxy for node_id in refusing if (proxy := self._fleet.proxies.get(node_id)))
        found: dict[Key, tuple[Finding, ...]] = defaultdict(tuple)
        for finding in (
            *refusals(compiled, proxies),
            *faults(self._faults.get()),
            *dropped_copies(compiled.mesh, self._dropped.get()),
        ):
            found[finding.about] += (finding,)
        return found

    def _unnamed(self, compiled: Compiled) -> Iterator[str]:
        """Yield the workloads whose certificate does not carry all names yet that it is to carry (R75)."""
        for item in compiled.mesh.workloads:
            credential = self._loop.credential_of(f"{SIDECAR}/{item.name}") if item.subjects else None
            if item.subjects and not (credential and names_in(credential.chain).issuperset(item.subjects)):
                yield item.name

    async def _overwritten(self) -> AsyncIterator[Key]:
        """Yield objects that are not as they were judged: made again with the same content, or with another's status."""
        for group, kind in STATUSES:
            for obj in (await self._store.list(group, kind)).items:
                key = key_of(obj)
                if key in self._found and self._found[key] != _found(obj):
                    yield key

    def _forget(self, key: Key) -> None:
        """Drop what is known of an object that is gone."""
        self._announcements.forget(key)
        self._shares.pop(key, None)
        self._withheld.discard(key)
        self._found.pop(key, None)
        del self.judged[key]

    async def _work(self) -> None:
        """Judge what is on the agenda, for the time of a slice."""
        look = self._look
        if look is None:
            return
        present = StatusInputs(look.receipts, timestamp(time.time()), look.awaited)
        while found := self._agenda.next():
            key, in_round = found
            began = time.monotonic()
            if not await self._tell(key, look.said(key), present):
                self._try_again(key)
            if in_round:
                self._pace.spend_on_round(time.monotonic() - began)
            if self._pace.is_slice_over:
                return

    def _try_again(self, key: Key) -> None:
        if not self._again:
            asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._touch_again)
        self._again[key] = None

    def _touch_again(self) -> None:
        self._agenda.touch(self._again)
        self._again = {}
        self._wake.set()

    async def _tell(self, key: Key, said: ObjectReport, present: StatusInputs) -> bool:
        try:
            obj = await self._store.get(key)
            held = await self._announcements.held(key, obj, said.findings)
            fresh = await self._write(key, obj, said, present, announce=not held)
            findings = [finding for finding in said.findings if finding not in held]
            await self._announcements.announce(key, obj, findings, fresh=fresh)
        except NotFound:
            self._found.pop(key, None)
            return True
        except Conflict:
            return False
        except StoreError as error:
            log.warning("the status of %s can't be written: %s", key, error)
            return False
        return not held

    async def _write(self, key: Key, obj: Object, said: ObjectReport, present: StatusInputs, *, announce: bool) -> bool:
        """Write an object's status where it differs, and an Event about its shares; return whether it differs."""
        self.judged[key] += 1
        kind = (key.group, key.kind)
        judge = STATUSES.get(kind) or _OF_FAULTS.get(kind)
        status = judge(obj, said, present) if judge else None
        self._found[key] = _found(obj)
        if status is None:
            return True
        fresh = status != obj.get("status")
        if fresh:
            self._found[key] = _found(await self._store.update({**obj, "status": status}, subresource="status"))
        if not announce:
            self._withheld.add(key)
        elif said.outcomes and _is_programmed(status):
            await self._announce_shares(key, obj, summary(said.outcomes), fresh=fresh or key in self._withheld)
            self._withheld.discard(key)
        return fresh

    async def _announce_shares(self, key: Key, obj: Object, text: str, *, fresh: bool) -> None:
        """Write an Event when every proxy holds other shares than before."""
        known = self._shares.get(key)
        self._shares[key] = text
        if known != text and (known or fresh):
            reason = "WeightsChanged" if known else "Programmed"
            await self._events.record(obj, type="Normal", reason=reason, message=f"every proxy holds {text}")


def _is_programmed(status: Mapping[str, Any]) -> bool:
    return any(item["type"] == "Programmed" and item["status"] == "True" for item in status.get("conditions", ()))


def _found(obj: Object) -> tuple[int, Any]:
    return obj["metadata"].get("generation", 0), obj.get("status")


class Settling:
    """Waits until nothing happens for a while, but not for longer than a while from the first time. Times are seconds."""

    def __init__(self, quiet: float, longest: float, clock: Callable[[], float]) -> None:
        self._quiet, self._longest, self._clock = quiet, longest, clock
        self._first: float | None = None
        self._last = 0.0

    def note(self) -> None:
        """Note that something happened."""
        self._last = self._clock()
        if self._first is None:
            self._first = self._last

    def left(self) -> float:
        """Return how long to wait yet; 0 or less when it is over, or nothing happened."""
        return (
            0.0 if self._first is None else min(self._last + self._quiet, self._first + self._longest) - self._clock()
        )

    def end(self) -> None:
        """Begin again when something happens."""
        self._first = None


class Pace:
    """Measures work, and says how long to rest. Times are seconds. `coming` is noted when proxies come or go."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.coming = Settling(COMING_SECONDS, LONGEST_COMING_SECONDS, clock)
        self._answering = Settling(PATIENCE_SECONDS, LONGEST_SECONDS, clock)
        self._clock = clock
        self._began = clock()
        self._rested = self._next_look = self._next_round = self._began  # when each rest is over
        self._look = self._round = 0.0  # what they took
        self._news: int | None = None  # none since the last look

    def notice(self, news: int) -> None:
        """Note that something happened, and how much news of proxies there was since the start."""
        if self._news != news:
            self._news = news
            self._answering.note()

    def patience(self) -> float:
        """Return how long proxies may still take to answer until what happened is looked at all the same."""
        return self._answering.left()

    def begin_look(self) -> None:
        """Begin a look at all that happened."""
        self._look, self._news = 0.0, None
        self._answering.end()

    def spend_on_look(self, seconds: float) -> None:
        """Note work for a look: the next one waits for it."""
        self._look += seconds
        self._next_look = self._clock() + min(LOOK_REST * self._look, LONGEST_SECONDS)

    def until_look(self) -> float:
        """Return how long to wait until the next look; 0 or less when it may begin now."""
        return self._next_look - self._clock()

    def pause(self) -> float:
        """Return how long to wait before the next slice."""
        return max(SETTLE_SECONDS, self._rested - self._clock())

    def begin(self) -> None:
        """Begin a slice."""
        self._began = self._clock()

    @property
    def is_slice_over(self) -> bool:
        """Say whether the slice has taken its time."""
        return self._clock() - self._began >= SLICE_SECONDS

    def end(self) -> None:
        """End a slice."""
        now = self._clock()
        self._rested = now + REST * (now - self._began)

    def spend_on_round(self, seconds: float) -> None:
        """Note work for a round: the next one waits for it."""
        self._round += seconds
        self._next_round = self._clock() + LOOK_REST * self._round

    def begin_round(self) -> None:
        """Begin a round."""
        self._round = 0.0
        self.coming.end()

    def until_round(self) -> float:
        """Return how long to wait until a round may begin; 0 or less when it may now."""
        return max(self._next_round - self._clock(), self.coming.left())
