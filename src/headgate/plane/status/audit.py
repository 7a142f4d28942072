"""The part of a TrafficTarget's status about its audit mode: the calls that it would refuse, by caller."""

from collections.abc import Iterator

from headgate.compiler.report import StatusCondition
from headgate.plane.status.audit_outcome import AuditOutcome
from headgate.plane.status.conditions import few
from headgate.resources.audit_mode import RefusedCalls
from headgate.resources.meta import timestamp

CONDITION = "WouldRefuse"
_MOST_CALLERS = 20  # in a status; a count replaces the rest


def conditions(outcome: AuditOutcome | None) -> Iterator[StatusCondition]:
    """Yield the condition of a TrafficTarget in audit mode."""
    if outcome is None:
        return
    message = _message(outcome)
    reason = "CallsNotAllowed" if outcome.callers else "AllCallsAllowed" if outcome.since else "NoCalls"
    yield StatusCondition(
        type=CONDITION,
        status=bool(outcome.callers) if outcome.callers or outcome.since else None,
        reason=reason,
        message=message,
    )


def _message(outcome: AuditOutcome) -> str:
    if not outcome.since:
        return "no call was counted yet with these rules"
    since = timestamp(outcome.since)
    if not outcome.callers:
        return f"without audit mode, no call since {since} would have been refused"
    verb = "call would have been" if outcome.calls == 1 else "calls would have been"
    return f"without audit mode, {outcome.calls} {verb} refused since {since}: {few([str(caller) for caller in outcome.callers])}"


def refused_calls(outcome: AuditOutcome | None) -> RefusedCalls | None:
    """Return the field `wouldRefuse` of a status; None without an audit."""
    if outcome is None or not outcome.since:
        return None
    callers = outcome.callers[:_MOST_CALLERS]
    return RefusedCalls(
        start_time=timestamp(outcome.since),
        calls=outcome.calls,
        callers=callers,
        omitted_callers=len(outcome.callers) - len(callers),
    )
