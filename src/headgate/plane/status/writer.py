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
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, NamedTuple

from headgate.compiler.report import Compiled, Finding, StatusCondition
from headgate.compiler.snapshot import Snapshot
from headgate.envoy.node_ids import SIDECAR, pod_of
from headgate.errors import Conflict, NotFound, StoreError
from headgate.kinds import ACCESS, EXPERIMENTAL, GATEWAY, MESH, SPLIT
from headgate.latest import Latest, until
from headgate.objects.ports import Ports, version_of
from headgate.plane.feed import Feed
from headgate.plane.loop import Loop
from headgate.plane.proxy_status import presumed_ended_until
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
from headgate.plane.status.gateway_api import (
    backend_status,
    class_status,
    differ_in_counts_only,
    gateway_status,
    mesh_features,
    policy_status,
    route_status,
)
from headgate.plane.status.mesh import mesh_status, names_in
from headgate.plane.status.receipts import AckStates, Receipts
from headgate.plane.status.sidecars import sidecar_status
from headgate.plane.status.slices import Slice
from headgate.plane.status.takeover import Takeover
from headgate.plane.status.work_queue import PAUSE_FACTOR, Observation, ReportIndex, StatusQueue, WriterStep
from headgate.resources.columns import with_summary
from headgate.resources.meta import Key, Object, timestamp
from headgate.resources.registry import ROUTES, SERVICE, find
from headgate.shared_map import SharedMap, replaced
from headgate.xds.fleet import Fleet, FleetProxy

BATCH = 32  # the number of proxies to observe before the writer yields the event loop to other tasks
CONCURRENT = 3  # the number of objects that are updated at the same time; with 8, new routes wait for the API server
ANSWER_QUIET_SECONDS = 0.25  # the wait for answers of lagging proxies, from the last change to any proxy
MAX_WAIT_SECONDS = 1.0  # the longest wait for lagging proxies, and the longest pause between observations
COUNT_QUIET_SECONDS = 0.5  # the wait for further routes before the number of attached routes is written
MAX_COUNT_SECONDS = 5.0  # the longest wait while more and more routes are attached
LONGEST_WAIT_S = 24 * 3600.0  # the wall clock may be set meanwhile
RETRY_SECONDS = 1.0  # the time until a failed write or a delayed Event is retried
_ComputeStatus = Callable[[Object, ObjectReport, StatusInputs], Mapping[str, Any] | None]
STATUSES: Mapping[tuple[str, str], _ComputeStatus] = {
    (SPLIT, "TrafficSplit"): split_status,
    (GATEWAY, "GatewayClass"): class_status,
    (GATEWAY, "Gateway"): gateway_status,
    (GATEWAY, "ListenerSet"): gateway_status,
    (GATEWAY, "BackendTLSPolicy"): policy_status,
    (EXPERIMENTAL, "XBackend"): backend_status,
    (EXPERIMENTAL, "XBackendTrafficPolicy"): policy_status,
    (EXPERIMENTAL, "XMesh"): mesh_features,
    **{(kind.group, kind.kind): route_status for kind in ROUTES},
    (MESH, "TLSConfig"): mesh_status,
    (MESH, "Sidecar"): sidecar_status,
    (ACCESS, "TrafficTarget"): mesh_status,
    (EXPERIMENTAL, "XAuthorizationPolicy"): mesh_status,
}
"""For each kind whose status headgate writes, the function that computes the status. None means: write no status."""
ONLY_WITH_FINDINGS: Mapping[tuple[str, str], _ComputeStatus] = {(SERVICE.group, SERVICE.kind): service_status}
"""Kinds whose objects get a status only if they have a finding: computing it for all objects would cost too much."""

log = logging.getLogger(__name__)


