"""Attach routes to their parents: listeners of Gateways, and ports of Services (GAMMA)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from headgate.compiler.gateway_api.gateways import ANY_HOST, ListenerPlan
from headgate.compiler.gateway_api.rules import CompiledRoute, in_order
from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.compiler.snapshot import Snapshot
from headgate.model.evaluate import host_fits
from headgate.model.requests import ANY
from headgate.model.routing import PortRef, Route, RouteTable
from headgate.resources.core import Namespace
from headgate.resources.meta import Key, Value
from headgate.resources.routes import ParentReference
from headgate.resources.workloads import selects

_RIVALS = {"HTTPRoute": "GRPCRoute", "GRPCRoute": "HTTPRoute", "TCPRoute": "TCPRoute"}


class Parent(Value, frozen=True):
    """`spec.parentRefs[index]` of a route; `key` is the Gateway or Service."""

    index: int
    ref: ParentReference
    key: Key

    @property
    def field(self) -> str:
        """Return the field path of the parentRef."""
        return f"spec.parentRefs[{self.index}]"


class Attachment(NamedTuple):
    """The attachment of a route to one listener of a Gateway, with the hosts that match both."""

    route: CompiledRoute
    listener: str
    hosts: tuple[str, ...]


Older: TypeAlias = Mapping[tuple[str, str], Sequence[Attachment]]


def attach(
    snapshot: Snapshot, route: CompiledRoute, parent: Parent, *, plans: Sequence[ListenerPlan], older: Older
) -> tuple[Attachment, ...] | Finding:
    """Attach a route to the listeners of a Gateway that match its parentRef and allow it; a finding if there are none.

    `older` are the existing attachments by listener and kind.
    """
    gateway = f"{parent.key.namespace}/{parent.key.name}"
    section, port = parent.ref.section_name, parent.ref.port
    named = [plan for plan in plans if section in {"", plan.listener.name} and port in {None, plan.listener.port}]
    if not named:
        offered = ", ".join(f"{plan.listener.name} (port {plan.listener.port})" for plan in plans)
        message = f"Gateway {gateway} has no such listener; its listeners are: {offered or 'none'}"
        return Finding(route.key, Reason.NO_MATCHING_PARENT, parent.field, message)
    allowed = [plan for plan in named if _allows(snapshot, plan, route.key, parent.key.namespace)]
    if not allowed:
        message = (
            f"no listener of Gateway {gateway} allows {route.key.kind}s from namespace {route.key.namespace}; change "
            "allowedRoutes of a listener (by default it allows routes from the Gateway's own namespace)"
        )
        return Finding(route.key, Reason.NOT_ALLOWED_BY_LISTENERS, parent.field, message)
    found = [Attachment(route, plan.listener.name, attached_hosts(plan.host, route.hostnames)) for plan in allowed]
    served = [item for item in found if item.hosts]
    if not served:
        message = (
            f"the hostnames {', '.join(route.hostnames)} match no hostname of the listeners: "
            f"{', '.join(plan.host for plan in allowed)}"
        )
        return Finding(route.key, Reason.NO_MATCHING_LISTENER_HOSTNAME, parent.field, message)
    free = tuple(item for item in served if not _rival(item, older))
    return free or Finding(route.key, Reason.CONFLICTED, parent.field, _conflict_message(served[0], older))


def attached_hosts(listener: str, written: Sequence[str]) -> tuple[str, ...]:
    """Return the hosts that a listener and a route have in common; a route without hostnames has all hosts."""
    found = (intersection(listener, host.lower()) for host in written or (ANY_HOST,))
    return tuple(dict.fromkeys(host for host in found if host))


def intersection(first: str, second: str) -> str:
    """Return the pattern for the names that both host patterns match: one of the two, or empty if there are none."""
    if host_fits(first, second):
        return second
    return first if host_fits(second, first) else ""


def _rival(item: Attachment, older: Older) -> Attachment | None:
    """Return an older route that conflicts with a new attachment.

    Proxies can't distinguish the connections of two TCPRoutes, so the oldest TCPRoute gets all connections. The routes
    of one host are either HTTPRoutes or GRPCRoutes.
    """
    rivals = older.get((item.listener, _RIVALS[item.route.key.kind]), ())
    if item.route.connections:
        return next((rival for rival in rivals if rival.route.key != item.route.key), None)
    return next(
        (other for other in rivals for host in other.hosts for own in item.hosts if intersection(own, host)), None
    )


def _conflict_message(item: Attachment, older: Older) -> str:
    rival = _rival(item, older)
    name = rival.route.key if rival else ""
    what = "connections" if item.route.connections else "hosts"
    return f"the older {name} already has these {what} of listener {item.listener}; change one of the two routes"


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
    item = snapshot.objects.get(Key("", "Namespace", "", namespace))
    own = item.metadata.labels if isinstance(item, Namespace) else {}
    return {"kubernetes.io/metadata.name": namespace} | own


def service_ports(
    snapshot: Snapshot, tables: Iterable[RouteTable], route: CompiledRoute, parent: Parent
) -> tuple[PortRef, ...] | Finding:
    """Return the ports of the parent Service where the route applies, or a finding; `tables` are those of the Service.

    HTTP and gRPC routes apply to HTTP ports, TCP routes to all other ports.
    """
    name, port = f"{parent.key.namespace}/{parent.key.name}", parent.ref.port
    offered = [table for table in tables if port in {None, table.ref.port}]
    fitting = tuple(table.ref for table in offered if table.protocol.is_http is (route.connections is None))
    if fitting:
        return fitting
    related = (parent.key,) if name in snapshot.services else ()
    if not related:
        message = f"Service {name} not found; create it or correct the name"
    elif not offered:
        message = f"Service {name} has no TCP port{f' {port}' if port else ''}; correct the port"
    else:
        spoken = ", ".join(f"{table.ref.port} ({table.protocol.value})" for table in offered)
        message = f"no port of Service {name} has a protocol for {route.key.kind}s: {spoken}; correct the appProtocol"
    return Finding(route.key, Reason.NO_MATCHING_PARENT, parent.field, message, related)


def consumer_note(route: CompiledRoute, parent: Parent) -> Finding | None:
    """Return a finding if the route is in another namespace than its Service (a consumer route of GAMMA)."""
    if parent.key.namespace == route.key.namespace:
        return None
    message = (
        f"a route in namespace {route.key.namespace} for a Service in {parent.key.namespace} applies to clients in "
        f"{route.key.namespace} only. headgate does not support that, so the route is not used; create it in namespace "
        f"{parent.key.namespace} for all clients"
    )
    return Finding(route.key, Reason.CONSUMER_ROUTE, parent.field, message, (parent.key,))


def free_ports(
    route: CompiledRoute, parent: Parent, ports: tuple[PortRef, ...], older: Mapping[PortRef, Sequence[CompiledRoute]]
) -> tuple[PortRef, ...] | Finding:
    """Return the ports without an older TCPRoute; if there is none, a finding that names the older TCPRoute."""
    if free := tuple(port for port in ports if port not in older):
        return free
    rival = older[ports[0]][0].key
    message = f"the older {rival} already gets the connections to {ports[0]}; delete one of the two"
    return Finding(route.key, Reason.CONFLICTED, parent.field, message, (rival,))


def overridden(table: RouteTable, attached: Sequence[CompiledRoute]) -> Iterator[Finding]:
    """Yield a finding for each split with matches that has no effect, because routes of its Service port replace it."""
    route = attached[0].key
    asked = {
        step.split
        for item in attached
        for ranked in item.requests
        for found in ranked.routes
        for step in found.split_matches
    }
    for split in dict.fromkeys(item.origin for item in table.routes if item.origin and item.match != ANY):
        if split in asked:
            continue
        message = (
            f"{route} replaces this split on {table.ref}; add {table.ref.service} to the backendRefs of a rule, or delete "
            "one of the two"
        )
        yield Finding(split, Reason.NO_EFFECT, "spec.matches", message, related=(route,))


def service_routes(attached: Sequence[CompiledRoute]) -> tuple[Route, ...]:
    """Return the routes of a Service port in order of precedence; requests without a match get 404.

    `attached` is sorted by age. Proxies can't distinguish the connections of two TCPRoutes, so the oldest gets all
    of them.
    """
    oldest = attached[0].connections
    return (oldest,) if oldest else in_order(item for route in attached for item in route.requests)
