"""Compile the Gateway API: the routes of Gateways' hosts and of Service ports, from the routes attached to them."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from msgspec import structs

from headgate.compiler.gateway_api.gateways import ANY_HOST, ListenerPlan
from headgate.compiler.gateway_api.parents import AttachedRoute, Parents, Place, overridden
from headgate.compiler.gateway_api.rules import CompiledRoute, in_order
from headgate.compiler.gateway_api.statuses import gateway_outcome
from headgate.compiler.report import Finding, GatewayOutcome
from headgate.compiler.unreachable_routes import RouteList, unreachable
from headgate.model.host_names import best_name, fitting_names
from headgate.model.routing import GatewayPort, HostRoutes, PortRef, Protocol, Route, RouteTable, ServerName
from headgate.resources.meta import Key
from headgate.shared_map import SharedMap, replaced

Routes = tuple[CompiledRoute, ...]
_NONE: SharedMap[str, Routes] = SharedMap()
_OF_CONNECTIONS = frozenset({"TCP", "TLS"})  # the protocols of listeners whose requests proxies do not read


class RouteGroups(NamedTuple):
    """The usable routes of each place by hostname, which is empty for Service ports, and the number of routes of a place.

    The groups depend on `attached` only; the order of places, hostnames and routes is arbitrary.
    """

    attached: SharedMap[Key, AttachedRoute]
    by_place: Mapping[Place, SharedMap[str, Routes]]
    counts: Mapping[Place, int]

    def of_service(self, ref: PortRef) -> Routes:
        """Return the routes of a Service port."""
        routes: Routes = self.by_place.get(ref, _NONE).get("", ())
        return routes


def grouped(last: RouteGroups, attached: SharedMap[Key, AttachedRoute]) -> RouteGroups:
    """Group routes. Unchanged groups are the same objects as in `last`."""
    before = last.attached
    changed, gone = replaced(before, attached)
    changed_or_gone = dict.fromkeys((*changed, *gone))
    edits: dict[Place, dict[str, list[CompiledRoute]]] = defaultdict(lambda: defaultdict(list))
    counts = Counter(last.counts)
    for key in changed_or_gone:
        old, new = (routes[key].entries if key in routes else () for routes in (before, changed))
        counts.subtract({place for place, _ in old})
        counts.update({place for place, _ in new})
        for place, host in old:
            edits[place].setdefault(host, [])
        for place, host in new:
            edits[place][host].append(changed[key].route)
    by_place = dict(last.by_place)
    for place, hosts in edits.items():
        groups = by_place.get(place, _NONE)
        regrouped = {
            host: (*(old for old in groups.get(host, ()) if old.key not in changed_or_gone), *routes)
            for host, routes in hosts.items()
        }
        empty = [host for host, routes in regrouped.items() if not routes]
        by_place[place] = groups.edited(regrouped, empty)
    return RouteGroups(attached, by_place, counts)


class GatewayListener(NamedTuple):
    """A listener of a Gateway port, and the groups of its routes that apply to several hosts.

    `hosts` has the hostnames of the port's listeners, and `wildcards` the groups of routes for wildcards.
    """

    gateway: Key
    port: int
    host: str
    hosts: tuple[str, ...]
    wildcards: Mapping[str, Routes]


def listener_hosts(
    parents: Parents, groups: RouteGroups
) -> Iterator[tuple[Place, GatewayListener, SharedMap[str, Routes]]]:
    """Yield each listener of HTTP ports that accepts connections, with the routes of each of its hosts.

    A TLS listener beside HTTPS listeners has none: requests for its host get 421 on their connections.
    """
    for key, plans in _served_ports(parents):
        hosts = tuple(dict.fromkeys(plan.host for plan in plans))
        if all(plan.listener.protocol in _OF_CONNECTIONS for plan in plans):
            continue
        for plan in {plan.host: plan for plan in plans}.values():
            place = key, plan.listener.name
            routes = _NONE if plan.listener.protocol in _OF_CONNECTIONS else groups.by_place.get(place, _NONE)
            wildcards = {host: routes[host] for host in routes if host.startswith("*")}
            listener = GatewayListener(key, plan.listener.port, plan.host, hosts, wildcards)
            yield place, listener, routes if plan.host in routes else routes.edited({plan.host: ()})


def compile_host(listener: GatewayListener, host: str, own: Routes) -> HostRoutes | None:
    """Compile a host of a listener from its own routes and those for wildcards; None if it has another listener.

    A request belongs to the listener with the most specific hostname only (listener isolation). In that listener, routes
    for the most specific hostname come first.
    """
    if host != listener.host and best_name(listener.hosts, host) != listener.host:
        return None
    groups = {**listener.wildcards, host: own}
    routes = tuple(_in_precedence(groups[pattern] for pattern in fitting_names(groups, host)))
    return HostRoutes(host=host, routes=routes, listener=listener.host)


def unreachable_in_host(place: tuple[Key, int], host: str, compiled: HostRoutes) -> RouteList | None:
    """Return the routes of a host, with those that no request reaches; None if there are none.

    `place` is the Gateway and its port.
    """
    missed = unreachable(compiled.routes)
    return RouteList(f"{place[0]}, port {place[1]}, host {host}", None, compiled.routes, missed) if missed else None


def _in_precedence(groups: Iterator[Routes]) -> Iterator[Route]:
    """Yield routes in order of precedence; `groups` begin with the most specific one, and each route occurs once."""
    seen: set[Key] = set()
    for group in groups:
        fresh = [route for route in group if route.key not in seen]
        seen.update(route.key for route in fresh)
        yield from in_order(ranked for route in fresh for ranked in route.requests)


class CompiledPort(NamedTuple):
    """The routes of a Service port, and findings about splits that they replace."""

    table: RouteTable
    findings: tuple[Finding, ...] = ()


def compile_port(table: RouteTable, attached: Routes) -> CompiledPort:
    """Compile a Service port with attached routes; requests without a match get 404.

    Proxies can't distinguish the connections of two TCPRoutes, so the oldest gets all of them.
    """
    by_age = sorted(attached, key=attrgetter("age"))
    oldest = by_age[0].connections
    routes = (oldest,) if oldest else in_order(ranked for route in by_age for ranked in route.requests)
    return CompiledPort(structs.replace(table, routes=routes), tuple(overridden(table, by_age)))


def gateway_ports(
    parents: Parents, groups: RouteGroups, hosts: Mapping[Place, SharedMap[str, HostRoutes]]
) -> Iterator[GatewayPort]:
    """Yield the ports of Gateways that accept connections; `hosts` has the compiled hosts of HTTP listeners."""
    for key, plans in _served_ports(parents):
        name, address, port = f"{key.namespace}/{key.name}", parents.states[key].address, plans[0].listener.port
        places = [(key, plan.listener.name) for plan in plans]
        if plans[0].listener.protocol == "TCP":
            attached = [route for several in groups.by_place.get(places[0], _NONE).values() for route in several]
            if attached:
                route = min(attached, key=attrgetter("age")).connections
                yield GatewayPort(gateway=name, address=address, port=port, protocol=Protocol.TCP, connections=route)
            continue
        several = [hosts[place] for place in places if hosts.get(place)]
        first = max(several, key=len, default=SharedMap[str, HostRoutes]())
        by_name = first.edited(
            {
                host: host_routes
                for served_hosts in several
                if served_hosts is not first
                for host, host_routes in served_hosts.items()
            }
        )
        sorted_plans = sorted(plans, key=lambda plan: plan.host)
        tls = tuple((plan.host, certificate) for plan in sorted_plans for certificate in plan.certificates)
        yield GatewayPort(
            gateway=name,
            address=address,
            port=port,
            protocol=Protocol.TLS if all(plan.listener.protocol == "TLS" for plan in plans) else Protocol.HTTP,
            hosts=by_name,
            tls=tls,
            server_names=_server_names(key, plans, groups),
        )


def _server_names(key: Key, plans: Sequence[ListenerPlan], groups: RouteGroups) -> tuple[ServerName, ...]:
    """Return the server names of a port's TLS listeners; a name without a route has the listener's own hostname.

    As for requests, a connection belongs to the listener with the most specific hostname only. The oldest route for a name
    gets its connections.
    """
    hosts = {plan.host for plan in plans}
    by_name: dict[str, ServerName] = {}
    for plan in plans:
        if plan.listener.protocol != "TLS":
            continue
        by_name.setdefault(ANY_HOST, ServerName(host=ANY_HOST))
        by_name[plan.host] = ServerName(host=plan.host, listener=plan.host)
        for host, routes in groups.by_place.get((key, plan.listener.name), _NONE).items():
            if best_name(hosts, host) == plan.host:
                by_name[host] = ServerName(
                    host=host,
                    listener=plan.host,
                    terminated=plan.listener.terminates_tls,
                    route=min(routes, key=attrgetter("age")).connections,
                )
    if any(plan.host == ANY_HOST and plan.listener.protocol != "TLS" for plan in plans):
        by_name.pop(ANY_HOST, None)
    return tuple(by_name[host] for host in sorted(by_name))


def outcomes(parents: Parents, groups: RouteGroups, ports: Sequence[GatewayPort]) -> Iterator[GatewayOutcome]:
    """Yield the status of each Gateway."""
    for key, plans in parents.plans.items():
        name = f"{key.namespace}/{key.name}"
        yield gateway_outcome(
            key,
            parents.states[key],
            plans,
            attached={plan.listener.name: groups.counts.get((key, plan.listener.name), 0) for plan in plans},
            ports=tuple(port.port for port in ports if port.gateway == name),
        )


def _served_ports(parents: Parents) -> Iterator[tuple[Key, list[ListenerPlan]]]:
    """Yield the ports of Gateways with an address, in order, each as the plans of its listeners."""
    for key, plans in parents.plans.items():
        by_port: dict[int, list[ListenerPlan]] = defaultdict(list)
        for plan in plans:
            if plan.served:
                by_port[plan.listener.port].append(plan)
        if parents.states[key].is_served and parents.states[key].address:
            yield from ((key, by_port[port]) for port in sorted(by_port))
