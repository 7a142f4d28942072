"""Compare what proxies do with requests in two meshes: the classes of requests that are treated differently."""

import re
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from msgspec import structs

from headgate.matching.conditions import AUTHORITY, Conjunction, Dimension, Literal, Setting, Test
from headgate.matching.requests import fits, parts_of, request_of
from headgate.matching.solver import Solver
from headgate.matching.undecided import Work
from headgate.model.evaluate import MISDIRECTED, MISDIRECTED_REQUEST, NO_SUCH_HOST, UNAVAILABLE
from headgate.model.host_names import best_name, host_fits, server_name_entry
from headgate.model.requests import Request
from headgate.model.routing import GatewayPort, HostRoutes, Mesh, PortRef, Protocol, Route, RouteTable
from headgate.model.sanitizing import NOT_FOUND
from headgate.plan.route_lists import ListedRoute, RouteDifference, differences, rules
from headgate.plan.treatment import Ready, Treatment, answered_by_proxy, external_name, treatment_of
from headgate.resources.inspect import Answer
from headgate.resources.meta import Key, Value
from headgate.shared_map import replaced

NO_SUCH_PORT = answered_by_proxy(NOT_FOUND, "NoSuchPort")
NO_ROUTE = answered_by_proxy(NOT_FOUND, "NoRoute")
CLOSED = answered_by_proxy(0, "NoCertificate")
NO_SERVER_NAME = structs.replace(answered_by_proxy(UNAVAILABLE, NO_SUCH_HOST), protocol=Protocol.TLS)
_HOST = Dimension("header", AUTHORITY)
_Named: typing.TypeAlias = GatewayPort | RouteTable
_DEFAULT_PORTS = {False: 80, True: 443}
ROUTE_STEPS = 8
"""What a route of a changed entry counts as, in steps of Work."""


class Entry(Answer, frozen=True, kw_only=True, order=True):
    """Where requests arrive: a Service port, or a `host` of a Gateway port. `name` is `namespace/name`.

    A Gateway may have a TCP port and a UDP port with one number. With `consumer`, the requests are those of clients in this namespace, which has routes of its own for the Service.
    """

    kind: typing.Literal["Gateway", "Service"]
    name: str
    port: int
    host: str = ""
    consumer: str = ""
    transport: typing.Literal["TCP", "UDP"] = "TCP"

    def __str__(self) -> str:
        """Return the entry in words."""
        host = f", host {self.host}" if self.host and self.host != "*" else ""
        clients = f", clients of namespace {self.consumer}" if self.consumer else ""
        suffix = "/UDP" if self.transport == "UDP" else ""
        return f"{self.kind} {self.name}:{self.port}{suffix}{host}{clients}"


class RequestClass(Value, frozen=True, kw_only=True):
    """The requests to an entry that meet all conditions of `match`, unless an earlier route takes them.

    `old_route` and `new_route` name the routes that they take; None if no route matches. Without an `example` it is not
    decided whether there are such requests. `taken` has the matches of earlier routes
    that may take some of them, and `authorities` has usual hosts of the entry. `is_rest` means that `match` is empty, but other routes take some requests.
    `is_rest_of_names` means TLS connections with none of the more specific server names of the entry's port. Where the proxy closes
    them, `named_routes` has the routes of these names, whose existence is the reason. `unmatched_objects` has the objects of all
    routes of the entry in a mesh where none matches.
    """

    entry: Entry
    match: Conjunction
    is_rest: bool
    before: Treatment
    after: Treatment
    old_route: Route | None
    new_route: Route | None
    taken: tuple[Conjunction, ...]
    authorities: tuple[str, ...]
    example: Request | None
    is_rest_of_names: bool = False
    named_routes: tuple[Route, ...] = ()
    unmatched_objects: tuple[Key, ...] = ()


