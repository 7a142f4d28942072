"""The queue of the status writer: objects whose status is computed next, and when observations and full passes are due.

An object is queued when the report or a finding about it changes, when the acknowledgments of its resources change, and
when its ports enter or leave a proxy's configuration. When a proxy connects or disconnects, the numbers of proxies
in all statuses change. So a full pass over all objects follows, once no further proxy connects or disconnects.
"""

import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

from msgspec import structs

from headgate.compiler.report import Compiled, Finding, ParentStatus, SplitOutcome, StatusCondition, differing
from headgate.envoy.gateway_hosts import WILDCARDS
from headgate.envoy.names import GatewayRef, RouteParent
from headgate.envoy.node_ids import SIDECAR
from headgate.kinds import GATEWAY
from headgate.plane.status.audit_outcome import AuditOutcome
from headgate.plane.status.conditions import ObjectReport, gateway_ports, ports_of
from headgate.plane.status.mesh import is_inbound
from headgate.plane.status.receipts import Receipts, port_of
from headgate.resources.meta import Key

PAUSE_FACTOR = 9  # the pause after an observation or a full pass, as a multiple of its processor time
MEMBERSHIP_QUIET_SECONDS = 0.25  # a full pass begins after this time without a connecting or disconnecting proxy
RECONNECT_SECONDS = 1.0  # the wait for a proxy whose stream has ended: it reconnects, for example with a new token
MAX_MEMBERSHIP_SECONDS = 2.0  # the longest delay of a full pass while proxies connect and disconnect
_GATEWAYS = {(GATEWAY, "Gateway"), (GATEWAY, "ListenerSet")}


class ReportIndex:
    """The report of one build, by object."""

    def __init__(self, compiled: Compiled) -> None:
        self.compiled = compiled
        report = compiled.report
        outcomes: dict[Key, tuple[SplitOutcome, ...]] = defaultdict(tuple)
        for outcome in report.outcomes:
            outcomes[outcome.about] += (outcome,)
        routes: dict[Key, list[ParentStatus]] = defaultdict(list)
        for _, route in sorted(report.passing_routes.items()):
            for about in route.passed:
                routes[about] += route.parents
        migrating = {
            workload.name for workload in compiled.mesh.workloads if workload.tls_mode is not workload.target_tls_mode
        }
        selections = (
            (selected.about, tuple(name for name in selected.workloads if name in migrating))
            for selected in report.selected
        )
        self._parts: Mapping[str, Mapping[Key, Any]] = {  # by field of `ObjectReport`
            "findings": report.findings_of,
            "outcomes": outcomes,
            "routes": {about: tuple(parents) for about, parents in routes.items()},
            "parents": report.parents_of,
            "gateway": {gateway.about: gateway for gateway in report.gateways},
            "policy": {policy.about: policy for policy in report.policies},
            "selected": {selected.about: selected for selected in report.selected},
            "sidecar": {sidecars.about: sidecars for sidecars in report.sidecars},
            "migrating": {about: names for about, names in selections if names},
        }

    def keys(self, kinds: Iterable[tuple[str, str]]) -> Iterator[Key]:
        """Yield all objects of some kinds, given as (group, kind), and those of other kinds with a report, sorted."""
        chosen = frozenset(kinds)
        seen = (key for key in self.compiled.report.seen if (key.group, key.kind) in chosen)
        yield from sorted({*seen, *self._reported})

    def report(self, key: Key) -> ObjectReport:
        """Return the report of an object."""
        parts = {field: objects[key] for field, objects in self._parts.items() if key in objects}
        return ObjectReport(generation=self.compiled.report.seen.get(key, 0), **parts)

    def differing(self, before: "ReportIndex", kinds: Collection[tuple[str, str]]) -> Iterator[Key]:
        """Yield the objects whose reports differ from those of another build.

        A new generation alone counts only for objects of these kinds, given as (group, kind), and for objects with a
        report.
        """
        for field, objects in self._parts.items():
            yield from differing(before._parts[field], objects)  # noqa: SLF001  # an object of this class
        for key in differing(before.compiled.report.seen, self.compiled.report.seen):
            if (key.group, key.kind) in kinds or any(key in objects for objects in self._parts.values()):
                yield key

    @property
    def _reported(self) -> Iterator[Key]:
        return chain.from_iterable(self._parts.values())

    @cached_property
    def migrating(self) -> Sequence[Key]:
        """The TLSConfigs and TrafficTargets that select a workload during its mTLS migration."""
        return list(self._parts["migrating"])

    @cached_property
    def affecting(self) -> Mapping[RouteParent | str, Sequence[Key]]:
        """The objects that affect a port, by port, and the objects that select a pod, by `namespace/pod`."""
        affected: dict[RouteParent | str, list[Key]] = defaultdict(list)
        for key in dict.fromkeys(self._reported):
            report = self.report(key)
            selected = report.selected.workloads if report.selected else ()
            for target in dict.fromkeys((*_ports(report), *selected)):
                affected[target].append(key)
        return affected


