"""Render the outbound side of proxies: separate parts for each Service, which proxies of one kind share.

A gateway listens on the Services' addresses and is an HTTP proxy too. An explicit sidecar is an HTTP proxy only. A
transparent sidecar gets redirected connections: one listener accepts them all and hands each to the listener of its
original destination (`bind_to_port: false`). There is such a listener for each Service port and, for Services without
an address, for each pod. So a change to one Service changes only its own resources.
"""

from collections.abc import Iterable, Iterator

from msgspec import structs

from headgate.envoy import (
    clusters,
    collector_export,
    gateways,
    inside,
    listeners,
    localhost,
    names,
    probes,
    routes,
    secrets,
    tcp_proxy,
)
from headgate.envoy.backends import Backends, RoutedPort
from headgate.envoy.cluster_plan import ClusterPlan
from headgate.envoy.config import CHAIN, CLUSTER, ENDPOINTS, LISTENER, ROUTES, SCOPES, SECRET, Part
from headgate.envoy.node_ids import OUTBOUND_PORT, SIDECAR
from headgate.envoy.planned_routes import ClusterWeight, RoutePlan
from headgate.envoy.port_plan import plan_service_port
from headgate.envoy.route_plan import Planner
from headgate.envoy.traces import SpanResource, of_gateways, of_workload
from headgate.envoy.upstream_tls import ExpectedPeer
from headgate.envoy.view import (
    EVERYWHERE,
    EVERYWHERE6,
    GatewayView,
    HostView,
    MeshSettings,
    Node,
    PortView,
    ServiceSettings,
    ServiceView,
    client_namespace,
)
from headgate.model import pod_names
from headgate.model.authorities import DEFAULT_NAMESPACE, pod_authorities, server_name
from headgate.model.gateway_pods import gateway_pod_port
from headgate.model.routing import Endpoint, Frontend, GatewayPort, PortRef, RouteTable, Split, Target, Workload

# --- resources of Services


def of_service(service: ServiceView) -> Iterator[Part]:
    """Yield the resources of a Service: routes, clusters and listeners of its ports, and the scopes of its names."""
    for port in service.ports:
        yield from _of_port(port, service.settings)
    if service.settings.kind.http_proxy:
        # a sidecar gets the short names of its own namespace from `short_names`
        short_names_of = "" if service.settings.kind.role == SIDECAR else DEFAULT_NAMESPACE
        yield from _spellings(service.front, service.settings.domain, short_names_of)
    if service.settings.kind.localhost_port:
        yield from localhost.of_service(service.front, tuple(port.table for port in service.ports))


def short_names(front: Frontend, domain: str) -> Iterator[Part]:
    """Yield the scopes of a Service's names that are valid in its own namespace only."""
    namespace, _ = front.service.split("/")
    common = {part.name for part in _spellings(front, domain, "")}
    yield from (part for part in _spellings(front, domain, namespace) if part.name not in common)


def short_names_of_pods(named_pods: Iterable[tuple[PortRef, tuple[Endpoint, ...]]]) -> Iterator[Part]:
    """Yield the scopes of pods' names that are valid in their own namespace only.

    Such a name (`db-0.db`) can be that of a Service in another namespace too. The scope has the name of the Service's scope,
    so that it replaces it.
    """
    for ref, several in named_pods:
        for pod in several:
            service = PortRef(f"{ref.service.partition('/')[2]}/{pod.hostname}", pod.port)
            for authority in pod_names.with_port(pod_names.short_name(ref, pod), pod):
                scope = names.host_scope(service, authority)
                yield Part(SCOPES, scope, routes.host_scope, (scope, authority, names.pod(ref, pod.address, pod.port)))


def _spellings(front: Frontend, domain: str, short_names_of: str) -> Iterator[Part]:
    for authority, port in names.authorities(front, domain, short_names_of) if front.ports else ():
        ref = PortRef(front.service, port)
        name = names.host_scope(ref, authority)
        yield Part(SCOPES, name, routes.host_scope, (name, authority, names.outbound(ref)))


def _of_port(port: PortView, settings: ServiceSettings) -> Iterator[Part]:
    table, backends = port.table, Backends(port.backends)
    route, cluster_plans = plan_service_port(
        table, backends.ready, backends.protocols, domain=settings.tls_domain, opaque=backends.opaque
    )
    if table.protocol.is_http:
        yield from _of_requests(port, route, settings)
    else:
        yield from _of_connections(port, route, settings)
    for endpoint in dict.fromkeys((*port.proxy_pods, *port.named_pods)):
        yield from _of_proxied_pod(port, endpoint, backends, settings)
    for endpoint in port.direct_pods:
        yield from _of_pod(port, route, endpoint, backends, settings)
    yield from _of_clusters(cluster_plans, settings)