class _Side(NamedTuple):
    """The routes of an entry in one mesh; `unmatched` is the treatment of requests that no route matches."""

    routes: Sequence[Route]
    treatments: Sequence[Treatment]
    unmatched: Treatment

    def rules(self) -> list[ListedRoute]:
        """Return the routes as rules."""
        return rules((route.match for route in self.routes), self.treatments, self.unmatched)

    def route(self, rule: ListedRoute) -> Route | None:
        """Return the route of a rule."""
        return None if rule.position is None else self.routes[rule.position]

    def unmatched_objects(self, rule: ListedRoute) -> Iterator[Key]:
        """Yield the objects of all routes if the rule stands for requests that none of them matches."""
        if rule.position is None:
            yield from (route.origin for route in self.routes if route.origin)


class _Context(NamedTuple):
    """The ready endpoints of both meshes, the Service ports that have some in one mesh only or another DNS name, and the limit of the search."""

    ready: tuple[Ready, Ready]
    changed: set[PortRef]
    work: Work | None


def request_classes(before: Mesh, after: Mesh, work: Work | None = None) -> Iterator[RequestClass]:
    """Yield the classes of requests whose treatment differs, sorted by entry. Raises Exhausted if `work` does not suffice."""
    old, new = _ready(before), _ready(after)
    changed = {ref for ref in old.keys() | new.keys() if _presence(old, ref) != _presence(new, ref)}
    context = _Context((old, new), changed, work)
    yield from _at_services(before, after, context)
    ports, later = (
        {(port.gateway, port.port, port.protocol is Protocol.UDP): port for port in mesh.gateways}
        for mesh in (before, after)
    )
    for place in sorted(ports.keys() | later.keys()):
        yield from _at_gateway(ports.get(place), later.get(place), context)


def _ready(mesh: Mesh) -> Ready:
    return {entry.ref: entry.ready for entry in mesh.endpoints}


def _presence(ready: Ready, ref: PortRef) -> tuple[bool, str]:
    return bool(ready.get(ref)), external_name(ready, ref)


def _callees(routes: Iterable[Route]) -> Iterator[PortRef]:
    return chain.from_iterable(route.callees for route in routes)


def _at_services(before: Mesh, after: Mesh, context: _Context) -> Iterator[RequestClass]:
    tables, later = ({table.ref: table for table in mesh.tables} for mesh in (before, after))
    own, later_own = _consumers(before), _consumers(after)
    everywhere = [(ref, "") for ref in sorted(tables.keys() | later.keys())]
    for ref, home in (*everywhere, *sorted(own.keys() | later_own.keys())):
        old, new = own.get((ref, home), tables.get(ref)), later_own.get((ref, home), later.get(ref))
        if old == new and new and context.changed.isdisjoint(_callees(new.all_routes)):
            continue
        namespace, name = ref.service.split("/")
        host = f"{name}.{namespace}" if ref.port == _DEFAULT_PORTS[False] else f"{name}.{namespace}:{ref.port}"
        entry = Entry(kind="Service", name=ref.service, port=ref.port, consumer=home)
        if context.work:
            context.work.spend(ROUTE_STEPS * sum(len(table.all_routes) for table in (old, new) if table))
        if any(table and table.server_names for table in (old, new)):
            yield from _at_server_names(entry, old, new, context)
            continue
        sides = _of_table(old, context.ready[0]), _of_table(new, context.ready[1])
        yield from _compared(entry, sides, Solver(Setting(authorities=(host,)), work=context.work))


def _consumers(mesh: Mesh) -> Mapping[tuple[PortRef, str], RouteTable]:
    """Return the routes of Service ports for clients of a namespace, by port and namespace."""
    return {(consumer.table.ref, consumer.namespace): consumer.table for consumer in mesh.consumers}


def _of_table(table: RouteTable | None, ready: Ready) -> _Side:
    if table is None:
        return _Side((), (), NO_SUCH_PORT)
    return _side(table.routes, ready, table.protocol)