def _ports(report: ObjectReport) -> Iterator[RouteParent]:
    """Yield the ports, and hosts of Gateway ports, that an object affects.

    A Gateway and a route with wildcards affect all hosts of a port, which the host `*` stands for.
    """
    yield from (outcome.ref for outcome in report.outcomes)
    for parent in (*report.parents, *report.routes):
        for place in ports_of(parent):
            yield place
            if isinstance(place, GatewayRef):
                yield from (place._replace(host=""), place._replace(host=place.host or WILDCARDS))
    for ref in gateway_ports(report):
        yield ref
        if isinstance(ref, GatewayRef):
            yield ref._replace(host=WILDCARDS)


class Observation(NamedTuple):
    """The inputs of all statuses at one moment.

    `reports` come from the build, and `findings` from the running mesh (`status.findings`). `receipts` has the proxies'
    acknowledgments. `incomplete_certificates` are workloads with a certificate that lacks some of the DNS names.
    `blocking` has the node IDs of proxies that block the next step of an mTLS migration. `compared` has conditions about
    the mirrors of routes (`plane.mirror_comparison`), and `audits` the calls that TrafficTargets in audit mode would
    refuse (`plane.access_audit`).
    """

    reports: ReportIndex
    receipts: Receipts
    findings: Mapping[Key, tuple[Finding, ...]] = {}
    incomplete_certificates: frozenset[str] = frozenset()
    blocking: Sequence[str] = ()
    compared: Mapping[Key, tuple[StatusCondition, ...]] = {}
    audits: Mapping[Key, AuditOutcome] = {}

    def report(self, key: Key) -> ObjectReport:
        """Return the report of an object, together with the findings about the running mesh."""
        report = self.reports.report(key)
        if more := self.findings.get(key):
            report = structs.replace(report, findings=(*report.findings, *more))
        if compared := self.compared.get(key):
            report = structs.replace(report, compared=compared)
        if audit := self.audits.get(key):
            report = structs.replace(report, audit=audit)
        if self.incomplete_certificates and report.selected:
            report = structs.replace(
                report,
                incomplete_certificates=tuple(
                    name for name in report.selected.workloads if name in self.incomplete_certificates
                ),
            )
        return report


class WriterStep(Enum):
    """What the status writer does beside the statuses of single objects."""

    OBSERVATION = auto()
    PASS = auto()


