"""Sums up the calls that access policies in audit mode would refuse, for the statuses of these policies.

Access policies are TrafficTargets and XAuthorizationPolicies. A refused call belongs to those that name its caller, because their rules do not match it. If none names the
caller, it belongs to all policies of the destination. Calls are counted for the ServiceAccount of the destination: a policy for some of its pods has those to the remaining pods too.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import structs

from headgate.compiler.report import Compiled
from headgate.latest import Latest
from headgate.model.access import Grant
from headgate.model.identities import parse_id
from headgate.model.routing import Mesh, Workload
from headgate.plane.access_calls import audited_rules
from headgate.plane.status.audit_outcome import AuditOutcome
from headgate.resources.audit_mode import MODE, RefusedCaller
from headgate.resources.meta import Key
from headgate.resources.registry import KINDS
from headgate.telemetry.access_records import AccessRecord, AccessRecords, Audit, CallKey

_AUDITED = frozenset(kind.kind for kind in KINDS if MODE in kind.annotations)
PUBLISH_S = 15.0  # seconds between two looks at the counts
STEADY_S = 300.0  # seconds until counts are published that grew by less than `NOTICEABLE`
NOTICEABLE = 1.1

Outcomes = Mapping[Key, AuditOutcome]
"""The outcome of each access policy in audit mode."""


def outcomes(compiled: Compiled, records: AccessRecords) -> Outcomes:
    """Return the current outcome of each access policy whose audit counts calls."""
    audited, rules = _audited(compiled.mesh), audited_rules(compiled.mesh.workloads)
    refused: dict[str, list[tuple[CallKey, AccessRecord]]] = defaultdict(list)
    for key, record in records.audited():
        refused[key.destination].append((key, record))
    by_target: dict[Key, AuditOutcome] = {}
    for selected in compiled.report.selected:
        called = next((audited[name] for name in selected.workloads if name in audited), None)
        if called and selected.about.kind in _AUDITED:
            audit = records.audit(called.identity, rules[called.identity])
            by_target[selected.about] = _outcome(selected.about, called.access.grants, audit, refused[called.identity])
    return by_target


def _audited(mesh: Mesh) -> Mapping[str, Workload]:
    return {workload.name: workload for workload in mesh.workloads if workload.access.audited}


def _outcome(
    about: Key, grants: Sequence[Grant], audit: Audit | None, refused: Iterable[tuple[CallKey, AccessRecord]]
) -> AuditOutcome:
    if audit is None:
        return AuditOutcome()
    callers = []
    for key, record in refused:
        naming = [grant.origin for grant in grants if grant.includes(key.caller if parse_id(key.caller) else "")]
        if about in naming or not naming:
            callers.append(_refused_caller(key, record, is_named=bool(naming)))
    callers.sort(key=lambda caller: (-caller.calls, caller.caller, caller.port, caller.protocol))
    return AuditOutcome(since=audit.since, callers=tuple(callers))


def _refused_caller(key: CallKey, record: AccessRecord, *, is_named: bool) -> RefusedCaller:
    account = parse_id(key.caller)
    return RefusedCaller(
        caller=f"{account.namespace}/{account.name}" if account else key.caller,
        port=key.port,
        protocol=key.protocol,
        calls=record.audited,
        reason="NoRuleMatches" if is_named else "NoTargetNamesCaller" if account else "NoIdentity",
    )


def published(last: AuditOutcome | None, now: AuditOutcome, *, is_old: bool) -> AuditOutcome:
    """Return `now` if it differs noticeably from the `last` outcome, or if that `is_old`; otherwise the last one."""
    if last is None or is_old or last.since != now.since or _callers(last) != _callers(now):
        return now
    return now if now.calls >= last.calls * NOTICEABLE else last


def _callers(outcome: AuditOutcome) -> frozenset[RefusedCaller]:
    return frozenset(structs.replace(caller, calls=0) for caller in outcome.callers)


class AccessAuditor:
    """Publishes the `outcomes` of the running mesh's audits. `clock` is monotonic, in seconds."""

    def __init__(
        self,
        compiled: Latest[Compiled | None],
        records: AccessRecords,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.outcomes: Latest[Outcomes] = Latest({})
        self._compiled = compiled
        self._records = records
        self._clock = clock
        self._changed: dict[Key, float] = {}  # when an outcome was published

    async def run(self) -> None:
        """Publish the outcomes every `PUBLISH_S` seconds while something is audited, until canceled."""
        while True:
            changed = self._compiled.next_change()
            compiled = self._compiled.get()
            if compiled is None or not _audited(compiled.mesh):
                self._changed = {}
                self.outcomes.set({})
                await changed.wait()
                continue
            self.publish(compiled)
            await asyncio.sleep(PUBLISH_S)

    def publish(self, compiled: Compiled) -> None:
        """Publish the outcomes that differ noticeably from those that are published."""
        now, last = self._clock(), self.outcomes.get()
        current: dict[Key, AuditOutcome] = {}
        for about, outcome in outcomes(compiled, self._records).items():
            is_old = now >= self._changed.get(about, now) + STEADY_S
            current[about] = published(last.get(about), outcome, is_old=is_old)
            if current[about] != last.get(about):
                self._changed[about] = now
        self._changed = {about: time for about, time in self._changed.items() if about in current}
        self.outcomes.set(current)
