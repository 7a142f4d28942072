"""Compile the Gateway API: Gateways, and the routes that are attached to them and to Services."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import structs

from headgate.compiler.gateway_api.gateways import (
    ListenerPlan,
    class_findings,
    gateway_states,
    ignored_fields,
    own_gateways,
    plan_listeners,
)
from headgate.compiler.gateway_api.parents import (
    Attachment,
    Parent,
    attach,
    consumer_note,
    free_ports,
    overridden,
    service_ports,
    service_routes,
)
from headgate.compiler.gateway_api.routes import AnyRoute
from headgate.compiler.gateway_api.rules import CompiledRoute, in_order
from headgate.compiler.gateway_api.statuses import gateway_outcome, route_conditions
from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding, GatewayOutcome, ParentStatus
from headgate.compiler.snapshot import Snapshot
from headgate.model.evaluate import best_name, fitting_names
from headgate.model.routing import GatewayPort, HostRoutes, PortRef, Protocol, Route, RouteTable
from headgate.resources.gateway import GROUP
from headgate.resources.meta import Key
from headgate.resources.registry import SERVICE
from headgate.resources.routes import GRPCRoute, HTTPRoute, TCPRoute
from headgate.settings import Settings


def gateway_ports(
    name: str, address: str, plans: Sequence[ListenerPlan], attachments: Sequence[Attachment]
) -> tuple[GatewayPort, ...]:
    """Return the ports of a Gateway (`namespace/name`) that accept connections."""
    served = [plan for plan in plans if plan.served]
    ports = sorted({plan.listener.port for plan in served})
    if not address:
        return ()
    found = (
        _port(name, address, [plan for plan in served if plan.listener.port == port], attachments) for port in ports
    )
    return tuple(port for port in found if port.hosts or port.connections)


def _port(name: str, address: str, plans: list[ListenerPlan], attachments: Sequence[Attachment]) -> GatewayPort:
    port = plans[0].listener.port
    if plans[0].listener.protocol == "TCP":
        attached = (item.route.connections for item in attachments if item.listener == plans[0].listener.name)
        connections = next(attached, None)  # a TCP listener has at most one route
        return GatewayPort(gateway=name, address=address, port=port, protocol=Protocol.TCP, connections=connections)
    certificates = ((plan.host, plan.certificate) for plan in sorted(plans, key=lambda plan: plan.host))
    return GatewayPort(
        gateway=name,
        address=address,
        port=port,
        hosts=tuple(sorted(_hosts(plans, attachments), key=lambda item: item.host)),
        tls=tuple((host, certificate) for host, certificate in certificates if certificate),
    )


def _hosts(plans: Sequence[ListenerPlan], attachments: Sequence[Attachment]) -> Iterator[HostRoutes]:
    """Yield each host of a port with its routes.

    A request belongs to the listener with the most specific hostname only (listener isolation). In that listener,
    routes for the most specific hostname come first.
    """
    listeners = {plan.host: plan.listener.name for plan in plans}
    for listener_host, name in listeners.items():
        here: dict[str, dict[Key, CompiledRoute]] = defaultdict(dict)
        for item in attachments:
            if item.listener == name:
                for host in item.hosts:
                    here[host][item.route.key] = item.route
        hosts = {host for host in here if best_name(listeners, host) == listener_host}
        for host in {listener_host, *hosts}:
            yield HostRoutes(host=host, routes=tuple(_routes(host, here)), listener=listener_host)


def _routes(host: str, attached: Mapping[str, Mapping[Key, CompiledRoute]]) -> Iterator[Route]:
    """Yield the routes of a host in order of precedence; each route occurs once, at its most specific hostname."""
    seen: set[Key] = set()
    for pattern in fitting_names(attached, host):
        fresh = [route for key, route in attached[pattern].items() if key not in seen]
        seen |= {route.key for route in fresh}
        yield from in_order(item for route in fresh for item in route.requests)


_CORE = "core"  # the guides of Flagger and Linkerd write this for the core API group, which is ""


class GatewayApi:
    """The attachment of all routes to their parents.

    `tables` are the route tables of Services before routes are attached.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        routes: Iterable[CompiledRoute],
        tables: Sequence[RouteTable],
        settings: Settings,
    ) -> None:
        """Attach `routes` to their parents, in this order: the oldest route wins a conflict."""
        self._snapshot = snapshot
        self._tables = tables
        self._tables_of: dict[str, list[RouteTable]] = defaultdict(list)  # by Service
        for table in tables:
            self._tables_of[table.ref.service].append(table)
        self._gateways = own_gateways(snapshot)
        self._states = gateway_states(snapshot, self._gateways, settings)
        self.findings = [
            *class_findings(snapshot),
            *(
                item
                for own in self._states.values()
                for item in (*own.refusals, *own.missing_addresses, *own.ignored_fields)
            ),
        ]
        self._plans = {key: plan_listeners(snapshot, key, item, settings) for key, item in self._gateways.items()}
        self._attached: dict[Key, dict[tuple[str, str], list[Attachment]]] = {
            key: defaultdict(list) for key in self._gateways
        }
        self._on_services: dict[PortRef, list[CompiledRoute]] = defaultdict(list)
        for plan in (plan for plans in self._plans.values() for plan in plans):
            self.findings += (*plan.faults, *plan.warnings)
        self.parents: list[ParentStatus] = []
        for route in routes:
            mistakes = ignored_fields(snapshot, route.key)
            self._add(structs.replace(route, findings=(*route.findings, *mistakes)) if mistakes else route)
        for table in tables:
            if table.ref in self._on_services:
                self.findings += overridden(table, self._on_services[table.ref])

    def tables(self) -> tuple[RouteTable, ...]:
        """Return the route tables of Services, with the attached routes in place of the original ones."""
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
            if self._states[key].is_served
            for port in gateway_ports(_name(key), self._states[key].address, plans, self._at(key))
        )

    def outcomes(self, ports: Sequence[GatewayPort]) -> Iterator[GatewayOutcome]:
        """Yield the status of each Gateway."""
        for key, plans in self._plans.items():
            yield gateway_outcome(
                key,
                self._states[key],
                plans,
                attached=[(item.listener, item.route.key) for item in self._at(key)],
                ports=tuple(port.port for port in ports if port.gateway == _name(key)),
            )

    def _at(self, key: Key) -> list[Attachment]:
        """Return the attachments of a Gateway."""
        return [item for items in self._attached[key].values() for item in items]

    def _add(self, route: CompiledRoute) -> None:
        self.findings += [*route.findings, *route.faults]
        for index, ref in enumerate(route.parents):
            group = SERVICE.group if ref.group == _CORE else ref.group
            parent = Parent(index, ref, Key(group, ref.kind, ref.namespace or route.key.namespace, ref.name))
            if (group, ref.kind) == (GROUP, "Gateway"):
                self._to_gateway(route, parent)
            elif (group, ref.kind) == (SERVICE.group, SERVICE.kind):
                self._to_service(route, parent)

    def _to_gateway(self, route: CompiledRoute, parent: Parent) -> None:
        if parent.key not in self._plans:
            if parent.key not in self._snapshot.objects:  # a Gateway of another class belongs to another controller
                refusal = _no_gateway(self._snapshot, route.key, parent)
                self._report(_status(route, parent, refusal=refusal), refusal)
            return
        plans, older = self._plans[parent.key], self._attached[parent.key]
        found = attach(self._snapshot, route, parent, plans=plans, older=older)
        if isinstance(found, Finding):
            self._report(_status(route, parent, refusal=found), found)
            return
        attached = found if route.usable else ()
        for item in attached:
            older[item.listener, route.key.kind].append(item)
        listeners = {item.listener for item in attached}
        ports = {plan.listener.port for plan in plans if plan.served and plan.listener.name in listeners}
        self._report(structs.replace(_status(route, parent), gateway_ports=tuple(sorted(ports))))

    def _to_service(self, route: CompiledRoute, parent: Parent) -> None:
        tables = self._tables_of.get(f"{parent.key.namespace}/{parent.key.name}", ())
        found = service_ports(self._snapshot, tables, route, parent)
        note = None if isinstance(found, Finding) else consumer_note(route, parent)
        if route.connections and not isinstance(found, Finding) and not note:
            found = free_ports(route, parent, found, self._on_services)
        refusal = found if isinstance(found, Finding) else None
        ports = () if isinstance(found, Finding) or note or not route.usable else found
        for port in ports:
            self._on_services[port].append(route)
        self._report(structs.replace(_status(route, parent, refusal=refusal, note=note), ports=ports), refusal, note)

    def _report(self, status: ParentStatus, *findings: Finding | None) -> None:
        self.parents.append(status)
        self.findings += [finding for finding in findings if finding]


