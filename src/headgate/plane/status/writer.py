"""Writes statuses and Events of users' objects, from the compiler's report and the proxies' acknowledgments.

The writer runs beside the control loop. Shortly after a change it observes the current state, computes the statuses of
affected objects (`work_queue`), and writes changed statuses. It works in slices, so that xDS streams run in between.
"""

import asyncio
import contextlib
import logging
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

from headgate.compiler.report import Compiled, Finding, StatusCondition
from headgate.envoy.node_ids import SIDECAR
from headgate.errors import Conflict, NotFound, StoreError
from headgate.kinds import ACCESS, GATEWAY, MESH, SPLIT
from headgate.latest import Latest, until
from headgate.objects.ports import Ports, version_of
from headgate.plane.feed import Feed
from headgate.plane.loop import Loop
from headgate.plane.status.audit_outcome import AuditOutcome
from headgate.plane.status.certificate_expiry import certificate_expiry, next_change
from headgate.plane.status.conditions import (
    ObjectReport,
    StatusInputs,
    differ_in_progress_only,
    service_status,
    split_status,
    summary,
)
from headgate.plane.status.finding_events import FindingEvents
from headgate.plane.status.findings import dropped_copies, faults, refusals
from headgate.plane.status.gateway_api import class_status, differ_in_counts_only, gateway_status, route_status
from headgate.plane.status.mesh import mesh_status, names_in
from headgate.plane.status.pace import RECONNECT_SECONDS, TAKEOVER_SECONDS, CountDelay, Pace
from headgate.plane.status.receipts import AckStates, Receipts
from headgate.plane.status.sidecars import sidecar_status
from headgate.plane.status.work_queue import Observation, ReportIndex, StatusQueue
from headgate.resources.columns import with_summary
from headgate.resources.meta import Key, Object, timestamp
from headgate.resources.registry import SERVICE, find
from headgate.shared_map import SharedMap, replaced
from headgate.xds.fleet import Fleet, Proxy

BATCH = 32  # the number of proxies to observe before the writer yields the event loop to other tasks
CONCURRENT = 3  # the number of objects that are updated at the same time; with 8, new routes wait for the API server
_LONGEST_WAIT_S = 24 * 3600.0  # the wall clock may be set meanwhile
RETRY_SECONDS = 1.0  # the time until a failed write or a delayed Event is retried
_ComputeStatus = Callable[[Object, ObjectReport, StatusInputs], Mapping[str, Any] | None]
STATUSES: Mapping[tuple[str, str], _ComputeStatus] = {
    (SPLIT, "TrafficSplit"): split_status,
    (GATEWAY, "GatewayClass"): class_status,
    (GATEWAY, "Gateway"): gateway_status,
    (GATEWAY, "HTTPRoute"): route_status,
    (GATEWAY, "GRPCRoute"): route_status,
    (GATEWAY, "TCPRoute"): route_status,
    (MESH, "TLSConfig"): mesh_status,
    (MESH, "Sidecar"): sidecar_status,
    (ACCESS, "TrafficTarget"): mesh_status,
}
"""For each kind whose status headgate writes, the function that computes the status. None means: write no status."""
ONLY_WITH_FINDINGS: Mapping[tuple[str, str], _ComputeStatus] = {(SERVICE.group, SERVICE.kind): service_status}
"""Kinds whose objects get a status only if they have a finding: computing it for all objects would cost too much."""

log = logging.getLogger(__name__)


class CountedStates(NamedTuple):
    """What proxies count about objects.

    `dropped` counts dropped copies by mirror cluster, for mirrors that drop copies now. `compared` are conditions about
    the copies of routes. `audits` are the calls that TrafficTargets in audit mode would refuse.
    """

    dropped: Latest[Mapping[str, int]]
    compared: Latest[Mapping[Key, tuple[StatusCondition, ...]]]
    audits: Latest[Mapping[Key, AuditOutcome]]