def _side(routes: Sequence[Route], ready: Ready, protocol: Protocol = Protocol.HTTP) -> _Side:
    return _Side(routes, [treatment_of(route, ready, protocol) for route in routes], NO_ROUTE)


def _at_gateway(old: GatewayPort | None, new: GatewayPort | None, context: _Context) -> Iterator[RequestClass]:
    some = new or old
    if some is None:
        return
    sides = [_connections(port, ready) for port, ready in zip((old, new), context.ready, strict=True)]
    if any(sides):
        transport: typing.Literal["TCP", "UDP"] = "UDP" if some.protocol is Protocol.UDP else "TCP"
        entry = Entry(kind="Gateway", name=some.gateway, port=some.port, transport=transport)
        was, now = (side or _Side((), (), NO_SUCH_PORT) for side in sides)
        yield from _compared(entry, (was, now), Solver(Setting(edge=True), work=context.work))
        return
    yield from _at_server_names(Entry(kind="Gateway", name=some.gateway, port=some.port), old, new, context)
    if not any(port and port.protocol.is_http for port in (old, new)):
        return
    names = {name: None for port in (old, new) if port for name in port.hosts} | {"*": None}
    for name in sorted(_changed_hosts(old, new) if old and new and not context.changed else names):
        hosts = _best_host(old, name), _best_host(new, name)
        same_backends = hosts[1] is None or context.changed.isdisjoint(_callees(hosts[1].routes))
        if hosts[0] == hosts[1] and same_backends and _same_connections(old, new, name):
            continue
        inner = [other_name for other_name in names if other_name != name and host_fits(name, other_name)]
        region = _region(name, inner)
        secure = bool(some.tls)
        setting = Setting(edge=True, secure=secure, authorities=_authorities(name, some.port, secure=secure))
        if context.work:
            context.work.spend(ROUTE_STEPS * sum(len(host.routes) for host in hosts if host))
        host_sides = [
            _of_host(port, host, name, items)
            for port, host, items in zip((old, new), hosts, context.ready, strict=True)
        ]
        entry = Entry(kind="Gateway", name=some.gateway, port=some.port, host=name)
        yield from _compared(entry, (host_sides[0], host_sides[1]), Solver(setting, work=context.work), region)


def _at_server_names(entry: Entry, old: _Named | None, new: _Named | None, context: _Context) -> Iterator[RequestClass]:
    """Yield the classes of TLS connections to an entry, by the server name (SNI)."""
    entries = [server_name for port in (old, new) if port for server_name in port.server_names]
    names = {server_name.host for server_name in entries}
    for name in sorted(names):
        was, now = (_of_server_name(port, name, ready) for port, ready in zip((old, new), context.ready, strict=True))
        setting = Setting(edge=True, secure=True, authorities=_authorities(name, entry.port, secure=True))
        inner = [each for each in entries if each.host != name and host_fits(name, each.host)]
        is_closed = NO_SERVER_NAME in (was.unmatched, now.unmatched)
        named_routes = tuple(each.route for each in inner if each.route) if is_closed else ()
        solver = Solver(setting, work=context.work)
        for request_class in _compared(structs.replace(entry, host=name), (was, now), solver):
            is_rest = bool(inner) and not request_class.match
            yield structs.replace(request_class, is_rest_of_names=is_rest, named_routes=named_routes)


def _of_server_name(port: _Named | None, name: str, ready: Ready) -> _Side:
    if port is None:
        return _Side((), (), NO_SUCH_PORT)
    named = server_name_entry(port, name)
    if named is None:
        if isinstance(port, RouteTable) and not port.server_names:
            return _of_table(port, ready)
        return _Side((), (), CLOSED)
    return _side((named.route,), ready, Protocol.TLS) if named.route else _Side((), (), NO_SERVER_NAME)


def _changed_hosts(old: GatewayPort, new: GatewayPort) -> Iterable[str]:
    """Return the names of hosts whose requests may be treated differently, if all backends are as before."""
    if old.tls != new.tls:
        return {*old.hosts, *new.hosts, "*"}
    changed, gone = replaced(old.hosts, new.hosts)
    return {*changed, *gone, "*"}


