"""What proxies do with what is sent through them, as parts: by Service, so that they can be shared, and chosen between.

A gateway listens on the Services' addresses and is an HTTP proxy besides. A sidecar is one of two things. As an HTTP proxy
it has no listener but that one. Where connections are redirected to it, one listener takes them all, and hands each to
the listener of the address that it was meant for (`bind_to_port: false`): a listener for each Service port, and one for
each pod of Services without an address. So a change of one Service touches its own resources, here as there.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Literal, NamedTuple

from headgate.envoy import clusters, connections, dns, gateways, listeners, mirrors, names, routes, secrets
from headgate.envoy.config import CLUSTER, ENDPOINTS, LISTENER, ROUTES, SCOPES, SECRET
from headgate.envoy.parts import Part
from headgate.envoy.peers import Peer
from headgate.envoy.plan import ClusterPlan, Planner, RoutePlan, WeightedName, plan
from headgate.envoy.view import OUTBOUND_PORT, SIDECAR, View
from headgate.model.authorities import pod_authorities
from headgate.model.refs import PortRef
from headgate.model.routing import Endpoint, Frontend, RouteTable, Split, Target
from headgate.model.workloads import server_name

EVERYWHERE = "0.0.0.0"  # noqa: S104  # in the pod's own network namespace
EVERYWHERE6 = "::"
Listening = Literal["bound", "redirected", "no"]


class Group(NamedTuple):
    """Parts that are made together, by a function of its arguments alone: the whole is a key of the memo."""

    make: Callable[..., Iterable[Part]]
    arguments: tuple[Hashable, ...]


def alone(part: Part) -> Group:
    """Return a group of one part."""
    return Group(_only, (part,))


def _only(part: Part) -> tuple[Part]:
    return (part,)


# --- of Services


def of_tables(view: View) -> Iterator[tuple[str, Part]]:
    """Yield what belongs to the ports of each Service, with the Service: part by part, as they change apart."""
    for table in view.mesh.tables:
        route, wanted = plan(table, view.ready, view.protocols, domain=view.tls_domain, opaque=view.opaque)
        for part in (*_of_table(view, table, route), *_of_clusters(view, wanted)):
            yield table.ref.service, part


def of_frontends(view: View) -> Iterator[tuple[str, Group]]:
    """Yield the rest of each Service, which rarely changes: listeners for requests, and the spellings of its name."""
    home = view.home if view.node.role != SIDECAR else ""  # a sidecar's short names are not everybody's: `of_home`
    for front in view.mesh.frontends:
        heard = tuple(ref.port for ref in _refs(front) if ref in view.addresses and view.has_requests(ref))
        listening: Listening = "redirected" if view.is_redirected else "bound"
        yield front.service, Group(_listeners, (front.service, front.address, heard, listening))
        if view.node.proxy_port:
            yield front.service, Group(_spellings, (front, view.mesh.domain, home))


def of_home(view: View) -> Iterator[tuple[str, Group]]:
    """Yield the short names of the Services in a sidecar's own namespace."""
    if view.node.role == SIDECAR and view.node.proxy_port:
        for front in view.mesh.frontends:
            if front.service.startswith(f"{view.home}/"):
                yield front.service, Group(_short_spellings, (front, view.mesh.domain))


def _refs(front: Frontend) -> list[PortRef]:
    return [PortRef(front.service, port) for port in front.ports]


def _of_table(view: View, table: RouteTable, route: RoutePlan) -> Iterator[Part]:
    if table.protocol.is_http:
        yield _of_requests(view, table.ref, route)
    else:
        yield from _of_connections(view, table.ref, route)
    for endpoint in view.proxied.get(table.ref, ()):
        yield from _of_proxied_pod(view, table, endpoint)
    for endpoint in view.pods.get(table.ref, ()):
        yield from _of_pod(view, table, route, endpoint)


def _of_requests(view: View, ref: PortRef, route: RoutePlan) -> Part:
    if not view.node.proxy_port:
        return Part(ROUTES, route.name, routes.routes, (route,), route.clusters)
    address = view.addresses.get(ref, "")
    authority = f"{address}:{ref.port}" if address else ""
    return Part(ROUTES, route.name, connections.with_tunnel, (route, authority), route.clusters)


def _of_connections(view: View, ref: PortRef, route: RoutePlan) -> Iterator[Part]:
    if address := view.addresses.get(ref):
        render = connections.redirected_listener if view.is_redirected else connections.listener
        arguments = (route.name, address, ref.port, route.connections)
        yield Part(LISTENER, route.name, render, arguments, route.clusters)
    yield Part(ROUTES, route.name, connections.routes, (route,), route.clusters)


def _of_pod(view: View, table: RouteTable, route: RoutePlan, endpoint: Endpoint) -> Iterator[Part]:
    """Yield what is for clients that have chosen a pod: they get it, unless an object says where the Service's traffic goes.

    To the pod they go connection by connection, whatever they speak.
    """
    name, where = names.pod(table.ref, endpoint.address, endpoint.port), (endpoint.address, endpoint.port)
    if not _is_plain(table):
        if table.protocol.is_http:
            yield Part(LISTENER, name, listeners.redirected_listener, (name, *where, route.name))
        else:
            shares = route.connections
            yield Part(LISTENER, name, connections.redirected_listener, (name, *where, shares), route.clusters)
        return
    cluster = names.PASSTHROUGH
    if endpoint.identity and view.tls_domain:
        cluster = names.direct(table.ref, endpoint.identity)
        said = server_name(table.ref, view.tls_domain)
        peer = Peer(identity=endpoint.identity, server_name=said, opaque=table.ref in view.opaque)
        yield Part(CLUSTER, cluster, clusters.direct, (cluster, peer))
    share = WeightedName(cluster=cluster, weight=1)
    yield Part(LISTENER, name, connections.pod_listener, (name, endpoint, share), (cluster,))