def routes_by_age(snapshot: Snapshot) -> Sequence[tuple[Key, AnyRoute]]:
    """Return the routes of all kinds, the oldest first."""
    found: list[tuple[Key, AnyRoute]] = [*snapshot.of(HTTPRoute), *snapshot.of(GRPCRoute), *snapshot.of(TCPRoute)]
    return sorted(found, key=_by_age)


def _by_age(pair: tuple[Key, AnyRoute]) -> tuple[str, ...]:
    key, item = pair
    return item.metadata.creation_timestamp, key.namespace, key.name, key.kind


def _status(
    route: CompiledRoute, parent: Parent, *, refusal: Finding | None = None, note: Finding | None = None
) -> ParentStatus:
    conditions = route_conditions(route, refusal, (note,) if note else ())
    return ParentStatus(about=route.key, index=parent.index, parent=parent.key, conditions=conditions)


def _no_gateway(snapshot: Snapshot, about: Key, parent: Parent) -> Finding:
    invalid = parent.key in snapshot.mistakes
    what, fix = ("is not valid", "correct it") if invalid else ("not found", "create it or correct the name")
    message = f"{parent.key} {what}, so the route is not attached to it; {fix}"
    return Finding(about, Reason.NO_MATCHING_PARENT, f"{parent.field}.name", message)


def _name(key: Key) -> str:
    return f"{key.namespace}/{key.name}"
