"""Render a sidecar's inbound side: the connections that reach its pod (R61 to R76; D15, D21).

Access rules are placed where a change takes effect at once. For HTTP they are in the routes, which Envoy selects again
for each request. For TCP they are filter chains of a listener inside the proxy, one for each caller (`inbound_connections`).
When a chain changes, Envoy ends its connections within seconds (`--drain-time-s`). Other connections must survive, so
filter chains keep their names and contents.
The fields of the listener itself change only when the TLS inspector is added or removed. In TLS mode `plain`
there is no inspector: Envoy must not wait for the client's first bytes, so that a server that speaks first is reached
at once.
"""

from collections.abc import Iterator
from typing import NamedTuple

from headgate.envoy import inbound_chains, inbound_connections, names, pb, probes, rbac, tap, traffic_stats
from headgate.envoy.clusters import CONNECT_SECONDS, HTTP_OPTIONS, address
from headgate.envoy.config import CLUSTER, LISTENER, ROUTES, Part
from headgate.envoy.http_connections import http_options, route_configuration
from headgate.envoy.inbound_chains import InboundSettings
from headgate.envoy.names import InboundRef
from headgate.envoy.node_ids import INBOUND_PORT, OUTBOUND_PORT
from headgate.envoy.resilience import unlimited
from headgate.envoy.retries import RETRIES, UNPROCESSED, by_method
from headgate.envoy.traces import of_workload
from headgate.envoy.upstream_tls import AUDITED, DENIED_HEADER, UNREACHED_HEADER
from headgate.model.access import Access
from headgate.model.authorization import enforced
from headgate.model.mutual_tls import TlsMode
from headgate.model.routing import InboundPort, Protocol, Workload

TLS_DETECTION_SECONDS = 5
"""The number of seconds that Envoy waits for a connection's first bytes, to detect TLS. After this time, Envoy treats
the connection as plaintext. A shorter time would treat TLS connections of slow clients as plaintext."""
RETRY_MS = 1  # the application is on the same machine
_OWN_PORTS = (OUTBOUND_PORT, INBOUND_PORT)
_PROXY_HEADERS = (DENIED_HEADER, UNREACHED_HEADER)
"""Response headers that only the sidecar may add. If the application sends them, the sidecar removes them."""


class _Network(NamedTuple):
    """The listener addresses that differ between IPv4 and IPv6.

    `wildcard` is the address on which the sidecar listens. `source` is the address from which the sidecar calls the
    application; packets from this address are never redirected (envoy.md, part 2).
    """

    wildcard: str
    source: str


_V4 = _Network("0.0.0.0", "127.0.0.6")  # noqa: S104  # only in the pod's network namespace
_V6 = _Network("::", "::6")


def parts(workload: Workload, domain: str, trust_domain: str) -> Iterator[Part]:
    """Yield all resources of a workload's inbound side except its certificates (`secrets.parts`).

    `domain` is the suffix of the SNI with which clients name a Service.
    """
    settings = InboundSettings(
        tls_mode=workload.tls_mode,
        access=workload.access,
        domain=domain,
        trust_domain=trust_domain,
        redirected=workload.capture != "explicit",
        traces=of_workload(workload),
    )
    if workload.capture == "explicit":
        yield from _explicit(workload, settings)
    else:
        yield from _transparent(workload, settings)


def _explicit(workload: Workload, settings: InboundSettings) -> Iterator[Part]:
    for port in workload.ports:
        for protocol, idle in _idle_times(port).items():
            name = names.inbound(InboundRef(port.port, protocol))
            yield Part(CLUSTER, name, cluster, (name, protocol, idle, (workload.address, port.application)))
        yield from _routes(port, settings.access)
        yield from _callers(port, settings)
        name = names.inbound(InboundRef(port.port))
        needs = _needed_clusters((port,), settings)
        yield Part(LISTENER, name, listener, (name, workload.address, port, settings), needs)


