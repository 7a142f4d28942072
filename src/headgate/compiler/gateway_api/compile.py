"""Compile the Gateway API: the routes of Gateways' hosts and of Service ports, from the routes attached to them."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from msgspec import structs

from headgate.compiler.gateway_api import backend_tls
from headgate.compiler.gateway_api.gateways import ANY_HOST
from headgate.compiler.gateway_api.links import ConsumerPort, Place
from headgate.compiler.gateway_api.other_spellings import without_other_spellings
from headgate.compiler.gateway_api.outcomes import OutcomeInputs, outcome, outcome_inputs, refused_outcomes
from headgate.compiler.gateway_api.parents import AttachedRoute, Parents
from headgate.compiler.gateway_api.rules import CompiledRoute, in_order
from headgate.compiler.gateway_api.served_ports import ServedPort
from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding, GatewayOutcome
from headgate.compiler.unreachable_routes import RouteList, unreachable
from headgate.memo import Stages
from headgate.model.host_names import best_name, fitting_names
from headgate.model.requests import ANY
from headgate.model.routing import GatewayPort, HostRoutes, PortRef, Protocol, Route, RouteTable, ServerName
from headgate.resources.meta import Key
from headgate.shared_map import SharedMap, replaced

Routes = tuple[CompiledRoute, ...]
NamedRoutes = tuple[tuple[str, Routes], ...]
_NONE: SharedMap[str, Routes] = SharedMap()
_WITH_ONE_ROUTE = {"TCP": Protocol.TCP, "UDP": Protocol.UDP}


class RouteGroups(NamedTuple):
    """The usable routes of each place by hostname, and the number of routes of a place.

    At Service ports, the hostname is empty for all routes but TLSRoutes.

    The groups depend on `attached` only; the order of places, hostnames and routes is arbitrary.
    """

    attached: SharedMap[Key, AttachedRoute]
    by_place: Mapping[Place, SharedMap[str, Routes]]
    counts: Mapping[Place, int]

    def of_service(self, place: PortRef | ConsumerPort) -> NamedRoutes:
        """Return the routes of a Service port by the server name of TLSRoutes, which is empty for all other kinds."""
        by_name = self.by_place.get(place, _NONE)
        return tuple((name, by_name[name]) for name in sorted(by_name))


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
    return RouteGroups(attached, by_place, dict(counts))


class GatewayListener(NamedTuple):
    """A listener for several names on a Gateway port, and the groups of its routes that apply to several hosts.

    `hosts` has the hostnames of the port's listeners that fit its own hostname, and `wildcards` the groups of routes for
    wildcards. `policies` has the TLS of backends.
    """

    gateway: Key
    port: int
    host: str
    hosts: frozenset[str]
    wildcards: Mapping[str, Routes]
    policies: backend_tls.Policies


class ExactHosts(NamedTuple):
    """The routes of the listeners for one full name, by Gateway port and name, and the input of which they were made."""

    parents: Parents | None
    by_place: Mapping[Place, SharedMap[str, Routes]]
    ports: Mapping[tuple[Key, int], SharedMap[str, Routes]]


def exact_hosts(last: ExactHosts, parents: Parents, groups: RouteGroups) -> ExactHosts:
    """Return the routes of the listeners for one full name, by Gateway port and name.

    Ports without requests have none. A TLS listener beside HTTPS listeners has no routes: requests for its host get 421 on their
    connections. With the same parents as in `last`, only the routes of changed listeners are read.
    """
    changed: Iterable[Place] | None = None
    if last.parents is parents:
        new, gone = replaced(last.by_place, groups.by_place)
        changed = (*new, *gone)
    ports: dict[tuple[Key, int], SharedMap[str, Routes]] = {}
    for served in parents.served:
        if served.has_requests:
            port = served.gateway, served.port
            before = last.ports.get(port, _NONE)
            own = _exact_routes(served, served.exact if changed is None else changed, groups)
            left = [host for host in before if host not in own] if changed is None else []
            ports[port] = before.edited(own, left)
    return ExactHosts(parents, groups.by_place, ports)


def _exact_routes(served: ServedPort, places: Iterable[Place], groups: RouteGroups) -> Mapping[str, Routes]:
    routes: dict[str, Routes] = {}
    for place in places:
        if place in served.exact:
            host, has_requests = served.exact[place]
            routes[host] = groups.by_place.get(place, _NONE).get(host, ()) if has_requests else ()
    return routes


def compile_exact(policies: backend_tls.Policies, host: str, own: Routes) -> HostRoutes:
    """Compile the host of a listener for one full name from its routes, with the TLS of their backends."""
    routes = (backend_tls.with_tls(policies, route) for route in _in_precedence(iter((own,))))
    return HostRoutes(host=host, routes=without_other_spellings(routes), listener=host)


def listener_hosts(
    parents: Parents, groups: RouteGroups, policies: backend_tls.Policies
) -> Iterator[tuple[Place, GatewayListener, SharedMap[str, Routes]]]:
    """Yield each listener for several names of ports with requests, with the routes of each of its hosts."""
    for served in parents.served:
        if not served.has_requests:
            continue
        own = backend_tls.at_gateway(policies, parents.states[served.gateway].client)
        for place, (host, has_requests) in served.wildcards.items():
            routes = groups.by_place.get(place, _NONE) if has_requests else _NONE
            wildcards = {pattern: routes[pattern] for pattern in routes if pattern.startswith("*")}
            listener = GatewayListener(served.gateway, served.port, host, served.hosts_below[host], wildcards, own)
            yield place, listener, routes if host in routes else routes.edited({host: ()})


def compile_host(listener: GatewayListener, host: str, own: Routes) -> HostRoutes | None:
    """Compile a host of a listener from its own routes and those for wildcards; None if it has another listener.

    A request belongs to the listener with the most specific hostname only (listener isolation). In that listener, routes
    for the most specific hostname come first.
    """
    if host != listener.host and best_name(listener.hosts, host) != listener.host:
        return None
    groups = {**listener.wildcards, host: own}
    several = (groups[pattern] for pattern in fitting_names(groups, host))
    routes = (backend_tls.with_tls(listener.policies, route) for route in _in_precedence(several))
    return HostRoutes(host=host, routes=without_other_spellings(routes), listener=listener.host)


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
    """The routes of a Service port, findings about them, and those about splits that they replace for all clients."""

    table: RouteTable
    findings: tuple[Finding, ...] = ()
    overridden: tuple[Finding, ...] = ()


def compile_port(table: RouteTable, attached: NamedRoutes, policies: backend_tls.Policies) -> CompiledPort:
    """Compile a Service port with attached routes; requests without a match get 404.

    Proxies can't distinguish the connections of two TCPRoutes, so the oldest gets all of them. Connections to a port with
    TLSRoutes whose server name has none are closed. The client's TLS is passed on, whatever the policy of the backend.
    """
    (name, routes_of_name), *more = attached
    if name or more:
        routed = {ANY_HOST: None} | {host: backend_tls.passed_on(routes) for host, routes in attached}
        server_names = tuple(ServerName(host=host, route=routed[host]) for host in sorted(routed))
        return CompiledPort(structs.replace(table, routes=(), server_names=server_names))
    by_age = sorted(routes_of_name, key=attrgetter("age"))
    oldest = by_age[0].connections
    routes = (oldest,) if oldest else in_order(ranked for route in by_age for ranked in route.requests)
    for_mesh = tuple(backend_tls.without_tls_ports(policies, route) for route in routes)
    findings = tuple(backend_tls.gateways_only(routes, for_mesh))
    changed = structs.replace(table, routes=without_other_spellings(for_mesh))
    return CompiledPort(changed, findings, tuple(_overridden(table, by_age)))


def _overridden(table: RouteTable, attached: Sequence[CompiledRoute]) -> Iterator[Finding]:
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


def consumer_ports(
    tables: Iterable[RouteTable], groups: RouteGroups
) -> Mapping[ConsumerPort, tuple[RouteTable, NamedRoutes]]:
    """Return the Service ports that have routes for clients of another namespace, each with its own routes and these."""
    places = sorted(place for place in groups.by_place if isinstance(place, ConsumerPort))
    own = {table.ref: table for table in tables} if places else {}
    return {
        place: (own[place.ref], routes) for place in places if place.ref in own and (routes := groups.of_service(place))
    }


Hosts = SharedMap[str, HostRoutes]
_NO_HOSTS: Hosts = SharedMap()


class CompiledHosts(NamedTuple):
    """The compiled hosts of ports with requests: those of listeners for one name by Gateway port, the remaining hosts by listener."""

    exact: Mapping[tuple[Key, int], Hosts]
    several: Mapping[Place, Hosts]


def gateway_ports(
    parents: Parents, groups: RouteGroups, hosts: CompiledHosts, policies: backend_tls.Policies
) -> Iterator[GatewayPort]:
    """Yield the ports of Gateways that accept connections."""
    for served in parents.served:
        client = parents.states[served.gateway].client
        own_policies = backend_tls.at_gateway(policies, client)
        name, place = f"{served.gateway.namespace}/{served.gateway.name}", next(iter(served.plans))
        protocol = next((_WITH_ONE_ROUTE[name] for name in served.protocols if name in _WITH_ONE_ROUTE), None)
        if protocol:
            attached = [route for several in groups.by_place.get(place, _NONE).values() for route in several]
            if attached:
                route = backend_tls.oldest_connections(attached, own_policies)
                yield GatewayPort(
                    gateway=name,
                    address=served.address,
                    port=served.port,
                    protocol=protocol,
                    connections=route,
                    client=client,
                )
            continue
        yield GatewayPort(
            gateway=name,
            address=served.address,
            port=served.port,
            protocol=Protocol.TLS if served.protocols == {"TLS"} else Protocol.HTTP,
            hosts=_hosts(served, hosts),
            tls=served.tls,
            server_names=_server_names(served, groups, own_policies),
            client_certificates=served.client_certificates,
            client=client,
        )


def _hosts(served: ServedPort, hosts: CompiledHosts) -> Hosts:
    """Return all hosts of a port; no two of its listeners have a host in common."""
    of_listeners = [hosts.several.get(place, _NO_HOSTS) for place in served.wildcards]
    several = [hosts.exact.get((served.gateway, served.port), _NO_HOSTS), *of_listeners]
    first = max(several, key=len)
    remaining = {host: compiled for some in several if some is not first for host, compiled in some.items()}
    return first.edited(remaining)


def _server_names(served: ServedPort, groups: RouteGroups, policies: backend_tls.Policies) -> tuple[ServerName, ...]:
    """Return the server names of a port's TLS listeners; a name without a route has the listener's own hostname.

    As for requests, a connection belongs to the listener with the most specific hostname only. The oldest route for a name
    gets its connections. TLS that is passed on is between the client and the backend, whatever the policy of the backend.
    """
    plans = served.plans.items() if "TLS" in served.protocols else ()
    hosts = {plan.host for _, plan in plans}
    by_name: dict[str, ServerName] = {}
    for place, plan in plans:
        if plan.listener.protocol != "TLS":
            continue
        by_name.setdefault(ANY_HOST, ServerName(host=ANY_HOST))
        by_name[plan.host] = ServerName(host=plan.host, listener=plan.host)
        for host, routes in groups.by_place.get(place, _NONE).items():
            if best_name(hosts, host) == plan.host:
                by_name[host] = ServerName(
                    host=host,
                    listener=plan.host,
                    terminated=plan.listener.terminates_tls,
                    route=(
                        backend_tls.oldest_connections(routes, policies)
                        if plan.listener.terminates_tls
                        else backend_tls.passed_on(routes)
                    ),
                )
    if any(plan.host == ANY_HOST and plan.listener.protocol != "TLS" for _, plan in plans):
        by_name.pop(ANY_HOST, None)
    return tuple(by_name[host] for host in sorted(by_name))


class CompiledGateways(NamedTuple):
    """The ports and statuses of Gateways and ListenerSets, with lists of routes that no request reaches."""

    ports: tuple[GatewayPort, ...]
    outcomes: tuple[GatewayOutcome, ...]
    unreachable: tuple[RouteList, ...]


def compile_gateways(
    stages: Stages, parents: Parents, groups: RouteGroups, policies: backend_tls.Policies
) -> CompiledGateways:
    """Compile the hosts and statuses of Gateways and ListenerSets; `stages` has the results of the last compilation."""
    exact_routes = stages.following(exact_hosts, ExactHosts(None, {}, {}), parents, groups)
    exact = {
        port: stages.each_item(
            compile_exact, backend_tls.at_gateway(policies, parents.states[port[0]].client), routes, port
        )
        for port, routes in exact_routes.ports.items()
    }
    listeners = list(listener_hosts(parents, groups, policies))
    several = {place: stages.each_item(compile_host, listener, routes, place) for place, listener, routes in listeners}
    of_ports = (stages.each_item(unreachable_in_host, port, hosts, port) for port, hosts in exact.items())
    of_listeners = (
        stages.each_item(unreachable_in_host, (listener.gateway, listener.port), several[place], place)
        for place, listener, _ in listeners
    )
    ports = tuple(gateway_ports(parents, groups, CompiledHosts(exact, several), policies))
    served = frozenset((port.gateway, (port.port, port.protocol is Protocol.UDP)) for port in ports)
    first = OutcomeInputs(None, {}, frozenset(), {})
    inputs = stages.following(outcome_inputs, first, parents, groups.counts, served).inputs
    outcomes = [*stages.each(outcome, inputs), *refused_outcomes(parents)]
    return CompiledGateways(
        ports=ports,
        outcomes=tuple(sorted(outcomes, key=attrgetter("about"))),
        unreachable=tuple(
            route for some in (*of_ports, *of_listeners) for route in sorted(some.values(), key=attrgetter("title"))
        ),
    )
