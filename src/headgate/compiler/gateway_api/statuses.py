"""Build the status conditions of routes and Gateways; the plane adds times and the state of proxies."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

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
_LISTENER_ACCEPTED = {Reason.UNSUPPORTED_PROTOCOL, Reason.PORT_NOT_BINDABLE, Reason.NO_VALID_CA_CERTIFICATE}
_LISTENERS_NOT_VALID = "ListenersNotValid"
_UNACCEPTED = {
    True: "the Gateway is not accepted; proxies that run already keep their parameters",
    False: "the Gateway is not accepted",
}
_NO_ROUTE = "no proxy listens on the port until a %sRoute is attached"  # of the listener's protocol: TCP or UDP
INSECURE_MODE = Reason.INSECURE_FRONTEND_VALIDATION_MODE.value
"""The condition of a Gateway that accepts clients without a valid certificate; it has no such condition otherwise (GEP-91)."""
_DEFAULT = (
    "DefaultGateway"  # the condition of a Gateway with a defaultScope; it has no such condition otherwise (GEP-3793)
)
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
    accepted = first("Accepted", [fault] if fault else [], success="the route is attached", notes=accepted_notes)
    conditions = [accepted, first("ResolvedRefs", refs, success="all referenced Services are usable")]
    if route.usable and route.faults:
        message = f"Dropped Rule: its requests are {failure(route.key).mistake}: {joined(route.faults)}"
        reason = route.faults[0].reason.value
        conditions.append(StatusCondition(type="PartiallyInvalid", status=True, reason=reason, message=message))
    return tuple(conditions)


class OutcomePlace(NamedTuple):
    """The Gateway of listeners, its ports that proxies serve, and its number of ListenerSets; None if they are of one.

    A port is a `Listener.socket`.
    """

    gateway: Key
    ports: frozenset[tuple[int, bool]]
    sets: int | None


def gateway_outcome(
    key: Key,
    state: GatewayState,
    plans: Sequence[ListenerPlan],
    *,
    attached: Mapping[str, int],
    place: OutcomePlace,
) -> GatewayOutcome:
    """Return the status of a Gateway or ListenerSet; `attached` has the numbers of attached routes by listener."""
    ports = {plan.listener.socket for plan in plans if plan.served} & place.ports
    is_set = place.sets is None
    listeners = tuple(
        ListenerOutcome(
            name=plan.listener.name,
            port=plan.listener.port,
            is_udp=plan.listener.is_udp,
            host=plan.host,
            is_served=plan.served,
            secrets=tuple(certificate.secret for certificate in plan.certificates),
            attached=attached.get(plan.listener.name, 0),
            kinds=tuple((GROUP, kind) for kind in plan.kinds),
            conditions=_listener_conditions(plan, _waiting(state, plan, ports), is_set=is_set),
        )
        for plan in plans
    )
    conditions = _set_conditions(state, place.gateway, plans) if is_set else _gateway_conditions(state, plans)
    return GatewayOutcome(
        about=key,
        gateway=f"{place.gateway.namespace}/{place.gateway.name}",
        sets=place.sets,
        ports=tuple(sorted(port for port, is_udp in ports if not is_udp)),
        udp_ports=tuple(sorted(port for port, is_udp in ports if is_udp)),
        listeners=listeners,
        conditions=(*conditions, *_without_proxy(state, plans, ports)),
    )


def refused_outcome(refusal: Finding, *, withdraws: bool) -> GatewayOutcome:
    """Return the status of a ListenerSet that is not attached to its Gateway."""
    conditions = tuple(_unmet(kind, refusal.reason.value, joined([refusal])) for kind in ("Accepted", "Programmed"))
    return GatewayOutcome(
        about=refusal.about, gateway="", sets=None, ports=(), listeners=(), conditions=conditions, withdraws=withdraws
    )


def _unmet(kind: str, reason: str, message: str) -> StatusCondition:
    return StatusCondition(type=kind, status=False, reason=reason, message=message)


def _set_conditions(state: GatewayState, gateway: Key, plans: Sequence[ListenerPlan]) -> Iterable[StatusCondition]:
    """Yield the conditions of a ListenerSet: it is accepted if one of its listeners is valid."""
    faults = [fault for plan in plans for fault in plan.faults]
    if state.refusals:
        message = f"{gateway} is not accepted; see its condition Accepted"
        yield from (_unmet(kind, "ParentNotAccepted", message) for kind in ("Accepted", "Programmed"))
    elif not any(plan.served for plan in plans):
        yield from (_unmet(kind, _LISTENERS_NOT_VALID, joined(faults)) for kind in ("Accepted", "Programmed"))
    elif faults:
        yield StatusCondition(type="Accepted", status=True, reason=_LISTENERS_NOT_VALID, message=joined(faults))
    else:
        yield first("Accepted", [], success=f"all listeners are valid, and added to those of {gateway}")


def _without_proxy(
    state: GatewayState, plans: Sequence[ListenerPlan], ports: Collection[tuple[int, bool]]
) -> Iterable[StatusCondition]:
    """Yield the condition Programmed of valid listeners without a proxy: without an address, or before a route is attached."""
    served = dict.fromkeys(plan.listener.protocol for plan in plans if plan.served)
    if state.refusals or not served:
        return
    unusable = [finding for finding in state.missing_addresses if finding.reason is Reason.ADDRESS_NOT_USABLE]
    if unusable:
        yield first("Programmed", unusable, success="")
    elif not state.address:
        yield _unmet("Programmed", Reason.ADDRESS_NOT_ASSIGNED.value, "the Gateway has no address of its own")
    elif not ports:
        yield _unmet("Programmed", "Pending", _NO_ROUTE % "Route or a ".join(served))


def _waiting(state: GatewayState, plan: ListenerPlan, served: Collection[tuple[int, bool]]) -> str:
    """Return why no proxy listens on the port of a valid listener yet; empty if one does, or never will.

    `served` has the ports with a listener (`Listener.socket`).
    """
    if not plan.served or state.refusals or plan.listener.socket in served:
        return ""
    return (
        _NO_ROUTE % plan.listener.protocol
        if state.address
        else "the Gateway has no address yet; see its condition Programmed"
    )


def _gateway_conditions(state: GatewayState, plans: Sequence[ListenerPlan]) -> Iterable[StatusCondition]:
    if state.refusals:
        yield first("Accepted", state.refusals, success="")
        yield StatusCondition(type="Programmed", status=False, reason="Invalid", message=_UNACCEPTED[state.is_served])
        return
    if state.is_default:
        message = "routes with useDefaultGateways: All attach to the Gateway, if its listeners allow them"
        yield StatusCondition(type=_DEFAULT, status=True, reason=_DEFAULT, message=message)
    if state.insecure_modes:
        message = joined(state.insecure_modes)
        yield StatusCondition(type=INSECURE_MODE, status=True, reason="ConfigurationChanged", message=message)
    faults = [fault for plan in plans for fault in plan.faults]
    served = any(plan.served for plan in plans)
    if not faults:
        yield first("Accepted", [], success="all listeners are valid", notes=state.ignored_fields)
    else:
        message = joined([*faults, *state.ignored_fields])
        yield StatusCondition(type="Accepted", status=served, reason=_LISTENERS_NOT_VALID, message=message)
    if state.client_fault or state.client:
        fault = [state.client_fault] if state.client_fault else []
        yield first("ResolvedRefs", fault, success="the certificate for backends is usable")
    if not served:
        yield _unmet("Programmed", "Invalid", "no listener is valid")


def _listener_conditions(plan: ListenerPlan, waiting: str, *, is_set: bool) -> tuple[StatusCondition, ...]:
    """Return the conditions of a listener. In a ListenerSet, a listener with a conflict is not accepted."""
    findings = [*plan.faults, *plan.warnings]
    unaccepted = _LISTENER_ACCEPTED | (_LISTENER_CONFLICTS if is_set else set())
    accepted = [finding for finding in findings if finding.reason in unaccepted]
    conflicts = [finding for finding in findings if finding.reason in _LISTENER_CONFLICTS]
    refs = [finding for finding in findings if finding.reason not in _LISTENER_ACCEPTED | _LISTENER_CONFLICTS]
    conditions = [
        first("Accepted", accepted, success=f"{plan.listener.protocol} is served on port {plan.listener.port}"),
        first("ResolvedRefs", refs, success="all referenced certificates and kinds are usable"),
        StatusCondition(
            type="Conflicted",
            status=bool(conflicts),
            reason=_REASON_WORDS[conflicts[0].reason] if conflicts else "NoConflicts",
            message=joined(conflicts) or "no other listener uses the same port and hostname",
        ),
    ]
    if not plan.served:
        reason = _REASON_WORDS[conflicts[0].reason] if conflicts and is_set else "Invalid"
        conditions.append(_unmet("Programmed", reason, f"the listener is not served: {joined(plan.faults)}"))
    elif waiting:
        conditions.append(_unmet("Programmed", "Pending", waiting))
    return tuple(conditions)


def first(kind: str, faults: Sequence[Finding], *, success: str, notes: Sequence[Finding] = ()) -> StatusCondition:
    """Return a condition of the type `kind`: False if there are faults, otherwise True with the message `success` and notes."""
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
