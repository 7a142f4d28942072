"""Routes whose parent is a Service: the mesh (GAMMA)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from headgate.compiler.gateway_api.destinations import service_key
from headgate.compiler.gateway_api.precedence import in_order
from headgate.compiler.gateway_api.rules import CompiledRoute
from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.compiler.snapshot import Snapshot
from headgate.model.requests import ANY
from headgate.model.routing import PortRef, Route, RouteTable
from headgate.resources.registry import SERVICE
from headgate.resources.routes import ParentReference


def service_ports(
    snapshot: Snapshot, tables: Iterable[RouteTable], route: CompiledRoute, *, ref: ParentReference, field: str
) -> tuple[tuple[PortRef, ...], Finding | None]:
    """Return the ports of the Service that a route is for, or why there are none.

    Requests are routed on ports that speak HTTP, connections on the others.
    """
    name = f"{ref.namespace or route.key.namespace}/{ref.name}"
    offered = [table for table in tables if table.ref.service == name and ref.port in {None, table.ref.port}]
    fitting = tuple(table.ref for table in offered if table.protocol.is_http is (route.connections is None))
    if fitting:
        return fitting, None
    related = (service_key(name),) if name in snapshot.services else ()
    if not related:
        message = f"Service {name} not found; create it or correct the name"
    elif not offered:
        message = f"Service {name} has no TCP port{f' {ref.port}' if ref.port else ''}; correct the port"
    else:
        spoken = ", ".join(f"{table.ref.port} ({table.protocol.value})" for table in offered)
        message = f"{route.key.kind}s can't be used on the ports of Service {name}: {spoken}; see their appProtocol"
    return (), Finding(about=route.key, reason=Reason.NO_MATCHING_PARENT, field=field, message=message, related=related)


def consumer_note(route: CompiledRoute, ref: ParentReference, field: str) -> Finding | None:
    """Say that a route in another namespace than its Service is for clients of its own namespace only."""
    if ref.namespace in {"", route.key.namespace}:
        return None
    message = (
        f"a route in the namespace {route.key.namespace} for a Service in {ref.namespace} is for clients in "
        f"{route.key.namespace} only. The gateway serves clients of all namespaces alike, so it does not use this route; "
        f"a route in the namespace {ref.namespace} is for every client"
    )
    related = (SERVICE.key(ref.namespace, ref.name),)
    return Finding(about=route.key, reason=Reason.CONSUMER_ROUTE, field=field, message=message, related=related)


def free_ports(
    route: CompiledRoute, ports: tuple[PortRef, ...], older: Mapping[PortRef, Sequence[CompiledRoute]], *, field: str
) -> tuple[tuple[PortRef, ...], Finding | None]:
    """Return the ports whose connections no older route has, or say which one has them."""
    free = tuple(port for port in ports if port not in older)
    if free:
        return free, None
    rival = older[ports[0]][0].key
    message = f"{rival}, which is older, has the connections to {ports[0]} already; delete one of the two"
    return (), Finding(about=route.key, reason=Reason.CONFLICTED, field=field, message=message, related=(rival,))


def overridden(table: RouteTable, attached: Sequence[CompiledRoute]) -> Iterator[Finding]:
    """Report the splits with matches of a Service port where routes decide now and no rule names that port."""
    route = attached[0].key
    asked = {
        step.split for item in attached for ranked in item.requests for found in ranked.routes for step in found.steps
    }
    for split in dict.fromkeys(item.origin for item in table.routes if item.origin and item.match != ANY):
        if split in asked:
            continue
        message = (
            f"{route} decides for {table.ref}, and no request gets from its rules to the matches of this split; name "
            f"{table.ref.service} in a rule's backendRefs, or delete one of the two"
        )
        yield Finding(about=split, reason=Reason.NO_EFFECT, field="spec.matches", message=message, related=(route,))


def service_routes(attached: Sequence[CompiledRoute]) -> tuple[Route, ...]:
    """Return the routes of a Service port, the older routes given first. What none of them is for gets 404.

    Nothing tells connections apart, so the oldest route has them all.
    """
    oldest = attached[0].connections
    return (oldest,) if oldest else in_order(item for route in attached for item in route.requests)
