"""Attach each route to its parents: listeners of Gateways, and ports of Services (GAMMA).

The result for a route depends on its parents, and on no other route: `conflicts` compares it with those of older routes.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from headgate.compiler.gateway_api.gateways import (
    ANY_HOST,
    ListenerPlan,
    class_findings,
    gateway_states,
    own_gateways,
    plan_listeners,
)
from headgate.compiler.gateway_api.rules import CompiledRoute
from headgate.compiler.gateway_api.statuses import route_conditions
from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding, ParentStatus, finding_order
from headgate.compiler.snapshot import Snapshot
from headgate.model.host_names import host_fits
from headgate.model.requests import ANY
from headgate.model.routing import PortRef, Protocol, RouteTable
from headgate.resources.core.config_map import ConfigMap
from headgate.resources.core.namespace import Namespace
from headgate.resources.core.secret import Secret
from headgate.resources.core.service import Service
from headgate.resources.gateway_api.gateway import GROUP, Gateway
from headgate.resources.gateway_api.gateway_class import GatewayClass
from headgate.resources.gateway_api.reference_grant import ReferenceGrant
from headgate.resources.gateway_api.routes import ParentReference
from headgate.resources.meta import Key, Value
from headgate.resources.registry import SERVICE
from headgate.resources.selectors import selects
from headgate.settings import Settings

_CORE = "core"  # the guides of Flagger and Linkerd write this for the core API group, which is ""


class Parent(Value, frozen=True):
    """`spec.parentRefs[index]` of a route; `key` is the Gateway or Service."""

    index: int
    ref: ParentReference
    key: Key

    @property
    def field(self) -> str:
        """Return the field path of the parentRef."""
        return f"spec.parentRefs[{self.index}]"

    @property
    def name(self) -> str:
        """Return `namespace/name` of the Gateway or Service."""
        return f"{self.key.namespace}/{self.key.name}"


class Attachment(NamedTuple):
    """The attachment of a route to one listener of a Gateway, with the hosts that match both.

    It is not served if older routes have all of its connections.
    """

    listener: str
    hosts: tuple[str, ...]
    is_served: bool = True


class Link(NamedTuple):
    """The relation of a route to one parent: its attachments to a Gateway, or the ports of a Service.

    With a `refusal`, it has none of them. `note` is a finding that does not prevent the route from being accepted.
    """

    parent: Parent
    attachments: tuple[Attachment, ...] = ()
    ports: tuple[PortRef, ...] = ()
    refusal: Finding | None = None
    note: Finding | None = None


Place: TypeAlias = tuple[Key, str] | PortRef
"""A listener, as the key of its Gateway and its name, or a Service port."""


class AttachedRoute(NamedTuple):
    """A route with its links, the statuses for its parents, and all findings about it, in order.

    `entries` has the places and hostnames of a usable route; the hostname is empty at a Service port.
    """

    route: CompiledRoute
    links: tuple[Link, ...]
    entries: tuple[tuple[Place, str], ...]
    statuses: tuple[ParentStatus, ...]
    findings: tuple[Finding, ...]


class Parents:
    """The Gateways of headgate's classes and the Services, to which routes can attach.

    `offered` has the ports of Services with their protocols. Of the snapshot, only the kinds in `READ` are used.
    `findings` are about Gateways and their classes.
    """

    READ = (ConfigMap, Gateway, GatewayClass, Namespace, ReferenceGrant, Secret, Service)

    def __init__(self, snapshot: Snapshot, offered: Iterable[tuple[PortRef, Protocol]], settings: Settings) -> None:
        self.snapshot = snapshot
        self.ports: Mapping[str, list[tuple[PortRef, Protocol]]] = defaultdict(list)  # by Service
        for ref, protocol in offered:
            self.ports[ref.service].append((ref, protocol))
        gateways = own_gateways(snapshot)
        self.states = gateway_states(snapshot, gateways, settings)
        self.plans = {key: plan_listeners(snapshot, key, gateway, settings) for key, gateway in gateways.items()}
        states, plans = self.states.values(), [plan for several in self.plans.values() for plan in several]
        self.findings: Sequence[Finding] = [
            *class_findings(snapshot),
            *(finding for own in states for finding in (*own.refusals, *own.missing_addresses, *own.ignored_fields)),
            *(finding for plan in plans for finding in (*plan.faults, *plan.warnings)),
        ]


def attach(parents: Parents, _key: Key, route: CompiledRoute) -> AttachedRoute:
    """Attach a route to all of its parents that headgate serves."""
    return linked(parents, route, _links(parents, route))


def linked(parents: Parents, route: CompiledRoute, links: Iterable[Link]) -> AttachedRoute:
    """Return a route with these links."""
    links = tuple(links)
    findings = [
        *route.findings,
        *route.faults,
        *(finding for link in links for finding in (link.refusal, link.note) if finding),
    ]
    statuses = tuple(_status(parents, route, link) for link in links)
    entries = tuple(dict.fromkeys(_entries(links))) if route.usable else ()
    return AttachedRoute(route, links, entries, statuses, tuple(sorted(findings, key=finding_order)))


def _entries(links: Iterable[Link]) -> Iterator[tuple[Place, str]]:
    for link in links:
        yield from (
            ((link.parent.key, attachment.listener), host)
            for attachment in link.attachments
            for host in attachment.hosts
        )
        yield from ((port, "") for port in link.ports)


def _links(parents: Parents, route: CompiledRoute) -> Iterator[Link]:
    for index, ref in enumerate(route.parents):
        group = SERVICE.group if ref.group == _CORE else ref.group
        parent = Parent(index, ref, Key(group, ref.kind, ref.namespace or route.key.namespace, ref.name))
        if (group, ref.kind) == (SERVICE.group, SERVICE.kind):
            yield _to_service(parents, route, parent)
        elif (group, ref.kind) == (GROUP, "Gateway"):
            if parent.key in parents.plans:
                yield _to_gateway(parents, route, parent)
            elif parent.key not in parents.snapshot.objects:  # a Gateway of another class has another controller
                yield Link(parent, refusal=_no_gateway(parents.snapshot, route.key, parent))


def _status(parents: Parents, route: CompiledRoute, link: Link) -> ParentStatus:
    conditions = route_conditions(route, link.refusal, (link.note,) if link.note else ())
    plans = parents.plans.get(link.parent.key, ())
    ports = {plan.listener.name: plan.listener.port for plan in plans if plan.served}
    hosts = {
        (ports[attachment.listener], host)
        for attachment in (link.attachments if route.usable else ())
        if attachment.is_served and attachment.listener in ports
        for host in (("",) if route.connections else _programmed_hosts(attachment.hosts))
    }
    return ParentStatus(
        about=route.key,
        index=link.parent.index,
        parent=link.parent.key,
        conditions=conditions,
        ports=link.ports if route.usable else (),
        gateway_hosts=tuple(sorted(hosts)),
    )


def _programmed_hosts(hosts: tuple[str, ...]) -> tuple[str, ...]:
    return ("",) if any(host.startswith("*") for host in hosts) else hosts


def _no_gateway(snapshot: Snapshot, about: Key, parent: Parent) -> Finding:
    invalid = parent.key in snapshot.mistakes
    what, fix = ("is not valid", "correct it") if invalid else ("not found", "create it or correct the name")
    message = f"{parent.key} {what}, so the route is not attached to it; {fix}"
    return Finding(about, Reason.NO_MATCHING_PARENT, f"{parent.field}.name", message)


def _to_gateway(parents: Parents, route: CompiledRoute, parent: Parent) -> Link:
    """Attach a route to the listeners of a Gateway that match its parentRef and allow it."""
    plans, section, port = parents.plans[parent.key], parent.ref.section_name, parent.ref.port
    named = [plan for plan in plans if section in {"", plan.listener.name} and port in {None, plan.listener.port}]
    if not named:
        offered = ", ".join(f"{plan.listener.name} (port {plan.listener.port})" for plan in plans)
        message = f"Gateway {parent.name} has no such listener; its listeners are: {offered or 'none'}"
        return Link(parent, refusal=Finding(route.key, Reason.NO_MATCHING_PARENT, parent.field, message))
    allowed = [plan for plan in named if _allows(parents.snapshot, plan, route.key, parent.key.namespace)]
    if not allowed:
        message = (
            f"no listener of Gateway {parent.name} allows {route.key.kind}s from namespace {route.key.namespace}; change "
            "allowedRoutes of a listener (by default it allows routes from the Gateway's own namespace)"
        )
        return Link(parent, refusal=Finding(route.key, Reason.NOT_ALLOWED_BY_LISTENERS, parent.field, message))
    attachments = (Attachment(plan.listener.name, attached_hosts(plan.host, route.hostnames)) for plan in allowed)
    served = tuple(attachment for attachment in attachments if attachment.hosts)
    if served:
        return Link(parent, served)
    message = (
        f"the hostnames {', '.join(route.hostnames)} match no hostname of the listeners: "
        f"{', '.join(plan.host for plan in allowed)}"
    )
    return Link(parent, refusal=Finding(route.key, Reason.NO_MATCHING_LISTENER_HOSTNAME, parent.field, message))


def attached_hosts(listener: str, written: Sequence[str]) -> tuple[str, ...]:
    """Return the hosts that a listener and a route have in common; a route without hostnames has all hosts."""
    common = (intersection(listener, host.lower()) for host in written or (ANY_HOST,))
    return tuple(dict.fromkeys(host for host in common if host))


def intersection(first: str, second: str) -> str:
    """Return the pattern for the names that both host patterns match: one of the two, or empty if there are none."""
    if host_fits(first, second):
        return second
    return first if host_fits(second, first) else ""


def _allows(snapshot: Snapshot, plan: ListenerPlan, about: Key, gateway_namespace: str) -> bool:
    if about.kind not in plan.kinds:
        return False
    namespaces = plan.listener.allowed_routes.namespaces
    if namespaces.from_ == "All":
        return True
    if namespaces.from_ == "Same":
        return about.namespace == gateway_namespace
    if namespaces.from_ != "Selector" or namespaces.selector is None:
        return False
    return selects(namespaces.selector, _labels(snapshot, about.namespace))


def _labels(snapshot: Snapshot, namespace: str) -> Mapping[str, str]:
    """Return the labels of a namespace, with the name label that every namespace has."""
    stored = snapshot.objects.get(Key("", "Namespace", "", namespace))
    own = stored.metadata.labels if isinstance(stored, Namespace) else {}
    return {"kubernetes.io/metadata.name": namespace} | own


def _to_service(parents: Parents, route: CompiledRoute, parent: Parent) -> Link:
    """Attach a route to the ports of a Service. HTTP and gRPC routes apply to HTTP ports, TCP routes to all other ports."""
    name, port = parent.name, parent.ref.port
    if route.key.kind == "TLSRoute":
        message = "a TLSRoute attaches to Gateways only; use a TCPRoute for all connections to a port of the Service"
        return Link(parent, refusal=Finding(route.key, Reason.NO_MATCHING_PARENT, f"{parent.field}.kind", message))
    offered = [(ref, protocol) for ref, protocol in parents.ports.get(name, ()) if port in {None, ref.port}]
    fitting = tuple(ref for ref, protocol in offered if protocol.is_http is (route.connections is None))
    if fitting:
        note = _consumer_note(route, parent)
        return Link(parent, ports=() if note else fitting, note=note)
    related = (parent.key,) if name in parents.snapshot.services else ()
    if not related:
        message = f"Service {name} not found; create it or correct the name"
    elif not offered:
        message = f"Service {name} has no TCP port{f' {port}' if port else ''}; correct the port"
    else:
        spoken = ", ".join(f"{ref.port} ({protocol.value})" for ref, protocol in offered)
        message = f"no port of Service {name} has a protocol for {route.key.kind}s: {spoken}; correct the appProtocol"
    return Link(parent, refusal=Finding(route.key, Reason.NO_MATCHING_PARENT, parent.field, message, related))


def _consumer_note(route: CompiledRoute, parent: Parent) -> Finding | None:
    """Return a finding if the route is in another namespace than its Service (a consumer route of GAMMA)."""
    if parent.key.namespace == route.key.namespace:
        return None
    message = (
        f"a route in namespace {route.key.namespace} for a Service in {parent.key.namespace} applies to clients in "
        f"{route.key.namespace} only. headgate does not support that, so the route is not used; create it in namespace "
        f"{parent.key.namespace} for all clients"
    )
    return Finding(route.key, Reason.CONSUMER_ROUTE, parent.field, message, (parent.key,))


def overridden(table: RouteTable, attached: Sequence[CompiledRoute]) -> Iterator[Finding]:
    """Yield a finding for each split with matches that has no effect, because routes of its Service port replace it."""
    route = attached[0].key
    requested = {
        step.split
        for compiled in attached
        for ranked in compiled.requests
        for request_route in ranked.routes
        for step in request_route.split_matches
    }
    for split in dict.fromkeys(
        table_route.origin for table_route in table.routes if table_route.origin and table_route.match != ANY
    ):
        if split in requested:
            continue
        message = (
            f"{route} replaces this split on {table.ref}; add {table.ref.service} to the backendRefs of a rule, or delete "
            "one of the two"
        )
        yield Finding(split, Reason.NO_EFFECT, "spec.matches", message, related=(route,))