def _transparent(workload: Workload, settings: InboundSettings) -> Iterator[Part]:
    network = _V6 if ":" in workload.address else _V4
    ports = tuple(port for port in workload.ports if port.port not in _OWN_PORTS and port.protocols)
    yield Part(CLUSTER, names.OTHER_PORTS, transparent_cluster, (names.OTHER_PORTS, Protocol.TCP, 0, network.source))
    for port in ports:
        for protocol, idle in _idle_times(port).items():
            name = names.inbound(InboundRef(port.port, protocol))
            yield Part(CLUSTER, name, transparent_cluster, (name, protocol, idle, network.source))
        yield from _routes(port, settings.access)
        yield from _callers(port, settings)
    needs = (names.OTHER_PORTS, *_needed_clusters(ports, settings))
    yield Part(LISTENER, names.INBOUND, transparent_listener, (network.wildcard, ports, settings), needs)
    yield from probes.parts(workload, wildcard=network.wildcard, source=network.source)


def _protocols(port: InboundPort) -> tuple[Protocol, ...]:
    return tuple(dict.fromkeys(spoken.protocol for spoken in port.protocols))


def _idle_times(port: InboundPort) -> dict[Protocol, int]:
    """Return the idle time of connections to the application for each protocol; 0 is the default."""
    return {spoken.protocol: spoken.idle for spoken in port.protocols}


def _routes(port: InboundPort, access: Access) -> Iterator[Part]:
    for protocol in _protocols(port):
        if protocol.is_http:
            name = names.inbound(InboundRef(port.port, protocol))
            yield Part(ROUTES, name, routes, (name, port, access), (name,))


def _callers(port: InboundPort, settings: InboundSettings) -> Iterator[Part]:
    for ref in _tcp(port) if _has_callers(settings) else ():
        yield from inbound_connections.parts(ref, port, settings.access)


def _has_callers(settings: InboundSettings) -> bool:
    """Return whether the identity of a client decides about its connection."""
    return settings.access.closed and settings.tls_mode.accepts_tls


def _tcp(port: InboundPort) -> Iterator[InboundRef]:
    return (InboundRef(port.port, protocol) for protocol in _protocols(port) if not protocol.is_http)


def _needed_clusters(ports: tuple[InboundPort, ...], settings: InboundSettings) -> tuple[str, ...]:
    """Return the clusters that the listener itself names: those of TCP ports. Routes name the HTTP clusters."""
    refs = [ref for port in ports for ref in _tcp(port)]
    return tuple(names.callers(ref) if _has_callers(settings) else names.inbound(ref) for ref in refs)


def listener(name: str, host: str, port: InboundPort, settings: InboundSettings) -> pb.Listener:
    """Return the listener of an explicit sidecar on a port of its pod."""
    return _listener(name, address(host, port.port), settings.tls_mode, inbound_chains.port_chains(settings, port))


def transparent_listener(wildcard: str, ports: tuple[InboundPort, ...], settings: InboundSettings) -> pb.Listener:
    """Return the listener of a transparent sidecar, to which connections to all ports of the pod are redirected.

    Connections to the sidecar's own ports are closed, because they would loop forever.
    """
    chains = [chain for port in ports for chain in inbound_chains.port_chains(settings, port, match_port=True)]
    chains += [inbound_chains.closed_port_chain(port) for port in _OWN_PORTS]
    chains += inbound_chains.other_ports_chains(settings)
    message = _listener(names.INBOUND, address(wildcard, INBOUND_PORT), settings.tls_mode, chains)
    original = pb.ListenerFilter(name="envoy.filters.listener.original_dst", typed_config=pb.pack(pb.OriginalDst()))
    message.listener_filters.insert(0, original)
    return message


def _listener(
    name: str, where: pb.Address, tls_mode: TlsMode, chains: Iterator[pb.FilterChain] | list[pb.FilterChain]
) -> pb.Listener:
    tls = pb.ListenerFilter(name="envoy.filters.listener.tls_inspector", typed_config=pb.pack(pb.TlsInspector()))
    return pb.Listener(
        name=name,
        address=where,
        filter_chains=chains,
        listener_filters=[tls] if tls_mode.accepts_tls else [],
        listener_filters_timeout=pb.Duration(seconds=TLS_DETECTION_SECONDS),
        continue_on_listener_filters_timeout=True,
        traffic_direction=pb.TrafficDirection.INBOUND,
        enable_reuse_port=pb.BoolValue(value=False),  # off, as on all listeners (listeners.py)
        access_log=[traffic_stats.denied_handshakes()] if tls_mode.accepts_tls else [],
    )


