"""Routes to their parents: listeners of Gateways, and ports of Services (GAMMA), or why not."""

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
    """`spec.parentRefs[index]` of a route: the Gateway or the Service `key`."""

    index: int
    ref: ParentReference
    key: Key

    @property
    def field(self) -> str:
        """Where the user wrote it."""
        return f"spec.parentRefs[{self.index}]"


class Attachment(NamedTuple):
    """A route at a listener (by its name): the hosts that both have."""

    route: CompiledRoute
    listener: str
    hosts: tuple[str, ...]


Older: TypeAlias = Mapping[tuple[str, str], Sequence[Attachment]]


def attach(
    snapshot: Snapshot, route: CompiledRoute, parent: Parent, *, plans: Sequence[ListenerPlan], older: Older
) -> tuple[Attachment, ...] | Finding:
    """Attach a route to the listeners of a Gateway that its parentRef names and that take it, or say why none does.

    `older` is what the Gateway has already, by listener and kind.
    """
    gateway = f"{parent.key.namespace}/{parent.key.name}"
    section, port = parent.ref.section_name, parent.ref.port
    named = [plan for plan in plans if section in {"", plan.listener.name} and port in {None, plan.listener.port}]
    if not named:
        offered = ", ".join(f"{plan.listener.name} (port {plan.listener.port})" for plan in plans)
        message = f"Gateway {gateway} has no such listener; it has {offered or 'none'}"
        return Finding(route.key, Reason.NO_MATCHING_PARENT, parent.field, message)
    allowed = [plan for plan in named if _takes(snapshot, plan, route.key, parent.key.namespace)]
    if not allowed:
        message = (
            f"no listener of Gateway {gateway} takes {route.key.kind}s from the namespace {route.key.namespace}; see "
            "allowedRoutes of its listeners (as a default they take routes of the Gateway's own namespace)"
        )
        return Finding(route.key, Reason.NOT_ALLOWED_BY_LISTENERS, parent.field, message)
    found = [Attachment(route, plan.listener.name, attached_hosts(plan.host, route.hostnames)) for plan in allowed]
    served = [item for item in found if item.hosts]
    if not served:
        message = (
            f"the hostnames {', '.join(route.hostnames)} are none that the listeners serve: "
            f"{', '.join(plan.host for plan in allowed)}"
        )
        return Finding(route.key, Reason.NO_MATCHING_LISTENER_HOSTNAME, parent.field, message)
    free = tuple(item for item in served if not _rival(item, older))
    return free or Finding(route.key, Reason.CONFLICTED, parent.field, _taken(served[0], older))


def attached_hosts(listener: str, written: Sequence[str]) -> tuple[str, ...]:
    """Return the hosts of a listener that a route is for; a route that names none is for all of them."""
    found = (intersection(listener, host.lower()) for host in written or (ANY_HOST,))
    return tuple(dict.fromkeys(host for host in found if host))


def intersection(first: str, second: str) -> str:
    """Return the names that both hosts stand for, which is one of the two; empty when there are none."""
    if host_fits(first, second):
        return second
    return first if host_fits(second, first) else ""


def _rival(item: Attachment, older: Older) -> Attachment | None:
    """Return an older route that excludes one at its listener.

    Nothing tells connections apart, so the oldest TCPRoute has them all; and hosts are for HTTPRoutes or for GRPCRoutes.
    """
    others = older.get((item.listener, _RIVALS[item.route.key.kind]), ())
    if item.route.connections:
        return next((other for other in others if other.route.key != item.route.key), None)
    return next(
        (other for other in others for host in other.hosts for own in item.hosts if intersection(own, host)), None
    )


def _taken(item: Attachment, older: Older) -> str:
    rival = _rival(item, older)
    name = rival.route.key if rival else ""
    what = "connections" if item.route.connections else "hosts"
    return f"the listener {item.listener} gives these {what} to {name} already, which is older; change one of the two"


def _takes(snapshot: Snapshot, plan: ListenerPlan, about: Key, gateway_namespace: str) -> bool:
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
    """Return a namespace's labels, with the one that every namespace has of itself."""
    item = snapshot.objects.get(Key("", "Namespace", "", namespace))
    own = item.metadata.labels if isinstance(item, Namespace) else {}
    return {"kubernetes.io/metadata.name": namespace} | own


def service_ports(
    snapshot: Snapshot, tables: Iterable[RouteTable], route: CompiledRoute, parent: Parent
) -> tuple[PortRef, ...] | Finding:
    """Return the ports of the Service that a route is for, or why there are none.

    Requests are routed on ports that speak HTTP, connections on the others.
    """
    name, port = f"{parent.key.namespace}/{parent.key.name}", parent.ref.port
    offered = [table for table in tables if table.ref.service == name and port in {None, table.ref.port}]
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
        message = f"{route.key.kind}s can't be used on the ports of Service {name}: {spoken}; see their appProtocol"
    return Finding(route.key, Reason.NO_MATCHING_PARENT, parent.field, message, related)


def consumer_note(route: CompiledRoute, parent: Parent) -> Finding | None:
    """Say that a route in another namespace than its Service is for clients of its own namespace only."""
    if parent.key.namespace == route.key.namespace:
        return None
    message = (
        f"a route in the namespace {route.key.namespace} for a Service in {parent.key.namespace} is for clients in "
        f"{route.key.namespace} only. The gateway serves clients of all namespaces alike, so it does not use this route; "
        f"a route in the namespace {parent.key.namespace} is for every client"
    )
    return Finding(route.key, Reason.CONSUMER_ROUTE, parent.field, message, (parent.key,))


def free_ports(
    route: CompiledRoute, parent: Parent, ports: tuple[PortRef, ...], older: Mapping[PortRef, Sequence[CompiledRoute]]
) -> tuple[PortRef, ...] | Finding:
    """Return the ports whose connections no older route has, or say which one has them."""
    if free := tuple(port for port in ports if port not in older):
        return free
    rival = older[ports[0]][0].key
    message = f"{rival}, which is older, has the connections to {ports[0]} already; delete one of the two"
    return Finding(route.key, Reason.CONFLICTED, parent.field, message, (rival,))


def overridden(table: RouteTable, attached: Sequence[CompiledRoute]) -> Iterator[Finding]:
    """Report the splits with matches of a Service port where routes decide now and no rule names that port."""
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
            f"{route} decides for {table.ref}, and no request gets from its rules to the matches of this split; name "
            f"{table.ref.service} in a rule's backendRefs, or delete one of the two"
        )
        yield Finding(split, Reason.NO_EFFECT, "spec.matches", message, related=(route,))


def service_routes(attached: Sequence[CompiledRoute]) -> tuple[Route, ...]:
    """Return the routes of a Service port, the older routes given first. What none of them is for gets 404.

    Nothing tells connections apart, so the oldest route has them all.
    """
    oldest = attached[0].connections
    return (oldest,) if oldest else in_order(item for route in attached for item in route.requests)
