"""The report and the proxies' answers as conditions, and as the status of TrafficSplits and Services. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from headgate.compiler.reasons import ConditionType, Reason
from headgate.compiler.report import (
    Finding,
    GatewayOutcome,
    ParentStatus,
    SelectedPods,
    Share,
    SplitOutcome,
    StatusCondition,
)
from headgate.plane.status.receipts import Progress, Receipts
from headgate.resources.meta import Object, Value

_FINE = {
    ConditionType.ACCEPTED: ("Accepted", "the split is valid and decides for its root"),
    ConditionType.RESOLVED_REFS: (
        "ResolvedRefs",
        "every Service that the split names exists and offers the root's ports",
    ),
    ConditionType.BACKENDS_READY: ("BackendsReady", "every backend with a weight has ready endpoints"),
}
_SOUND = "the pods of the Service have every port that it names"
_CONFLICTED = "Conflicted"
_NO_SUCH_BACKEND = {
    Reason.BACKEND_NOT_FOUND,
    Reason.PORT_MISMATCH,
    Reason.PROTOCOL_MISMATCH,
    Reason.REF_NOT_PERMITTED,
}
_NAMED = 5  # proxies that a message names


class ObjectReport(Value, frozen=True, kw_only=True):
    """What the compiler has to say about one object; generation 0 is unknown, for what can't be decoded.

    `underway` are those of the `selected` workloads that are not in the stage that is wanted of them, `unnamed` those whose
    certificate does not carry all names yet that it is to carry.
    """

    generation: int
    findings: tuple[Finding, ...] = ()
    outcomes: tuple[SplitOutcome, ...] = ()
    parents: tuple[ParentStatus, ...] = ()
    gateway: GatewayOutcome | None = None
    selected: SelectedPods | None = None
    underway: tuple[str, ...] = ()
    unnamed: tuple[str, ...] = ()


class StatusInputs(NamedTuple):
    """What is now: what the proxies hold, the time as RFC 3339, and the proxies that workloads' next stages wait for."""

    receipts: Receipts
    time: str
    awaited: Sequence[str] = ()


def conditions(findings: Sequence[Finding], progress: Progress) -> tuple[StatusCondition, ...]:
    """Return the conditions of an object, in their order."""
    found = tuple(by_condition(findings, _FINE))
    conflicted = [item for item in findings if item.reason is Reason.CONFLICTED]
    conflict = StatusCondition(
        type=_CONFLICTED,
        status=bool(conflicted),
        reason=_CONFLICTED if conflicted else "NoConflicts",
        message=conflicted[0].message if conflicted else "no other split claims the root",
    )
    accepted = found[0].status and not any(item.reason is Reason.SERVICE_NOT_FOUND for item in findings)
    return (*found, conflict, programmed(progress, accepted=accepted))


def by_condition(
    findings: Sequence[Finding], fine: Mapping[ConditionType, tuple[str, str]]
) -> Iterator[StatusCondition]:
    """Yield a verdict for each condition; `fine` has the reason and the message of one that no finding breaks."""
    for condition, (reason, message) in fine.items():
        broken = [item for item in findings if item.reason.condition is condition]
        if broken:
            text = "; ".join(dict.fromkeys(item.message for item in broken))
            yield StatusCondition(type=condition.value, status=False, reason=broken[0].reason.value, message=text)
        else:
            yield StatusCondition(type=condition.value, status=True, reason=reason, message=message)


def programmed(progress: Progress, *, accepted: bool, held: str = "") -> StatusCondition:
    """Return the condition that says how far the proxies are; there is nothing to hold of what is not accepted.

    `held` says how many are done, in other words than the usual ones.
    """

    def verdict(reason: str, message: str, *, status: bool = False) -> StatusCondition:
        return StatusCondition(type=ConditionType.PROGRAMMED.value, status=status, reason=reason, message=message)

    held = held or f"{progress.holding} of {progress.total} proxies hold it"
    if not accepted:
        return verdict("Invalid", "there is nothing to program; see the other conditions")
    if progress.refused:
        words = [f"{proxy} refused it: {message.strip()}" for proxy, message in progress.refused]
        return verdict(Reason.ENVOY_REJECTED.value, f"{held}; {few(words, '; ')}")
    if not progress.total:
        return verdict("NoProxies", "there is no proxy that is to hold it")
    if progress.lagging:
        return verdict("Pending", f"{held}; waiting for {few(progress.lagging)}")
    return verdict("Programmed", held, status=True)


def few(words: Sequence[str], between: str = ", ") -> str:
    """Join words, a few at most: `a, b, c, d, e and 37 more`."""
    more = f" and {len(words) - _NAMED} more" if len(words) > _NAMED else ""
    return between.join(words[:_NAMED]) + more