def routes(name: str, port: InboundPort, access: Access) -> pb.RouteConfiguration:
    """Return the route to the application, with the access rules for requests.

    A request is repeated if the application refused its stream, and an idempotent one also if the application closed the
    connection. If the application accepts no connection, the caller's proxy can try other pods: a response that permits it has the header `upstream_tls.UNREACHED_HEADER`.
    """
    filtered = pb.HttpRbac(rules=rbac.request_rules(access, port), track_per_rule_stats=True)
    if access.audited:
        filtered.shadow_rules.CopyFrom(rbac.request_rules(enforced(access), port))
    rules = pb.HttpRbacPerRoute(rbac=filtered)
    # without retries after a failed connection: the caller's proxy can try other pods
    at_once = pb.RetryPolicy.RetryBackOff(base_interval=pb.Duration(nanos=RETRY_MS * 1_000_000))
    retry = pb.RetryPolicy(retry_on=UNPROCESSED, num_retries=pb.UInt32Value(value=RETRIES), retry_back_off=at_once)
    action = pb.RouteAction(cluster=name, timeout=pb.Duration(seconds=0), retry_policy=retry)
    several = [*by_method(pb.Route(match=pb.RouteMatch(prefix="/"), route=action))]
    host = pb.VirtualHost(name=name, domains=["*"], routes=several, typed_per_filter_config={tap.RBAC: pb.pack(rules)})
    configuration = route_configuration(name, [host])
    configuration.response_headers_to_remove.extend(_PROXY_HEADERS)  # before Envoy adds headers
    if access.audited:
        configuration.response_headers_to_add.append(_audit_mark())
    return configuration


def _audit_mark() -> pb.HeaderValueOption:
    """Return the response header of a request that the workload would refuse without the audit.

    Envoy adds no header whose value is empty.
    """
    value = f"%CEL(metadata.filter_metadata['{tap.RBAC}'].shadow_engine_result == 'denied' ? '{AUDITED}' : '')%"
    return pb.HeaderValueOption(header=pb.HeaderValue(key=DENIED_HEADER, value=value))


def cluster(name: str, protocol: Protocol, idle_ms: int, where: tuple[str, int]) -> pb.Cluster:
    """Return the cluster of the application behind an explicit sidecar."""
    message = _cluster(name, protocol, idle_ms)
    endpoint = pb.LbEndpoint(endpoint=pb.Endpoint(address=address(*where)))
    message.type = pb.Cluster.DiscoveryType.STATIC
    message.load_assignment.CopyFrom(
        pb.ClusterLoadAssignment(cluster_name=name, endpoints=[pb.LocalityLbEndpoints(lb_endpoints=[endpoint])])
    )
    return message


def transparent_cluster(name: str, protocol: Protocol, idle_ms: int, source: str) -> pb.Cluster:
    """Return the cluster that connects to the original destination, behind a transparent sidecar.

    The application sees `source` as the client's address. Packets from this address are not redirected again.
    """
    message = _cluster(name, protocol, idle_ms)
    message.type = pb.Cluster.DiscoveryType.ORIGINAL_DST
    message.lb_policy = pb.Cluster.LbPolicy.CLUSTER_PROVIDED
    message.upstream_bind_config.CopyFrom(pb.BindConfig(source_address=pb.SocketAddress(address=source, port_value=0)))
    return message


def _cluster(name: str, protocol: Protocol, idle_ms: int) -> pb.Cluster:
    options = http_options(protocol, idle_ms=idle_ms) if protocol.is_http else None
    return pb.Cluster(
        name=name,
        connect_timeout=pb.Duration(seconds=CONNECT_SECONDS),
        circuit_breakers=unlimited(),
        typed_extension_protocol_options={HTTP_OPTIONS: pb.pack(options)} if options else None,
    )
