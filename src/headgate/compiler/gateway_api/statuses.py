"""What the Gateway API has routes and Gateways say of themselves, from what was found. Times and proxies come later."""

from collections.abc import Iterable, Sequence

from headgate.compiler.gateway_api.backend_shares import failure
from headgate.compiler.gateway_api.gateways import GatewayState, ListenerPlan
from headgate.compiler.gateway_api.rules import CompiledRoute
from headgate.compiler.reasons import ConditionType, Reason
from headgate.compiler.report import Finding, GatewayOutcome, ListenerOutcome, StatusCondition
from headgate.resources.gateway import GROUP
from headgate.resources.meta import Key

_WORDS = {  # the Gateway API's words, where it has other ones
    Reason.PORT_NOT_BINDABLE: "PortUnavailable",
    Reason.LISTENER_PROTOCOL_CONFLICT: "ProtocolConflict",
}
_LISTENER_ACCEPTED = {Reason.UNSUPPORTED_PROTOCOL, Reason.PORT_NOT_BINDABLE}
_TOLD = {
    Reason.PERCENT_IGNORED,
    Reason.FRACTION_ROUNDED,
    Reason.FIELD_IGNORED,
    Reason.TOO_MANY_MATCHES,
    Reason.NO_READY_ENDPOINTS,
}


def route_conditions(
    route: CompiledRoute, refusal: Finding | None, told: Sequence[Finding]
) -> tuple[StatusCondition, ...]:
    """Return the conditions of a route at one parent; `told` are findings about the two of them that stop nothing."""
    refs = [item for item in route.findings if item.reason.condition is ConditionType.RESOLVED_REFS]
    fault = refusal or (None if route.usable else route.faults[0])
    notes = [*told, *(item for item in route.findings if item.reason in _TOLD)]
    accepted = _first("Accepted", [fault] if fault else [], fine="the route is attached", notes=notes)
    conditions = [accepted, _first("ResolvedRefs", refs, fine="every Service that the route names can be used")]
    if route.usable and route.faults:
        message = f"Dropped Rule: what its matches are for is {failure(route.key).mistake}: {joined(route.faults)}"
        reason = route.faults[0].reason.value
        conditions.append(StatusCondition(type="PartiallyInvalid", status=True, reason=reason, message=message))
    return tuple(conditions)


def gateway_outcome(
    key: Key,
    state: GatewayState,
    plans: Sequence[ListenerPlan],
    *,
    attached: Sequence[tuple[str, Key]],
    ports: tuple[int, ...],
) -> GatewayOutcome:
    """Return what a Gateway came to; `attached` are listeners' names and the routes that they have."""
    routes = set(attached)
    listeners = tuple(
        ListenerOutcome(
            name=plan.listener.name,
            attached=sum(name == plan.listener.name for name, _ in routes),
            kinds=tuple((GROUP, kind) for kind in plan.kinds),
            conditions=_listener_conditions(plan),
        )
        for plan in plans
    )
    conditions = tuple(_gateway_conditions(state, plans))
    return GatewayOutcome(about=key, ports=ports, listeners=listeners, conditions=conditions)


def _gateway_conditions(state: GatewayState, plans: Sequence[ListenerPlan]) -> Iterable[StatusCondition]:
    if state.refusals:
        yield _first("Accepted", state.refusals, fine="")
        yield StatusCondition(type="Programmed", status=False, reason="Invalid", message="the Gateway is not accepted")
        return
    faults = [fault for plan in plans for fault in plan.faults]
    served = any(plan.served for plan in plans)
    if not faults:
        yield _first("Accepted", [], fine="every listener can be served", notes=state.ignored_fields)
    else:
        message = joined([*faults, *state.ignored_fields])
        yield StatusCondition(type="Accepted", status=served, reason="ListenersNotValid", message=message)
    if not served:
        yield StatusCondition(type="Programmed", status=False, reason="Invalid", message="no listener can be served")
    elif missing_addresses := [item for item in state.missing_addresses if item.reason is Reason.ADDRESS_NOT_USABLE]:
        yield _first("Programmed", missing_addresses, fine="")
    elif not state.address:
        message = "the Gateway has no address of its own"
        yield StatusCondition(
            type="Programmed", status=False, reason=Reason.ADDRESS_NOT_ASSIGNED.value, message=message
        )


def _listener_conditions(plan: ListenerPlan) -> tuple[StatusCondition, ...]:
    found = [*plan.faults, *plan.warnings]
    accepted = [item for item in found if item.reason in _LISTENER_ACCEPTED]
    conflicts = [item for item in found if item.reason is Reason.LISTENER_PROTOCOL_CONFLICT]
    refs = [item for item in found if item.reason not in {*_LISTENER_ACCEPTED, Reason.LISTENER_PROTOCOL_CONFLICT}]
    conditions = [
        _first("Accepted", accepted, fine=f"{plan.listener.protocol} is served on port {plan.listener.port}"),
        _first("ResolvedRefs", refs, fine="every certificate and kind that the listener names can be used"),
        StatusCondition(
            type="Conflicted",
            status=bool(conflicts),
            reason=_WORDS[conflicts[0].reason] if conflicts else "NoConflicts",
            message=joined(conflicts) or "no other listener asks for the same",
        ),
    ]
    if not plan.served:
        message = f"the listener is not served: {joined(plan.faults)}"
        conditions.append(StatusCondition(type="Programmed", status=False, reason="Invalid", message=message))
    return tuple(conditions)


def _first(kind: str, faults: Sequence[Finding], *, fine: str, notes: Sequence[Finding] = ()) -> StatusCondition:
    if faults:
        reason = faults[0].reason
        word = _WORDS.get(reason, reason.value)
        return StatusCondition(type=kind, status=False, reason=word, message=joined(faults))
    return StatusCondition(type=kind, status=True, reason=kind, message="; ".join([fine, *_messages(notes)]))


def joined(findings: Iterable[Finding]) -> str:
    """Return the fields and messages in one line."""
    return "; ".join(_messages(findings))


def _messages(findings: Iterable[Finding]) -> list[str]:
    return list(dict.fromkeys(f"{item.field}: {item.message}" for item in findings))