class CountedStates(NamedTuple):
    """What proxies count about objects.

    `dropped` counts dropped copies by mirror cluster, for mirrors that drop copies now. `compared` has conditions about
    the copies of routes. `audits` has the calls that TrafficTargets in audit mode would refuse.
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
        self._ports = ports
        self._loop = loop
        self._fleet = fleet
        self._finding_events = FindingEvents(ports.objects, ports.events, self._is_current)
        self._shares: dict[Key, str] = {}
        self._withheld: set[Key] = set()
        self._wake = asyncio.Event()
        self._queue = StatusQueue(STATUSES, ONLY_WITH_FINDINGS)
        self._ack_states = AckStates()
        self._observation: Observation | None = None
        # each object's versions before and after the last write of its status
        self._computed_versions: dict[Key, tuple[str, ...]] = {}
        self._change_count: int | None = None  # the fleet's, when an observation was last requested; None after it
        self._late: FleetProxy | None = None  # a proxy that had not answered; it is checked first
        self._takeover: Takeover | None = None  # None before the first observation

    @property
    def is_idle(self) -> bool:
        """Whether every status is computed; the next change, or a proxy that connects or disconnects, ends this."""
        return not self._wake.is_set() and self._queue.is_empty and not self._queue.is_pass_due

    async def run(self) -> None:
        """Wait until this control plane is active, then write until canceled. Retry a failed write a second later."""
        await until(self._ports.active.get, self._ports.active)

        async def follow(cell: Latest[Any]) -> None:
            async for _ in cell.changes():
                self._wake.set()

        async with asyncio.TaskGroup() as group:
            group.create_task(follow(self._loop.compiled), name="status follows builds")
            group.create_task(follow(self._fleet.change_count), name="status follows proxies")
            group.create_task(follow(self._loop.credentials.faults), name="status follows certificates")
            group.create_task(follow(self._counted.dropped), name="status follows mirrors")
            group.create_task(follow(self._counted.compared), name="status follows comparisons")
            group.create_task(follow(self._counted.audits), name="status follows audits")
            for cell in self._ports.findings:
                group.create_task(follow(cell), name="status follows the host")
            current = Slice()
            while True:
                await self._wait()
                await asyncio.sleep(current.pause())
                if self._wake.is_set():
                    self._wake.clear()
                    self._request_observation()
                if self._queue.take(WriterStep.OBSERVATION):
                    await self._observe()
                current = Slice()
                await self._work(current)
                self._queue.begin_due_pass()
                current.end()

    def _request_observation(self) -> None:
        """Observe the proxies as soon as possible. If lagging proxies may answer soon, wait for their answers."""
        count = self._fleet.change_count.get()
        if self._change_count != count:
            self._change_count = count
            self._queue.debounce(WriterStep.OBSERVATION, quiet=ANSWER_QUIET_SECONDS, longest=MAX_WAIT_SECONDS)
        self._late = self._fleet.find(lambda proxy: proxy.session is not None and not proxy.settled(), self._late)
        if not self._late:
            self._queue.add(WriterStep.OBSERVATION, after=0.0)

    async def _wait(self) -> None:
        """Wait for a change, or until an object, an observation or a full pass is due."""
        left = self._queue.next_due
        if self._queue.is_empty and left > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left if math.isfinite(left) else None):
                    await self._wake.wait()
        self._queue.take_due()

    async def _observe(self) -> None:
        """Observe the report, acknowledgments and findings, and queue the objects with changes."""
        self._change_count = None
        compiled = self._loop.compiled.get()
        if compiled is None:
            return
        before = self._observation
        is_built = before is None or before.reports.compiled is not compiled
        reports = ReportIndex(compiled) if before is None or is_built else before.reports
        self._takeover = self._takeover or Takeover(self._fleet)
        self._takeover.observe()
        receipts = await self._receipts(self._takeover.left())
        blocking = self._loop.mtls_migration.pending_proxies() if reports.migrating else ()
        incomplete_certificates = frozenset(self._incomplete_certificates(compiled))
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
            self._queue.add(WriterStep.OBSERVATION, after=min(change - time.time(), LONGEST_WAIT_S))
        if is_built:
            for key in self._finding_events.keys() - compiled.report.seen.keys():
                self._forget(key)
            self._queue.touch(self._overwritten())

    async def _receipts(self, takeover: float) -> Receipts:
        """Return the acknowledgments of all serving proxies. Yields the event loop after each `BATCH` of proxies.

        During a takeover, which ends in `takeover` seconds, proxies of deleted pods count too: each proxy is disconnected at first.
        """
        receipts, began, took = Receipts(cache=self._ack_states), time.monotonic(), 0.0
        pods = (self._feed.snapshot.get() or Snapshot()).pods
        for number, proxy in enumerate(self._fleet.configured(), 1):
            left = presumed_ended_until(proxy, pods.get(pod_of(proxy.id))) - time.time()
            if left <= 0 or takeover > 0:
                receipts.add(proxy)
            if left > 0:
                self._queue.add(WriterStep.OBSERVATION, after=min(takeover if takeover > 0 else left, LONGEST_WAIT_S))
            if number % BATCH == 0:
                took += time.monotonic() - began
                await asyncio.sleep(0)
                began = time.monotonic()
        self._ack_states.keep(receipts.states)
        self._queue.rest(WriterStep.OBSERVATION, min(PAUSE_FACTOR * took, MAX_WAIT_SECONDS))
        return receipts

    def _findings(self, compiled: Compiled, receipts: Receipts) -> Mapping[Key, tuple[Finding, ...]]:
        """Return the findings about the running mesh (`status.findings`) and those of the host, by object."""
        refusing = (refuser for state, node_ids in receipts.by_state.items() if state.refused for refuser in node_ids)
        proxies = (proxy for node_id in refusing if (proxy := self._fleet.proxies.get(node_id)))
        findings: dict[Key, tuple[Finding, ...]] = defaultdict(tuple)
        for finding in (
            *refusals(compiled, proxies),
            *faults(self._loop.credentials.faults.get()),
            *certificate_expiry(compiled, time.time()),
            *dropped_copies(compiled.mesh, self._counted.dropped.get()),
            *chain.from_iterable(cell.get() for cell in self._ports.findings),
        ):
            findings[finding.about] += (finding,)
        return findings

    def _is_current(self, finding: Finding) -> bool:
        """Return whether the newest objects are compiled and have a finding. An observation that waits for proxies is older."""
        compiled, snapshot = self._loop.compiled.get(), self._feed.snapshot.get()
        if compiled is None or snapshot is None or compiled.revision != snapshot.revision:
            return False
        return finding in compiled.report.findings_of.get(finding.about, ())

    def _incomplete_certificates(self, compiled: Compiled) -> Iterator[str]:
        """Yield the names of workloads whose certificate lacks some DNS names (R75)."""
        for workload in compiled.mesh.workloads:
            credential = self._loop.credential_of(f"{SIDECAR}/{workload.name}") if workload.subjects else None
            if workload.subjects and not (credential and names_in(credential.chain).issuperset(workload.subjects)):
                yield workload.name

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
        self._queue.forget(key)
        del self.computed[key]

    async def _work(self, current: Slice) -> None:
        """Compute and write statuses of queued objects until the slice is over, or the queue is empty.

        An API server takes milliseconds for each request, so `CONCURRENT` objects are updated at the same time.
        """
        observation = self._observation
        if observation is None:
            return
        inputs = StatusInputs(observation.receipts, timestamp(time.time()), observation.blocking)
        while batch := tuple(islice(iter(self._queue.next, None), CONCURRENT)):
            began = current.work
            async with asyncio.TaskGroup() as group:
                updates = [
                    (key, group.create_task(self._update(key, observation.report(key), inputs))) for key, _ in batch
                ]
            for key, update in updates:
                if not update.result():
                    self._queue.add(key, after=RETRY_SECONDS)
            if any(in_pass for _, in_pass in batch):
                self._queue.spend_on_pass(current.work - began)
            if current.is_over:
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
        if status and (stored_kind := find(*kind)):
            status = with_summary(stored_kind.columns, obj, status)
        read = version_of(obj)
        self._computed_versions[key] = (read,)
        if status is None:
            return True
        fresh = status != obj.get("status")
        if fresh and self._is_held(key, status, obj.get("status")):
            return False
        if fresh:
            written = await self._ports.objects.update({**obj, "status": status}, subresource="status")
            self._feed.record_write(obj, written)
            self._computed_versions[key] = (read, version_of(written))
        if not announce:
            self._withheld.add(key)
        elif report.outcomes and _is_programmed(status):
            await self._announce_shares(key, obj, summary(report.outcomes), fresh=fresh or key in self._withheld)
            self._withheld.discard(key)
        return fresh

    def _is_held(self, key: Key, status: object, before: object) -> bool:
        """Return whether to write a status that differs from `before` later; then the queue has the object."""
        if differ_in_counts_only(status, before):
            return self._queue.hold(key, quiet=COUNT_QUIET_SECONDS, longest=MAX_COUNT_SECONDS)
        left = self._takeover.left() if self._takeover else 0.0
        if left > 0 and differ_in_progress_only(status, before):
            self._queue.add(key, after=left)
            return True
        return False

    async def _announce_shares(self, key: Key, obj: Object, text: str, *, fresh: bool) -> None:
        """Write an Event with the shares in `text`, if they differ from those in the last Event about the object."""
        announced = self._shares.get(key)
        self._shares[key] = text
        if announced != text and (announced or fresh):
            reason = "WeightsChanged" if announced else "Programmed"
            message = f"every proxy applies these shares: {text}"
            await self._ports.events.record(obj, type="Normal", reason=reason, message=message)


def _is_programmed(status: Mapping[str, Any]) -> bool:
    return any(
        condition["type"] == "Programmed" and condition["status"] == "True"
        for condition in status.get("conditions", ())
    )