class StatusQueue:
    """The objects whose status is to be computed, and when each object and each other step of the writer is due.

    `next` returns changed objects first, and those of a full pass last. Changed Gateways and ListenerSets come before all other objects:
    their numbers of attached routes would otherwise wait for the statuses of these routes. An object that `add` or `hold`
    has queued for later is among the changed ones once it is due. Pass each new observation to `observe`, then compute the
    status of the objects that `next` returns.
    """

    def __init__(
        self,
        kinds: Iterable[tuple[str, str]],
        faulty: Iterable[tuple[str, str]] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Set the kinds: objects of `kinds` always have a status, objects of `faulty` only if there was a finding."""
        self._kinds = frozenset(kinds)
        self._first = self._kinds.union(faulty)
        self._observation: Observation | None = None
        self._changed: dict[Key, None] = {}
        self._pass: dict[Key, None] = {}
        self._pass_work = 0.0  # seconds of processor time in the last full pass
        self._due: dict[Key | WriterStep, float] = {}
        self._earliest: dict[WriterStep, float] = {}  # the ends of the pauses in proportion to work
        self._windows: dict[Key | WriterStep, float] = {}  # when the current series of `debounce` or `hold` began
        self._held: dict[Key, float] = {}  # until when `hold` has delayed objects
        self._clock = clock

    def observe(self, observation: Observation) -> None:
        """Queue the objects for which `observation` differs from the last one, before objects already in the queue."""
        before, self._observation = self._observation, observation
        if before is None:
            self._changed = dict.fromkeys((*observation.reports.keys(self._first), *observation.findings))
            return
        if before.receipts.membership != observation.receipts.membership:
            # needed even if the change is soon undone, because statuses computed meanwhile would stay wrong
            is_lost = observation.receipts.has_lost(before.receipts)
            quiet = RECONNECT_SECONDS if is_lost else MEMBERSHIP_QUIET_SECONDS
            self.debounce(WriterStep.PASS, quiet=quiet, longest=MAX_MEMBERSHIP_SECONDS)
        self._put_first(self._differing(before, observation))

    def touch(self, keys: Iterable[Key]) -> None:
        """Queue objects regardless of observations."""
        self._changed.update(dict.fromkeys(keys))
        self._put_first(())

    def add(self, entry: Key | WriterStep, *, after: float) -> None:
        """Queue an object or a step in `after` seconds, unless it is due before, or the object's status is computed before."""
        self._due[entry] = min(self._clock() + after, self._due.get(entry, math.inf))

    def debounce(self, step: WriterStep, *, quiet: float, longest: float) -> None:
        """Queue a step `quiet` seconds after the last call, at most `longest` seconds after the first one since the last step."""
        now = self._clock()
        self._due[step] = min(now + quiet, self._windows.setdefault(step, now) + longest)

    def hold(self, key: Key, *, quiet: float, longest: float) -> bool:
        """Return whether a write of an object's status, which is not urgent, has to wait; then queue the object.

        A write is not held if the last one was `longest` seconds ago. Else it waits until there was no call for `quiet`
        seconds, or until `longest` seconds after the last write.
        """
        now, written = self._clock(), self._windows.get(key, -math.inf)
        if now >= min(written + longest, self._held.get(key, math.inf)):
            self._windows[key] = now
            self._held.pop(key, None)
            return False
        self._due[key] = self._held[key] = min(now + quiet, written + longest)
        return True

    def rest(self, step: WriterStep, seconds: float) -> None:
        """Delay the next step of this kind: it is due in `seconds` at the earliest."""
        self._earliest[step] = self._clock() + seconds

    def take(self, step: WriterStep) -> bool:
        """Return whether a step is due; then remove it."""
        if self._due_time(step) > self._clock():
            return False
        self._due.pop(step)
        self._windows.pop(step, None)
        return True

    def forget(self, key: Key) -> None:
        """Drop all that is known about an object."""
        for times in (self._due, self._windows, self._held):
            times.pop(key, None)

    @property
    def next_due(self) -> float:
        """The seconds until the next object or step that is queued for later is due; infinite if there is none."""
        return min(map(self._due_time, self._due), default=math.inf) - self._clock()

    def _due_time(self, entry: Key | WriterStep) -> float:
        earliest = self._earliest.get(entry, 0.0) if isinstance(entry, WriterStep) else 0.0
        return max(self._due.get(entry, math.inf), earliest)

    def take_due(self) -> None:
        """Move the objects that are due to the changed ones."""
        now = self._clock()
        if ripe := [key for key, due in self._due.items() if due <= now and not isinstance(key, WriterStep)]:
            self.touch(ripe)
            for key in ripe:
                del self._due[key]

    def _put_first(self, keys: Iterable[Key]) -> None:
        """Queue objects before those already in the queue, and all changed Gateways and ListenerSets before them."""
        changed = {**dict.fromkeys(keys), **self._changed}
        gateways = (key for key in changed if (key.group, key.kind) in _GATEWAYS)
        self._changed = {**dict.fromkeys(gateways), **changed}

    @property
    def is_empty(self) -> bool:
        """Whether no object is due. A full pass queues its objects only when it begins."""
        return not self._changed and not self._pass

    @property
    def is_pass_due(self) -> bool:
        """Whether proxies connected or disconnected since the last full pass began, and no pass is running."""
        return WriterStep.PASS in self._due and not self._pass

    def begin_due_pass(self) -> None:
        """Begin a full pass if it is time for it: queue all objects."""
        if self._observation and not self._pass and self.take(WriterStep.PASS):
            self._pass_work = 0.0
            self._pass = dict.fromkeys(self._observation.reports.keys(self._kinds))

    def spend_on_pass(self, seconds: float) -> None:
        """Add processor time to the current full pass, and delay the next one in proportion."""
        self._pass_work += seconds
        self.rest(WriterStep.PASS, PAUSE_FACTOR * self._pass_work)

    def next(self) -> tuple[Key, bool] | None:
        """Remove and return the next object, and whether it belongs to a full pass; None if the queue is empty."""
        in_pass = not self._changed
        left = self._pass if in_pass else self._changed
        if not left:
            return None
        key = next(iter(left))
        self._changed.pop(key, None)
        self._pass.pop(key, None)
        self._due.pop(key, None)
        return key, in_pass

    def _differing(self, before: Observation, observation: Observation) -> Iterator[Key]:
        if observation.reports is not before.reports:
            yield from observation.reports.differing(before.reports, self._kinds)
        yield from differing(before.findings, observation.findings)
        yield from differing(before.compared, observation.compared)
        yield from differing(before.audits, observation.audits)
        if observation.blocking != before.blocking:
            yield from observation.reports.migrating
        for workload in observation.incomplete_certificates ^ before.incomplete_certificates:
            yield from observation.reports.affecting.get(workload, ())
        old, new = before.receipts, observation.receipts
        for target in (*_with_new_answers(old, new), *_with_new_views(old, new)):
            yield from observation.reports.affecting.get(target, ())


def _with_new_answers(before: Receipts, now: Receipts) -> Iterator[RouteParent | str]:
    """Yield the ports, and pods (`namespace/name`), for which the set of lagging or refusing proxies has changed."""
    for state, node_ids in before.by_state.items() ^ now.by_state.items():
        for resource in state.out_of_sync or ():
            if is_inbound(resource):
                yield from (node_id.removeprefix(f"{SIDECAR}/") for node_id in node_ids)
            if state.group:
                yield from state.group.ports(*resource)


def _with_new_views(before: Receipts, now: Receipts) -> Iterator[RouteParent]:
    """Yield the ports that were added to or removed from the configuration of a proxy."""
    moved = {(before.states.get(node_id, state).group, state.group) for node_id, state in now.states.items()}
    for old, new in moved:
        if old and new and old is not new:
            yield from filter(None, map(port_of, old.named() ^ new.named()))