def _of_requests(port: PortView, route: RoutePlan, settings: ServiceSettings) -> Iterator[Part]:
    where = (port.address, port.port)
    if settings.kind.is_redirected:
        yield from _of_redirected_requests(route.name, where, route) if port.address else ()
        return
    if settings.kind.localhost_port:
        yield Part(ROUTES, route.name, localhost.service_routes, (route,), route.clusters)
    elif settings.kind.http_proxy:
        yield Part(ROUTES, route.name, tcp_proxy.routes_with_tunnel, (route,), route.clusters)
    else:
        yield Part(ROUTES, route.name, routes.routes, (route,), route.clusters)
    if port.address:
        yield Part(LISTENER, route.name, listeners.service_listener, (route.name, *where, settings.traces))


def _of_redirected_requests(
    name: str, where: tuple[str, int], route: RoutePlan, *named: tuple[tuple[str, ...], RoutePlan, ClusterPlan]
) -> Iterator[Part]:
    """Yield the scope with the routes of one address, and the listener that uses the shared filter chain.

    `named` has hosts with a route of their own: the names of a pod, its route and its cluster.
    """
    own = tuple((hosts, plan) for hosts, plan, _ in named)
    needs = tuple(dict.fromkeys((*route.clusters, *(cluster.name for *_, cluster in named))))
    yield Part(SCOPES, name, routes.address_scope, (name, *where, route, own), needs)
    yield Part(LISTENER, name, listeners.redirected_listener, (name, *where), route.clusters)


def _of_connections(port: PortView, route: RoutePlan, settings: ServiceSettings) -> Iterator[Part]:
    if port.address:
        render = tcp_proxy.redirected_listener if settings.kind.is_redirected else tcp_proxy.listener
        arguments = (route.name, port.address, port.port, route.connections, route.server_names)
        yield Part(LISTENER, route.name, render, arguments, route.clusters)
    if settings.kind.http_proxy and route.server_names:
        name = names.tunnel(route.name)
        yield Part(CLUSTER, name, inside.cluster, (name,))
        yield Part(LISTENER, name, tcp_proxy.tunnel_listener, (name, route.name, route.server_names), route.clusters)
        yield Part(ROUTES, route.name, tcp_proxy.connect_routes, (route,), (name,))
    elif settings.kind.http_proxy:
        yield Part(ROUTES, route.name, tcp_proxy.connect_routes, (route,), route.clusters)


def _of_pod(
    port: PortView, route: RoutePlan, endpoint: Endpoint, backends: Backends, settings: ServiceSettings
) -> Iterator[Part]:
    """Yield the resources for redirected connections to a pod's own address.

    The connection goes to that pod, unless an object routes the traffic of its Service. Envoy forwards it to the pod as
    TCP, whatever the protocol of the port. On a TCP port, a connection to a pod that has a name may be a call by that name, which
    no object routes (D37).
    """
    table, where = port.table, (endpoint.address, endpoint.port)
    name = names.pod(table.ref, *where)
    if not _is_plain(table) and (table.protocol.is_http or not endpoint.hostname):
        if table.protocol.is_http:
            named = tuple(_by_name(port, endpoint, backends, settings))
            yield from _of_redirected_requests(name, where, route, *named)
            yield from _of_clusters((cluster for *_, cluster in named), settings)
        else:
            arguments = (name, *where, route.connections, route.server_names)
            yield Part(LISTENER, name, tcp_proxy.redirected_listener, arguments, route.clusters)
        return
    cluster = names.PASSTHROUGH
    if endpoint.identity and settings.tls_domain:
        cluster = names.direct_cluster(table.ref, endpoint.identity)
        said = server_name(table.ref, settings.tls_domain)
        peer = ExpectedPeer(identity=endpoint.identity, server_name=said, opaque=table.ref in backends.opaque)
        yield Part(CLUSTER, cluster, clusters.direct_cluster, (cluster, peer))
    share = ClusterWeight(cluster=cluster, weight=1)
    yield Part(LISTENER, name, tcp_proxy.pod_listener, (name, endpoint, share), (cluster,))


