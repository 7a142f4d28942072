"""Compile the Gateway API: the routes of Gateways' hosts and of Service ports, from the routes attached to them."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from msgspec import structs

from headgate.compiler.gateway_api.gateways import ListenerPlan
from headgate.compiler.gateway_api.parents import AttachedRoute, Parents, overridden
from headgate.compiler.gateway_api.rules import CompiledRoute, in_order
from headgate.compiler.gateway_api.statuses import gateway_outcome
from headgate.compiler.report import Finding, GatewayOutcome
from headgate.compiler.unreachable_routes import UnreachableRoute, unreachable
from headgate.model.evaluate import best_name, fitting_names
from headgate.model.routing import GatewayPort, HostRoutes, PortRef, Protocol, Route, RouteTable
from headgate.resources.meta import Key

Groups: TypeAlias = tuple[tuple[CompiledRoute, ...], ...]
"""The routes for the requests of a host: one group for each hostname that matches, the most specific first."""


class HostName(NamedTuple):
    """A host of a Gateway port."""

    gateway: Key
    port: int
    host: str

    def __str__(self) -> str:
        return f"{self.gateway}, port {self.port}, host {self.host}"


class CompiledHost(NamedTuple):
    """The routes of one host, and those of them that no request reaches."""

    routes: HostRoutes
    unreachable: tuple[UnreachableRoute, ...]


def compile_host(host: str, listener: str, groups: Groups) -> CompiledHost:
    """Compile a host of a Gateway port; `listener` is the hostname of its listener."""
    routes = tuple(_routes(groups))
    return CompiledHost(HostRoutes(host=host, routes=routes, listener=listener), unreachable(routes))


def _routes(groups: Groups) -> Iterator[Route]:
    """Yield the routes in order of precedence; each route occurs once, at its most specific hostname."""
    seen: set[Key] = set()
    for group in groups:
        fresh = {route.key: route for route in group if route.key not in seen}
        seen |= fresh.keys()
        yield from in_order(item for route in fresh.values() for item in route.requests)


class CompiledPort(NamedTuple):
    """The routes of a Service port, and findings about splits that they replace."""

    table: RouteTable
    findings: tuple[Finding, ...] = ()


def compile_port(table: RouteTable, attached: tuple[CompiledRoute, ...]) -> CompiledPort:
    """Compile a Service port with attached routes; requests without a match get 404.

    Proxies can't distinguish the connections of two TCPRoutes, so the oldest gets all of them.
    """
    attached = tuple(sorted(attached, key=lambda route: route.age))
    oldest = attached[0].connections
    routes = (oldest,) if oldest else in_order(item for route in attached for item in route.requests)
    return CompiledPort(structs.replace(table, routes=routes), tuple(overridden(table, attached)))


class RoutesByParent:
    """The usable routes by listener and by Service port."""

    def __init__(self, parents: Parents, attached: Iterable[AttachedRoute]) -> None:
        self._parents = parents
        self._on_services: dict[PortRef, list[CompiledRoute]] = defaultdict(list)
        # for each Gateway and listener, the routes with their hosts at the listener
        self._on_listeners: dict[tuple[Key, str], list[tuple[CompiledRoute, tuple[str, ...]]]] = defaultdict(list)
        for route, links, _, _ in attached:
            for link in links if route.usable else ():
                for listener, hosts in link.attachments:
                    self._on_listeners[link.parent.key, listener].append((route, hosts))
                for port in link.ports:
                    self._on_services[port].append(route)

    def service_ports(
        self, tables: Iterable[RouteTable]
    ) -> dict[PortRef, tuple[RouteTable, tuple[CompiledRoute, ...]]]:
        """Return the arguments of `compile_port` for each Service port with attached routes."""
        attached = self._on_services
        return {table.ref: (table, tuple(attached[table.ref])) for table in tables if table.ref in attached}

    def hosts(self) -> dict[HostName, tuple[str, str, Groups]]:
        """Return the arguments of `compile_host` for each host of a Gateway."""
        return {
            HostName(key, plans[0].listener.port, host): (host, listener, groups)
            for key, plans in self._served_ports()
            if plans[0].listener.protocol != "TCP"
            for host, listener, groups in self._hosts(key, plans)
        }

    def gateway_ports(self, hosts: Mapping[HostName, CompiledHost]) -> tuple[GatewayPort, ...]:
        """Return the ports of all Gateways that accept connections; `hosts` are the compiled hosts."""
        by_port: dict[tuple[Key, int], list[HostRoutes]] = defaultdict(list)
        for (key, port, _), found in hosts.items():
            by_port[key, port].append(found.routes)
        ports = (
            self._port(key, plans, sorted(by_port[key, plans[0].listener.port], key=attrgetter("host")))
            for key, plans in self._served_ports()
        )
        return tuple(port for port in ports if port.hosts or port.connections)

    def outcomes(self, ports: Sequence[GatewayPort]) -> Iterator[GatewayOutcome]:
        """Yield the status of each Gateway."""
        for key, plans in self._parents.plans.items():
            names = [plan.listener.name for plan in plans]
            yield gateway_outcome(
                key,
                self._parents.states[key],
                plans,
                attached={name: len({route.key for route, _ in self._on_listeners[key, name]}) for name in names},
                ports=tuple(port.port for port in ports if port.gateway == _name(key)),
            )

    def _served_ports(self) -> Iterator[tuple[Key, list[ListenerPlan]]]:
        """Yield the ports of served Gateways in order, each as the plans of its listeners."""
        for key, plans in self._parents.plans.items():
            by_port: dict[int, list[ListenerPlan]] = defaultdict(list)
            for plan in plans:
                if plan.served:
                    by_port[plan.listener.port].append(plan)
            state = self._parents.states[key]
            if state.is_served and state.address:
                yield from ((key, by_port[port]) for port in sorted(by_port))

    def _hosts(self, key: Key, plans: Sequence[ListenerPlan]) -> Iterator[tuple[str, str, Groups]]:
        """Yield each host of a port with the hostname of its listener and its routes.

        A request belongs to the listener with the most specific hostname only (listener isolation). In that listener,
        routes for the most specific hostname come first.
        """
        listeners = {plan.host: plan.listener.name for plan in plans}
        for listener, name in listeners.items():
            lists: dict[str, list[CompiledRoute]] = defaultdict(list)
            for route, hosts in self._on_listeners[key, name]:
                for host in hosts:
                    lists[host].append(route)
            groups = {host: tuple(routes) for host, routes in lists.items()}
            has_wildcards = any(host.startswith("*") for host in groups)
            for host in dict.fromkeys((listener, *groups)):
                if host != listener and len(listeners) > 1 and best_name(listeners, host) != listener:
                    continue
                patterns = fitting_names(groups, host) if has_wildcards else (host,)
                yield host, listener, tuple(groups[pattern] for pattern in patterns if pattern in groups)

    def _port(self, key: Key, plans: Sequence[ListenerPlan], hosts: Iterable[HostRoutes]) -> GatewayPort:
        name, address, port = _name(key), self._parents.states[key].address, plans[0].listener.port
        if plans[0].listener.protocol == "TCP":
            attached = self._on_listeners[key, plans[0].listener.name]
            connections = next(
                (route.connections for route, _ in attached), None
            )  # a TCP listener has at most one route
            return GatewayPort(gateway=name, address=address, port=port, protocol=Protocol.TCP, connections=connections)
        certificates = ((plan.host, plan.certificate) for plan in sorted(plans, key=lambda plan: plan.host))
        return GatewayPort(
            gateway=name,
            address=address,
            port=port,
            hosts=tuple(hosts),
            tls=tuple((host, certificate) for host, certificate in certificates if certificate),
        )


def _name(key: Key) -> str:
    return f"{key.namespace}/{key.name}"