class StatusWriter:
    """Keeps statuses and Events of users' objects up to date.

    `computed` counts the status computations for each object.
    """

    def __init__(
        self,
        ports: Ports,
        loop: Loop,
        fleet: Fleet,
        counted: CountedStates,
        feed: Feed,
    ) -> None:
        self.computed: Counter[Key] = Counter()
        self._counted = counted
        self._feed = feed
        self._checked_versions: dict[tuple[str, str], SharedMap[Key, str]] = {}  # those at the last build
        self._store = ports.objects
        self._loop = loop
        self._compiled = loop.compiled
        self._faults = loop.credentials.faults
        self._of_host = ports.findings
        self._mtls_migration = loop.mtls_migration
        self._fleet = fleet
        self._events = ports.events
        self._active = ports.active
        self._finding_events = FindingEvents(self._store, self._events)
        self._shares: dict[Key, str] = {}
        self._withheld: set[Key] = set()
        self._wake = asyncio.Event()
        self._queue = StatusQueue(STATUSES, ONLY_WITH_FINDINGS)
        self._ack_states = AckStates()
        self._observation: Observation | None = None
        # each object's versions before and after the last write of its status
        self._computed_versions: dict[Key, tuple[str, ...]] = {}
        self._count_delays: defaultdict[Key, CountDelay] = defaultdict(CountDelay)  # by Gateway
        self._pace = Pace()
        self._observation_due = math.inf  # when to observe without a change, by the monotonic clock
        self._late: Proxy | None = None  # a proxy that had not answered; it is checked first
        # the proxies of an earlier process that have not acknowledged everything to this one; a status waits for them
        self._awaited: Sequence[Proxy] = ()
        self._takeover_end = 0.0  # when the wait ends, by the monotonic clock

    @property
    def is_idle(self) -> bool:
        """Whether every status is computed; the next change, or a proxy that connects or disconnects, ends this."""
        return not self._wake.is_set() and self._queue.is_empty and not self._queue.is_pass_due

    async def run(self) -> None:
        """Wait until this control plane is active, then write until canceled. Retry a failed write a second later."""
        await until(self._active.get, self._active)

        async def follow(cell: Latest[Any]) -> None:
            async for _ in cell.changes():
                self._wake.set()

        async with asyncio.TaskGroup() as group:
            group.create_task(follow(self._compiled), name="status follows builds")
            group.create_task(follow(self._fleet.change_count), name="status follows proxies")
            group.create_task(follow(self._faults), name="status follows certificates")
            group.create_task(follow(self._counted.dropped), name="status follows mirrors")
            group.create_task(follow(self._counted.compared), name="status follows comparisons")
            group.create_task(follow(self._counted.audits), name="status follows audits")
            for cell in self._of_host:
                group.create_task(follow(cell), name="status follows the host")
            while True:
                await self._wait()
                await asyncio.sleep(self._pace.pause())
                if self._wake.is_set():
                    self._wake.clear()
                    self._pace.note_change(self._fleet.change_count.get())
                    if self._is_observation_due():
                        self._pace.begin_observation()
                        await self._observe()
                self._pace.begin()
                await self._work()
                self._plan_pass()
                self._pace.end()

    def _is_observation_due(self) -> bool:
        """Return whether to observe the proxies now. If lagging proxies may answer soon, observe later instead."""
        left = self._pace.answer_wait()
        if left > 0:
            self._late = self._fleet.find(lambda proxy: proxy.session is not None and not proxy.settled(), self._late)
        left = max(left if self._late else 0.0, self._pace.until_observation())
        if left > 0:
            self._observe_in(left)
        return left <= 0

    def _observe_in(self, seconds: float) -> None:
        """Observe again after some seconds, if no change causes it before."""
        self._observation_due = min(self._observation_due, time.monotonic() + seconds)

    async def _wait(self) -> None:
        """Wait for a change, or until an object or an observation is due."""
        left = min(self._queue.next_due, self._observation_due - time.monotonic())
        if self._queue.is_empty and left > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left if math.isfinite(left) else None):
                    await self._wake.wait()
        self._queue.take_due()
        if time.monotonic() >= self._observation_due:
            self._observation_due = math.inf
            self._wake.set()

    async def _observe(self) -> None:
        """Observe the report, acknowledgments and findings, and queue the objects with changes."""
        compiled = self._compiled.get()
        if compiled is None:
            return
        before = self._observation
        is_built = before is None or before.reports.compiled is not compiled
        reports = ReportIndex(compiled) if before is None or is_built else before.reports
        receipts = await self._receipts()
        blocking = self._mtls_migration.pending_proxies() if reports.migrating else ()
        incomplete_certificates = frozenset(self._incomplete_certificates(compiled))
        if before is None:
            self._awaited, self._takeover_end = self._fleet.configured(), time.monotonic() + TAKEOVER_SECONDS
        self._awaited = [one for one in self._awaited if self._fleet.proxies.get(one.id) is one and not one.settled()]
        observation = self._observation = Observation(
            reports,
            receipts,
            self._findings(compiled, receipts),
            incomplete_certificates,
            blocking,
            self._counted.compared.get(),
            self._counted.audits.get(),
        )
        self._queue.observe(observation)
        if change := next_change(compiled.mesh.gateways, time.time()):
            self._observe_in(min(change - time.time(), _LONGEST_WAIT_S))
        if before and before.receipts.membership != receipts.membership:
            self._pace.membership.note(RECONNECT_SECONDS if receipts.has_lost(before.receipts) else None)
        if is_built:
            for key in self._finding_events.keys() - compiled.report.seen.keys():
                self._forget(key)
            self._queue.touch(self._overwritten())

    async def _receipts(self) -> Receipts:
        """Return the acknowledgments of all serving proxies. Yields the event loop after each `BATCH` of proxies."""
        receipts, began = Receipts(cache=self._ack_states), time.monotonic()
        for number, proxy in enumerate(self._fleet.configured(), 1):
            receipts.add(proxy)
            if number % BATCH == 0:
                self._pace.spend_on_observation(time.monotonic() - began)
                await asyncio.sleep(0)
                began = time.monotonic()
        self._ack_states.keep(receipts.states)
        return receipts

    def _plan_pass(self) -> None:
        """Begin a full pass over all objects if proxies connected or disconnected. If it is too early, do it later."""
        if not self._queue.is_pass_due:
            return
        if (left := self._pace.until_pass()) <= 0:
            self._queue.begin_pass()
            self._pace.begin_pass()
        else:
            self._observe_in(left)

    def _findings(self, compiled: Compiled, receipts: Receipts) -> Mapping[Key, tuple[Finding, ...]]:
        """Return the findings about the running mesh (`status.findings`) and those of the host, by object."""
        refusing = (one for state, node_ids in receipts.by_state.items() if state.refused for one in node_ids)
        proxies = (proxy for node_id in refusing if (proxy := self._fleet.proxies.get(node_id)))
        found: dict[Key, tuple[Finding, ...]] = defaultdict(tuple)
        for finding in (
            *refusals(compiled, proxies),
            *faults(self._faults.get()),
            *certificate_expiry(compiled.mesh.gateways, time.time()),
            *dropped_copies(compiled.mesh, self._counted.dropped.get()),
            *chain.from_iterable(cell.get() for cell in self._of_host),
        ):
            found[finding.about] += (finding,)
        return found

    def _incomplete_certificates(self, compiled: Compiled) -> Iterator[str]:
        """Yield the names of workloads whose certificate lacks some DNS names (R75)."""
        for item in compiled.mesh.workloads:
            credential = self._loop.credential_of(f"{SIDECAR}/{item.name}") if item.subjects else None
            if item.subjects and not (credential and names_in(credential.chain).issuperset(item.subjects)):
                yield item.name

    def _overwritten(self) -> Iterator[Key]:
        """Yield objects that were recreated, or that another writer changed, since their last computation."""
        for kind in STATUSES:
            now = self._feed.versions(*kind)
            new, _ = replaced(self._checked_versions.get(kind, {}), now)
            self._checked_versions[kind] = now
            yield from (
                key for key, current in new.items() if current not in self._computed_versions.get(key, (current,))
            )

    def _forget(self, key: Key) -> None:
        """Drop the state of a deleted object."""
        self._finding_events.forget(key)
        self._shares.pop(key, None)
        self._withheld.discard(key)
        self._computed_versions.pop(key, None)
        self._count_delays.pop(key, None)
        self._queue.drop(key)
        del self.computed[key]

    async def _work(self) -> None:
        """Compute and write statuses of queued objects until the slice is over, or the queue is empty.

        An API server takes milliseconds for each request, so `CONCURRENT` objects are updated at the same time.
        """
        observation = self._observation
        if observation is None:
            return
        inputs = StatusInputs(observation.receipts, timestamp(time.time()), observation.blocking)
        while batch := tuple(islice(iter(self._queue.next, None), CONCURRENT)):
            began = self._pace.work
            async with asyncio.TaskGroup() as group:
                updates = [
                    (key, group.create_task(self._update(key, observation.report(key), inputs))) for key, _ in batch
                ]
            for key, update in updates:
                if not update.result():
                    self._queue.add(key, after=RETRY_SECONDS)
            if any(in_pass for _, in_pass in batch):
                self._pace.spend_on_pass(self._pace.work - began)
            if self._pace.is_slice_over:
                return

    async def _update(self, key: Key, report: ObjectReport, inputs: StatusInputs) -> bool:
        try:
            obj = await self._feed.read(key)
            delayed = await self._finding_events.delayed(key, obj, report.findings)
            fresh = await self._write(key, obj, report, inputs, announce=not delayed)
            findings = [finding for finding in report.findings if finding not in delayed]
            await self._finding_events.announce(key, obj, findings, fresh=fresh)
        except NotFound:
            self._computed_versions.pop(key, None)
            return True
        except Conflict:
            self._feed.forget(key)
            return False
        except StoreError as error:
            log.warning("the status of %s can't be written: %s", key, error)
            return False
        return not delayed

    async def _write(
        self, key: Key, obj: Object, report: ObjectReport, inputs: StatusInputs, *, announce: bool
    ) -> bool:
        """Write an object's status if it differs, and an Event about its shares; return whether the status differed."""
        self.computed[key] += 1
        kind = (key.group, key.kind)
        compute = STATUSES.get(kind) or ONLY_WITH_FINDINGS.get(kind)
        status = compute(obj, report, inputs) if compute else None
        if status and (known := find(*kind)):
            status = with_summary(known.columns, obj, status)
        read = version_of(obj)
        self._computed_versions[key] = (read,)
        if status is None:
            return True
        fresh = status != obj.get("status")
        if fresh and (left := self._delay(key, status, obj.get("status"))) > 0:
            self._queue.add(key, after=left)
            return False
        if fresh:
            written = await self._store.update({**obj, "status": status}, subresource="status")
            self._feed.record_write(obj, written)
            self._computed_versions[key] = (read, version_of(written))
        if not announce:
            self._withheld.add(key)
        elif report.outcomes and _is_programmed(status):
            await self._announce_shares(key, obj, summary(report.outcomes), fresh=fresh or key in self._withheld)
            self._withheld.discard(key)
        return fresh

    def _delay(self, key: Key, status: object, before: object) -> float:
        """Return for how long not to write a status that differs from `before`; 0 or less if it may be written now.

        While proxies reconnect to a new process, numbers of proxies change and soon are as before.
        """
        if differ_in_counts_only(status, before):
            return self._count_delays[key].left(status)
        if self._awaited and differ_in_progress_only(status, before):
            return self._takeover_end - time.monotonic()
        return 0.0

    async def _announce_shares(self, key: Key, obj: Object, text: str, *, fresh: bool) -> None:
        """Write an Event with the shares in `text`, if they differ from those in the last Event about the object."""
        known = self._shares.get(key)
        self._shares[key] = text
        if known != text and (known or fresh):
            reason = "WeightsChanged" if known else "Programmed"
            message = f"every proxy applies these shares: {text}"
            await self._events.record(obj, type="Normal", reason=reason, message=message)


def _is_programmed(status: Mapping[str, Any]) -> bool:
    return any(item["type"] == "Programmed" and item["status"] == "True" for item in status.get("conditions", ()))