def _of_proxied_pod(view: View, table: RouteTable, endpoint: Endpoint) -> Iterator[Part]:
    """Yield what is for clients of the HTTP proxy that call a pod by its own address: that pod, without any route."""
    name = names.pod(table.ref, endpoint.address, endpoint.port)
    planner = Planner(table.ref, {table.ref: (endpoint,)}, view.spoken, domain=view.tls_domain, opaque=view.opaque)
    route, cluster = planner.pod(table.ref, name)
    yield from _of_clusters(view, (cluster,))
    if table.protocol.is_http:
        yield Part(ROUTES, name, connections.with_tunnel, (route, ""), route.clusters)
    else:
        yield Part(ROUTES, name, connections.routes, (route,), route.clusters)
    for authority in pod_authorities(endpoint):
        scope = names.host(table.ref, authority)
        yield Part(SCOPES, scope, routes.scope, (scope, authority, name))


def _is_plain(table: RouteTable) -> bool:
    """Say whether nothing is said about a Service port: its traffic goes to its own endpoints."""
    own = Split(targets=(Target(ref=table.ref, weight=1),))
    return all(route.origin is None and route.split == own for route in table.routes)


def _of_clusters(view: View, wanted: Iterable[ClusterPlan]) -> Iterator[Part]:
    for item in wanted:
        if item.is_resolved:
            yield Part(CLUSTER, item.name, dns.cluster, (item,))
            continue
        render = mirrors.mirror_cluster if item.copies else clusters.cluster
        yield Part(CLUSTER, item.name, render, (item.name, item.protocol, item.peers, view.mesh.connection_seconds))
        yield Part(ENDPOINTS, item.name, clusters.assignment, (item,))


def _listeners(service: str, address: str, ports: tuple[int, ...], listening: Listening) -> Iterator[Part]:
    for port in ports:
        name = names.outbound(PortRef(service, port))
        if listening == "bound":
            yield Part(LISTENER, name, listeners.service_listener, (name, address, port))
        else:
            yield Part(LISTENER, name, listeners.redirected_listener, (name, address, port, name))


def _spellings(front: Frontend, domain: str, home: str) -> Iterator[Part]:
    for authority, port in names.authorities(front, domain, home):
        ref = PortRef(front.service, port)
        name = names.host(ref, authority)
        yield Part(SCOPES, name, routes.scope, (name, authority, names.outbound(ref)))


def _short_spellings(front: Frontend, domain: str) -> Iterator[Part]:
    namespace, _ = front.service.split("/")
    common = {part.name for part in _spellings(front, domain, "")}
    yield from (part for part in _spellings(front, domain, namespace) if part.name not in common)


# --- of the proxy


def of_gateways(view: View) -> Iterator[Part]:
    """Yield what belongs to the Gateways' ports, which are the gateway's alone."""
    for port in view.mesh.gateways if view.node.role != SIDECAR else ():
        found = gateways.plan(port, view.ready, view.protocols, domain=view.tls_domain, opaque=view.opaque)
        yield from _of_clusters(view, found.clusters)
        listener = found.listener
        yield Part(LISTENER, listener.name, gateways.listener, (listener,), listener.needs)
        for hosts in found.routes:
            yield Part(ROUTES, hosts.name, gateways.configuration, (hosts,), hosts.needs)
        for _, shown in port.tls:
            name = names.secret(shown.secret)
            yield Part(SECRET, name, secrets.certificate, (name, shown.chain, shown.key))


def of_node(view: View) -> Iterator[Part]:
    """Yield what one proxy has for itself: its certificate, and where it takes what it is to send."""
    if view.credential:
        yield from secrets.parts(view.credential)
    if view.is_redirected:
        yield from _captured(view)
    if view.node.proxy_port:
        yield from _proxy(view)
    if view.node.probe:
        yield Part(LISTENER, names.PROBE, listeners.probe_listener, (view.node.probe, view.home, _confined(view)))


def _proxy(view: View) -> Iterator[Part]:
    where = (view.node.proxy_address, view.node.proxy_port)
    if view.node.role == SIDECAR:
        yield Part(LISTENER, names.PROXY, listeners.proxy_listener, (*where, view.home, _confined(view)))
    else:
        yield Part(CLUSTER, names.TUNNEL, connections.tunnel, ())
        yield Part(LISTENER, names.PROXY, listeners.proxy_listener, where)


def _confined(view: View) -> str:
    """Return the identity of a sidecar that knows only what it may call; empty for all other proxies."""
    return view.identity if view.node.role == SIDECAR and view.mesh.scoped else ""


def _captured(view: View) -> Iterator[Part]:
    """Yield what takes redirected connections; with `passthrough` those that are meant for nobody who is known go on."""
    yield Part(CLUSTER, names.PASSTHROUGH, clusters.passthrough, (names.PASSTHROUGH,))
    share = WeightedName(cluster=names.PASSTHROUGH if view.mesh.passthrough else names.MISSING, weight=1)
    needs = (names.PASSTHROUGH,) if view.mesh.passthrough else ()
    own = view.workload.address if view.workload else ""
    networks = {names.OUTBOUND: EVERYWHERE}
    if any(":" in address for address in (own, *(front.address for front in view.mesh.frontends))):
        networks[names.OUTBOUND6] = EVERYWHERE6
    for name, host in networks.items():
        yield Part(LISTENER, name, connections.capture, (name, host, OUTBOUND_PORT, share), needs)