def _by_name(
    port: PortView, endpoint: Endpoint, backends: Backends, settings: ServiceSettings
) -> Iterator[tuple[tuple[str, ...], RoutePlan, ClusterPlan]]:
    """Yield the names of a pod with the route to it, which is without the routes of its Service (D37)."""
    if endpoint.hostname:
        ref = port.table.ref
        called = [pod_names.short_name(ref, endpoint), *pod_names.full_names(ref, endpoint, settings.domain)]
        hosts = tuple(host for name in called for host in (name, f"{name}:{endpoint.port}"))
        yield hosts, *_plan_pod(port, endpoint, backends, settings)


def _plan_pod(
    port: PortView, endpoint: Endpoint, backends: Backends, settings: ServiceSettings
) -> tuple[RoutePlan, ClusterPlan]:
    ref = port.table.ref
    planner = Planner(
        ref, {ref: (endpoint,)}, backends.pod_protocols, domain=settings.tls_domain, opaque=backends.opaque
    )
    return planner.plan_pod(port.table, names.pod(ref, endpoint.address, endpoint.port))


def _of_proxied_pod(
    port: PortView, endpoint: Endpoint, backends: Backends, settings: ServiceSettings
) -> Iterator[Part]:
    """Yield the resources for clients of the HTTP proxy that call a pod by its address or name, without any routes."""
    table = port.table
    name = names.pod(table.ref, endpoint.address, endpoint.port)
    route, cluster = _plan_pod(port, endpoint, backends, settings)
    yield from _of_clusters((cluster,), settings)
    if table.protocol.is_http:
        yield Part(ROUTES, name, tcp_proxy.routes_with_tunnel, (route,), route.clusters)
    else:
        yield Part(ROUTES, name, tcp_proxy.connect_routes, (route,), route.clusters)
    spelled = [*pod_authorities(endpoint)] if endpoint in port.proxy_pods else []
    for full_name in pod_names.full_names(table.ref, endpoint, settings.domain):
        spelled += pod_names.with_port(full_name, endpoint)
    for authority in spelled:
        scope = names.host_scope(table.ref, authority)
        yield Part(SCOPES, scope, routes.host_scope, (scope, authority, name))


def _is_plain(table: RouteTable) -> bool:
    """Return whether no object routes a Service port: its traffic goes to its own endpoints."""
    own = Split(targets=(Target(ref=table.ref, weight=1),))
    return not table.server_names and all(route.origin is None and route.split == own for route in table.routes)


def _of_clusters(plans: Iterable[ClusterPlan], settings: ServiceSettings) -> Iterator[Part]:
    for plan in plans:
        yield from map(secrets.of_policy, plan.servers)
        if plan.uses_dns:
            yield Part(CLUSTER, plan.name, clusters.dns_cluster, (plan,))
            continue
        render = clusters.mirror_cluster if plan.is_mirror else clusters.cluster
        arguments = (plan.name, plan.protocol, plan.peers, settings.connection_seconds, plan.settings)
        if plan.counts_sizes:
            yield Part(CLUSTER, plan.name, clusters.counting_sizes, (render, *arguments))
        else:
            yield Part(CLUSTER, plan.name, render, arguments)
        yield Part(ENDPOINTS, plan.name, clusters.load_assignment, (plan,))


# --- resources of Gateways


def of_gateway(view: GatewayView) -> Iterator[Part]:
    """Yield the resources of a Gateway port, without those of hosts that have a scope of their own."""
    port, planner = view.port, _planner(view.port, view.backends, view.settings)
    listener = structs.replace(gateways.plan_listener(planner, port), traces=view.settings.traces)
    scope = gateways.plan_wildcards(planner, port) if port.protocol.is_http else None
    yield from _of_clusters(planner.clusters.values(), view.settings)
    if view.settings.kind.gateway:  # clients reach the pods of a Gateway by the address of its Service
        wildcard = EVERYWHERE6 if ":" in port.address else EVERYWHERE
        listener = structs.replace(listener, address=wildcard, port=gateway_pod_port(port.port))
    yield Part(LISTENER, listener.name, gateways.listener, (listener,), listener.needs)
    if scope:
        yield Part(SCOPES, scope.name, gateways.scope, (scope,), scope.needs)
    for shown in (*(certificate for _, certificate in port.tls), *((port.client,) if port.client else ())):
        name = names.secret(shown.secret)
        yield Part(SECRET, name, secrets.certificate, (name, shown.chain, shown.key))
    if clients := port.client_certificates:
        name = names.authorities_of(names.gateway_port(port))
        yield Part(SECRET, name, secrets.roots, (name, clients.authorities))