def _connections(port: GatewayPort | None, ready: Ready) -> _Side | None:
    return _side((port.connections,), ready, port.protocol) if port and port.connections else None


def _best_host(port: GatewayPort | None, name: str) -> HostRoutes | None:
    host = best_name(port.hosts.keys(), name) if port else None
    return port.hosts[host] if port and host else None


def _same_connections(old: GatewayPort | None, new: GatewayPort | None, name: str) -> bool:
    """Return whether connections to a host are accepted by the same listener."""
    return (old is None) == (new is None) and _listener(old, name) == _listener(new, name)


def _listener(port: GatewayPort | None, name: str) -> str | None:
    return best_name({host for host, _ in port.tls}, name) if port and port.tls else ""


def _of_host(port: GatewayPort | None, host: HostRoutes | None, name: str, ready: Ready) -> _Side:
    """Return the routes of a host, for connections whose SNI is the host of their requests."""
    if port is None:
        return _Side((), (), NO_SUCH_PORT)
    listener = _listener(port, name)
    if listener is None or server_name_entry(port, name):
        return _Side((), (), CLOSED)
    if host is None:
        return _Side((), (), NO_ROUTE)
    if port.tls and listener != host.listener:
        return _Side((), (), answered_by_proxy(MISDIRECTED, MISDIRECTED_REQUEST))
    return _side(host.routes, ready)


def _region(name: str, inner: Sequence[str]) -> Conjunction:
    """Return the conditions on the authority of requests whose most specific host is `name`."""
    own = () if name == "*" else (Literal(_HOST, _host_test(name)),)
    return (*own, *(Literal(_HOST, _host_test(host), holds=False) for host in inner))


def _host_test(name: str) -> Test:
    host = f".+{re.escape(name[1:])}" if name.startswith("*") else re.escape(name)
    return Test("regex", f"(?i:{host})(?::[0-9]+)?")


def _authorities(name: str, port: int, *, secure: bool) -> tuple[str, ...]:
    """Return authorities of a host: those that `headgate explain` sends to the port come first."""
    hosts = (
        [name]
        if not name.startswith("*")
        else [f"{word}{name[1:]}" if name != "*" else f"{word}.example" for word in ("other", "another")]
    )
    suffix = "" if port == _DEFAULT_PORTS[secure] else f":{port}"
    return (*(f"{host}{suffix}" for host in hosts), *hosts)


def _compared(
    entry: Entry, sides: tuple[_Side, _Side], solver: Solver, region: Conjunction = ()
) -> Iterator[RequestClass]:
    setting = solver.setting
    old, new = sides[0].rules(), sides[1].rules()
    for difference in differences(solver, old, new, region):
        match = tuple(dict.fromkeys((*difference.before.match, *difference.after.match)))
        yield RequestClass(
            entry=entry,
            match=match,
            is_rest=not match and len(old) + len(new) > 2,
            before=difference.before.treatment,
            after=difference.after.treatment,
            old_route=sides[0].route(difference.before),
            new_route=sides[1].route(difference.after),
            taken=difference.excluded,
            authorities=setting.authorities,
            example=_example(setting, difference),
            unmatched_objects=tuple(
                dict.fromkeys(
                    chain(sides[0].unmatched_objects(difference.before), sides[1].unmatched_objects(difference.after))
                )
            ),
        )


def _example(setting: Setting, difference: RouteDifference) -> Request | None:
    """Return the example of a difference; None if the proxy changes it before routing, so that it takes other routes."""
    if difference.values is None:
        return None
    request = request_of(difference.values, setting)
    parts = parts_of(request, setting)
    if parts is None or any(fits(match, parts) for match in difference.excluded):
        return None
    return request if all(fits(rule.match, parts) for rule in (difference.before, difference.after)) else None