def shares(outcomes: Sequence[SplitOutcome]) -> list[Mapping[str, Any]]:
    """Return `status.ports`: what each backend gets on each port of the root."""
    return [{"port": outcome.ref.port, "backends": [_share(item) for item in outcome.shares]} for outcome in outcomes]


def _share(share: Share) -> Mapping[str, Any]:
    found = {
        "service": share.service.split("/")[-1],
        "weight": share.weight,
        "percent": percent(share),
        "endpoints": share.endpoints,
    }
    return found | {"reason": share.left_out.value} if share.left_out else found


def summary(outcomes: Sequence[SplitOutcome]) -> str:
    """Write the shares in one line, for Events: `port 8080: website-v1 90%, website-v2 10%`."""
    return "; ".join(f"port {outcome.ref.port}: {', '.join(_parts(outcome))}" for outcome in outcomes)


def _parts(outcome: SplitOutcome) -> Iterator[str]:
    """Yield who gets what, and what becomes of the requests that no backend gets (D9, D10)."""
    for item in outcome.shares:
        yield f"{item.service.split('/')[-1]} {percent(item)}"
    rest = 1 - sum((Fraction(item.numerator, item.denominator) for item in outcome.shares), Fraction(0))
    weighted = any(item.weight for item in outcome.shares)
    if rest == 1 and weighted and all(item.left_out in _NO_SUCH_BACKEND for item in outcome.shares):
        yield f"the plain Service {outcome.ref.service.split('/')[-1]} 100%"
    elif rest:
        yield f"503 {_percent(rest)}"


def percent(share: Share) -> str:
    """Write a share as a percentage with two decimals at most: `33.33%`, `90%`."""
    return _percent(Fraction(share.numerator, share.denominator))


def _percent(part: Fraction) -> str:
    return f"{round(10_000 * part) / 100:.2f}".rstrip("0").rstrip(".") + "%"


def timed(
    conditions: Sequence[StatusCondition], before: object, *, generation: int, now: str
) -> list[Mapping[str, Any]]:
    """Return conditions as `conditions`; one keeps its time from `before` while its status is the same."""
    rows = before if isinstance(before, Sequence) else ()
    known = {item["type"]: item for item in rows if isinstance(item, Mapping) and "type" in item}
    found: list[Mapping[str, Any]] = []
    for verdict in conditions:
        text = "True" if verdict.status else "False"
        old = known.get(verdict.type, {})
        same = old.get("status") == text and "lastTransitionTime" in old
        found.append(
            {
                "type": verdict.type,
                "status": text,
                "reason": verdict.reason,
                "message": verdict.message,
                "observedGeneration": generation,
                "lastTransitionTime": old["lastTransitionTime"] if same else now,
            }
        )
    return found


def status_of(obj: Object) -> Mapping[str, Any]:
    """Return an object's status, an empty one where there is none."""
    return obj.get("status") or {}


def split_status(obj: Object, said: ObjectReport, present: StatusInputs) -> Mapping[str, Any]:
    """Return the whole status of a TrafficSplit."""
    progress = present.receipts.progress([outcome.ref for outcome in said.outcomes])
    generation = said.generation or obj["metadata"].get("generation", 0)
    judged = conditions(said.findings, progress)
    before = status_of(obj).get("conditions")
    return {
        "observedGeneration": generation,
        "conditions": timed(judged, before, generation=generation, now=present.time),
        "proxies": {"programmed": progress.holding, "total": progress.total},
        "ports": shares(said.outcomes),
    }


def service_status(obj: Object, said: ObjectReport, present: StatusInputs) -> Mapping[str, Any] | None:
    """Return the whole status of a Service: whether its pods have the ports that it names.

    None for one that has no fault and had none. Conditions of other controllers stay.
    """
    before = status_of(obj)
    known = before.get("conditions") or ()
    faults = [item for item in said.findings if item.reason.condition is ConditionType.RESOLVED_REFS]
    if not faults and all(item.get("type") != ConditionType.RESOLVED_REFS.value for item in known):
        return None
    text = "; ".join(dict.fromkeys(f"{item.field}: {item.message}" for item in faults))
    verdict = StatusCondition(
        type=ConditionType.RESOLVED_REFS.value,
        status=not faults,
        reason=faults[0].reason.value if faults else ConditionType.RESOLVED_REFS.value,
        message=text or _SOUND,
    )
    generation = said.generation or obj["metadata"].get("generation", 0)
    own = timed([verdict], known, generation=generation, now=present.time)
    return {
        **before,
        "conditions": [*(item for item in known if item.get("type") != ConditionType.RESOLVED_REFS.value), *own],
    }