def of_host(view: HostView) -> Iterator[Part]:
    """Yield the resources for a Gateway port's host: its scope, and the clusters of its routes."""
    planner = _planner(view.port, view.backends, view.settings)
    scope = gateways.plan_host(planner, view.port, view.host)
    yield from _of_clusters(planner.clusters.values(), view.settings)
    yield Part(SCOPES, scope.name, gateways.scope, (scope,), scope.needs)


def _planner(port: GatewayPort, backends: Iterable[RoutedPort], settings: ServiceSettings) -> Planner:
    indexed, ref = Backends(backends), names.gateway_port(port)
    return Planner(ref, indexed.ready, indexed.protocols, domain=settings.tls_domain, opaque=indexed.opaque)


# --- resources of one proxy


def of_proxy(node: Node, workload: Workload | None, settings: MeshSettings) -> Iterator[Part]:
    """Yield the listeners that only this proxy has, and the clusters of these listeners."""
    namespace, identity = client_namespace(node), ""
    if node.role != SIDECAR:
        yield Part(LISTENER, names.SCOPES, listeners.scopes_listener, ())
    if node.gateway or node.service:
        yield Part(LISTENER, names.PROBES, probes.listener, (EVERYWHERE6 if settings.has_ipv6 else EVERYWHERE, (), ()))
    if node.role == SIDECAR and not node.proxy_port:
        yield from _captured(
            settings,
            of_workload(workload),
            has_ipv6=settings.has_ipv6 or (workload is not None and ":" in workload.address),
        )
    if node.role == SIDECAR and workload and settings.scoped:
        identity = workload.identity
    if node.proxy_port:
        yield from _proxy(node, namespace, identity, _spans(node, workload, settings))
    if settings.collector:
        yield Part(CLUSTER, names.TRACES, collector_export.traces_cluster, (settings.collector,))
    with_traces = bool(settings.collector)
    if node.try_socket and node.proxy_port:
        yield Part(LISTENER, names.TRY, listeners.try_listener, (node.try_socket, namespace, identity, with_traces))
    elif node.try_socket:
        yield Part(LISTENER, names.TRY, listeners.redirected_try_listener, (node.try_socket, identity, with_traces))


def _spans(node: Node, workload: Workload | None, settings: MeshSettings) -> SpanResource | None:
    """Return what a proxy sends the spans of its own listeners as."""
    if node.role == SIDECAR or not settings.collector:
        return of_workload(workload)
    return of_gateways(node.gateway or node.service)


def _proxy(node: Node, namespace: str, identity: str, spans: SpanResource | None) -> Iterator[Part]:
    """Yield the HTTP proxy. A sidecar with `identity` has only the Services that it may call."""
    where = (node.proxy_address, node.proxy_port)
    yield Part(CLUSTER, names.TUNNEL, inside.cluster, (names.TUNNEL,))
    yield Part(LISTENER, names.TUNNEL, listeners.tunnel_listener, (spans,))
    yield Part(LISTENER, names.PROXY, listeners.proxy_listener, (*where, namespace, identity, spans))
    if node.localhost_port:
        yield Part(LISTENER, names.LOCALHOST, listeners.localhost_listener, (node.localhost_port, spans))


def _captured(settings: MeshSettings, spans: SpanResource | None, *, has_ipv6: bool) -> Iterator[Part]:
    """Yield the listeners for redirected connections; with `passthrough`, those to unknown addresses are forwarded."""
    yield Part(CHAIN, names.SHARED_CHAIN, listeners.shared_chain, (spans,))
    yield Part(LISTENER, names.SHARED_CHAIN, listeners.shared_chain_listener, ())
    yield Part(CLUSTER, names.PASSTHROUGH, clusters.passthrough_cluster, (names.PASSTHROUGH,))
    share = ClusterWeight(cluster=names.PASSTHROUGH if settings.passthrough else names.MISSING, weight=1)
    needs = (names.PASSTHROUGH,) if settings.passthrough else ()
    networks = {names.OUTBOUND: EVERYWHERE} | ({names.OUTBOUND6: EVERYWHERE6} if has_ipv6 else {})
    for name, host in networks.items():
        yield Part(LISTENER, name, tcp_proxy.outbound_listener, (name, host, OUTBOUND_PORT, share), needs)
