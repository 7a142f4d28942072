"""Build the status conditions of routes and Gateways; the plane adds times and the state of proxies."""

from collections.abc import Iterable, Mapping, Sequence

from headgate.compiler.gateway_api.backend_shares import failure
from headgate.compiler.gateway_api.gateways import GatewayState, ListenerPlan
from headgate.compiler.gateway_api.rules import CompiledRoute
from headgate.compiler.reasons import ConditionType, Reason
from headgate.compiler.report import Finding, GatewayOutcome, ListenerOutcome, StatusCondition
from headgate.resources.gateway_api.gateway import GROUP
from headgate.resources.meta import Key

_REASON_WORDS = {  # reasons with another name in the Gateway API
    Reason.PORT_NOT_BINDABLE: "PortUnavailable",
    Reason.LISTENER_PROTOCOL_CONFLICT: "ProtocolConflict",
    Reason.LISTENER_HOSTNAME_CONFLICT: "HostnameConflict",
}
_LISTENER_CONFLICTS = {Reason.LISTENER_PROTOCOL_CONFLICT, Reason.LISTENER_HOSTNAME_CONFLICT}
_LISTENER_ACCEPTED = {Reason.UNSUPPORTED_PROTOCOL, Reason.PORT_NOT_BINDABLE}
_UNACCEPTED = {
    True: "the Gateway is not accepted; proxies that run already keep their parameters",
    False: "the Gateway is not accepted",
}
_NO_ROUTE = "no proxy listens on the port until a TCPRoute is attached"
_NOTES = {
    Reason.PERCENT_IGNORED,
    Reason.FRACTION_ROUNDED,
    Reason.FIELD_IGNORED,
    Reason.TOO_MANY_MATCHES,
    Reason.NO_READY_ENDPOINTS,
}


def route_conditions(
    route: CompiledRoute, refusal: Finding | None, notes: Sequence[Finding]
) -> tuple[StatusCondition, ...]:
    """Return the conditions of a route at one parent; `notes` has findings that do not disable the route."""
    refs = [finding for finding in route.findings if finding.reason.condition is ConditionType.RESOLVED_REFS]
    fault = refusal or (None if route.usable else route.faults[0])
    accepted_notes = [*notes, *(finding for finding in route.findings if finding.reason in _NOTES)]
    accepted = _first("Accepted", [fault] if fault else [], success="the route is attached", notes=accepted_notes)
    conditions = [accepted, _first("ResolvedRefs", refs, success="all referenced Services are usable")]
    if route.usable and route.faults:
        message = f"Dropped Rule: its requests are {failure(route.key).mistake}: {joined(route.faults)}"
        reason = route.faults[0].reason.value
        conditions.append(StatusCondition(type="PartiallyInvalid", status=True, reason=reason, message=message))
    return tuple(conditions)


def gateway_outcome(
    key: Key,
    state: GatewayState,
    plans: Sequence[ListenerPlan],
    *,
    attached: Mapping[str, int],
    ports: tuple[int, ...],
) -> GatewayOutcome:
    """Return the status of a Gateway; `attached` has the numbers of attached routes by listener."""
    listeners = tuple(
        ListenerOutcome(
            name=plan.listener.name,
            attached=attached.get(plan.listener.name, 0),
            kinds=tuple((GROUP, kind) for kind in plan.kinds),
            conditions=_listener_conditions(plan, _waiting(state, plan, ports)),
        )
        for plan in plans
    )
    conditions = tuple(_gateway_conditions(state, plans, ports))
    return GatewayOutcome(about=key, ports=ports, listeners=listeners, conditions=conditions)


def _waiting(state: GatewayState, plan: ListenerPlan, ports: Sequence[int]) -> str:
    """Return why no proxy listens on the port of a valid listener yet; empty if one does, or never will."""
    if not plan.served or state.refusals or plan.listener.port in ports:
        return ""
    return _NO_ROUTE if state.address else "the Gateway has no address yet; see its condition Programmed"


def _gateway_conditions(
    state: GatewayState, plans: Sequence[ListenerPlan], ports: Sequence[int]
) -> Iterable[StatusCondition]:
    if state.refusals:
        yield _first("Accepted", state.refusals, success="")
        yield StatusCondition(type="Programmed", status=False, reason="Invalid", message=_UNACCEPTED[state.is_served])
        return
    faults = [fault for plan in plans for fault in plan.faults]
    served = any(plan.served for plan in plans)
    if not faults:
        yield _first("Accepted", [], success="all listeners are valid", notes=state.ignored_fields)
    else:
        message = joined([*faults, *state.ignored_fields])
        yield StatusCondition(type="Accepted", status=served, reason="ListenersNotValid", message=message)
    if not served:
        yield StatusCondition(type="Programmed", status=False, reason="Invalid", message="no listener is valid")
    elif missing_addresses := [
        finding for finding in state.missing_addresses if finding.reason is Reason.ADDRESS_NOT_USABLE
    ]:
        yield _first("Programmed", missing_addresses, success="")
    elif not state.address:
        message = "the Gateway has no address of its own"
        yield StatusCondition(
            type="Programmed", status=False, reason=Reason.ADDRESS_NOT_ASSIGNED.value, message=message
        )
    elif not ports:
        yield StatusCondition(type="Programmed", status=False, reason="Pending", message=_NO_ROUTE)


def _listener_conditions(plan: ListenerPlan, waiting: str) -> tuple[StatusCondition, ...]:
    findings = [*plan.faults, *plan.warnings]
    accepted = [finding for finding in findings if finding.reason in _LISTENER_ACCEPTED]
    conflicts = [finding for finding in findings if finding.reason in _LISTENER_CONFLICTS]
    refs = [finding for finding in findings if finding.reason not in _LISTENER_ACCEPTED | _LISTENER_CONFLICTS]
    conditions = [
        _first("Accepted", accepted, success=f"{plan.listener.protocol} is served on port {plan.listener.port}"),
        _first("ResolvedRefs", refs, success="all referenced certificates and kinds are usable"),
        StatusCondition(
            type="Conflicted",
            status=bool(conflicts),
            reason=_REASON_WORDS[conflicts[0].reason] if conflicts else "NoConflicts",
            message=joined(conflicts) or "no other listener uses the same port and hostname",
        ),
    ]
    if not plan.served:
        message = f"the listener is not served: {joined(plan.faults)}"
        conditions.append(StatusCondition(type="Programmed", status=False, reason="Invalid", message=message))
    elif waiting:
        conditions.append(StatusCondition(type="Programmed", status=False, reason="Pending", message=waiting))
    return tuple(conditions)


def _first(kind: str, faults: Sequence[Finding], *, success: str, notes: Sequence[Finding] = ()) -> StatusCondition:
    if faults:
        reason = faults[0].reason
        word = _REASON_WORDS.get(reason, reason.value)
        return StatusCondition(type=kind, status=False, reason=word, message=joined(faults))
    return StatusCondition(type=kind, status=True, reason=kind, message="; ".join([success, *_messages(notes)]))


def joined(findings: Iterable[Finding]) -> str:
    """Return the fields and messages of findings in one line."""
    return "; ".join(_messages(findings))


def _messages(findings: Iterable[Finding]) -> list[str]:
    return list(dict.fromkeys(f"{finding.field}: {finding.message}" for finding in findings))
