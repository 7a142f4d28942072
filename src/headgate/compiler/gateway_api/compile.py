"""The Gateway API: Gateways, and the routes that attach to them and to Services."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from msgspec import structs

from headgate.compiler.gateway_api.attachments import Attachment, Refusal, attach
from headgate.compiler.gateway_api.destinations import Destinations, Ready, service_key
from headgate.compiler.gateway_api.gateways import class_findings, own_gateways, standings
from headgate.compiler.gateway_api.grpc_routes import compile_grpc_route
from headgate.compiler.gateway_api.http_routes import compile_http_route
from headgate.compiler.gateway_api.listeners import ListenerPlan, plan_listeners
from headgate.compiler.gateway_api.ports import gateway_ports
from headgate.compiler.gateway_api.rules import CompiledRoute
from headgate.compiler.gateway_api.service_parents import (
    consumer_note,
    free_ports,
    overridden,
    service_ports,
    service_routes,
)
from headgate.compiler.gateway_api.statuses import gateway_outcome, route_verdicts
from headgate.compiler.gateway_api.tcp_routes import compile_tcp_route
from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding, GatewayOutcome, ParentStatus
from headgate.compiler.snapshot import Snapshot
from headgate.model.routing import GatewayPort, PortRef, RouteTable
from headgate.resources.gateway import GROUP
from headgate.resources.meta import Key, Value
from headgate.resources.registry import SERVICE
from headgate.resources.routes import GRPCRoute, HTTPRoute, ParentReference, TCPRoute
from headgate.settings import Settings


class Parent(Value, frozen=True, kw_only=True):
    """A parentRef of a route, by its field path."""

    index: int
    ref: ParentReference

    @property
    def field(self) -> str:
        """Where the user wrote it."""
        return f"spec.parentRefs[{self.index}]"


class GatewayApi:
    """Attaches all routes. `tables` are what the Services do with requests before any route is attached to them."""

    def __init__(self, snapshot: Snapshot, ready: Ready, tables: Sequence[RouteTable], settings: Settings) -> None:
        self._snapshot = snapshot
        self._tables = tables
        self._gateways = own_gateways(snapshot)
        self._standings = standings(snapshot, self._gateways)
        self.findings = [
            *class_findings(snapshot),
            *(item for own in self._standings.values() for item in own.findings),
        ]
        self._plans = {key: plan_listeners(snapshot, key, item, settings) for key, item in self._gateways.items()}
        self._attached: dict[Key, dict[tuple[str, str], list[Attachment]]] = {
            key: defaultdict(list) for key in self._gateways
        }
        self._on_services: dict[PortRef, list[CompiledRoute]] = defaultdict(list)
        self.findings += [item for plans in self._plans.values() for item in _listener_findings(plans)]
        self.parents: list[ParentStatus] = []
        for route in compiled_routes(Destinations(snapshot, ready, tables), snapshot):
            self._add(route)
        for table in tables:
            if table.ref in self._on_services:
                self.findings += overridden(table, self._on_services[table.ref])

    def tables(self) -> tuple[RouteTable, ...]:
        """Return what Services do with requests: the routes that are attached to them, or what they did before."""
        attached = self._on_services
        return tuple(
            structs.replace(table, routes=service_routes(attached[table.ref])) if table.ref in attached else table
            for table in self._tables
        )

    def ports(self) -> tuple[GatewayPort, ...]:
        """Return the ports of all Gateways."""
        return tuple(
            port
            for key, plans in self._plans.items()
            if not self._standings[key].refusals
            for port in gateway_ports(_name(key), self._standings[key].address, plans, self._at(key))
        )

    def outcomes(self, ports: Sequence[GatewayPort]) -> Iterator[GatewayOutcome]:
        """Yield what each Gateway came to."""
        for key, plans in self._plans.items():
            yield gateway_outcome(
                key,
                self._standings[key],
                plans,
                attached=[(item.listener, item.route.key) for item in self._at(key)],
                ports=tuple(port.port for port in ports if port.gateway == _name(key)),
            )

    def _at(self, key: Key) -> list[Attachment]:
        """Return what is attached to a Gateway."""
        return [item for items in self._attached[key].values() for item in items]

    def _add(self, route: CompiledRoute) -> None:
        self.findings += [*route.findings, *route.faults]
        for parent in (Parent(index=index, ref=ref) for index, ref in enumerate(route.parents)):
            if (parent.ref.group, parent.ref.kind) == (GROUP, "Gateway"):
                self._to_gateway(route, parent)
            elif (parent.ref.group, parent.ref.kind) == (SERVICE.group, SERVICE.kind):
                self._to_service(route, parent)

    def _to_gateway(self, route: CompiledRoute, parent: Parent) -> None:
        key = Key(GROUP, "Gateway", parent.ref.namespace or route.key.namespace, parent.ref.name)
        if key not in self._plans:
            if key not in self._snapshot.objects:  # else it is of somebody else's class: theirs to judge
                refusal = _no_gateway(self._snapshot, route.key, key, parent.field)
                self._tell(_status(route, parent, key, refusal=refusal), refusal)
            return
        plans, older = self._plans[key], self._attached[key]
        found = attach(self._snapshot, route, parent.ref, plans=plans, older=older)
        if isinstance(found, Refusal):
            refusal = Finding(about=route.key, reason=found.reason, field=parent.field, message=found.message)
            self._tell(_status(route, parent, key, refusal=refusal), refusal)
            return
        attached = found if route.usable else ()
        for item in attached:
            older[item.listener, route.key.kind].append(item)
        listeners = {item.listener for item in attached}
        ports = {plan.listener.port for plan in plans if plan.served and plan.listener.name in listeners}
        self._tell(structs.replace(_status(route, parent, key), gateway_ports=tuple(sorted(ports))))

    def _to_service(self, route: CompiledRoute, parent: Parent) -> None:
        key = service_key(f"{parent.ref.namespace or route.key.namespace}/{parent.ref.name}")
        ports, refusal = service_ports(self._snapshot, self._tables, route, ref=parent.ref, field=parent.field)
        note = None if refusal else consumer_note(route, parent.ref, parent.field)
        if route.connections and not refusal and not note:
            ports, refusal = free_ports(route, ports, self._on_services, field=parent.field)
        if note or not route.usable:
            ports = ()
        for port in ports:
            self._on_services[port].append(route)
        self._tell(structs.replace(_status(route, parent, key, refusal=refusal, note=note), ports=ports), refusal, note)

    def _tell(self, status: ParentStatus, *findings: Finding | None) -> None:
        self.parents.append(status)
        self.findings += [finding for finding in findings if finding]


def compiled_routes(places: Destinations, snapshot: Snapshot) -> Iterator[CompiledRoute]:
    """Yield the routes of all kinds, the oldest first: what only one can have, it has."""
    found: list[tuple[Key, HTTPRoute | GRPCRoute | TCPRoute]] = [
        *snapshot.of(HTTPRoute),
        *snapshot.of(GRPCRoute),
        *snapshot.of(TCPRoute),
    ]
    for key, item in sorted(found, key=lambda pair: (pair[1].metadata.creation_timestamp, *_place(pair[0]))):
        if isinstance(item, HTTPRoute):
            yield compile_http_route(places, key, item)
        elif isinstance(item, GRPCRoute):
            yield compile_grpc_route(places, key, item)
        else:
            yield compile_tcp_route(places, key, item)


def _status(
    route: CompiledRoute, parent: Parent, key: Key, *, refusal: Finding | None = None, note: Finding | None = None
) -> ParentStatus:
    verdicts = route_verdicts(route, refusal, (note,) if note else ())
    return ParentStatus(about=route.key, index=parent.index, parent=key, verdicts=verdicts)


def _no_gateway(snapshot: Snapshot, about: Key, gateway: Key, field: str) -> Finding:
    what = "is not valid" if gateway in snapshot.undecodable else "not found"
    message = f"{gateway} {what}, so the route is attached nowhere; create it or correct the name"
    return Finding(about=about, reason=Reason.NO_MATCHING_PARENT, field=f"{field}.name", message=message)


def _listener_findings(plans: Sequence[ListenerPlan]) -> Iterator[Finding]:
    for plan in plans:
        yield from (*plan.faults, *plan.warnings)


def _place(key: Key) -> tuple[str, str, str]:
    return key.namespace, key.name, key.kind


def _name(key: Key) -> str:
    return f"{key.namespace}/{key.name}"
