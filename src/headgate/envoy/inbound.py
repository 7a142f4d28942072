"""A sidecar's inbound side: what others send to its pod (R61 to R76; D15, D21).

What a client may do lives where a change bites at once: for requests in the routes, which open connections look up anew;
for connections in the filter chain, whose connections end within seconds (`--drain-time-s`) when it changes. So that
nothing else ends with them, chains have stable names and contents (`inbound_chains`), and a listener's own fields stay as
they are but for what looks for TLS: in the plain tls_mode nothing waits for a client's first bytes, and a server that speaks
first is heard at once.
"""

from collections.abc import Iterator
from itertools import chain, product
from typing import NamedTuple

from headgate.envoy import inbound_chains, names, pb, probes, rbac, traffic_stats
from headgate.envoy.clusters import CONNECT_SECONDS, HTTP_OPTIONS, UNLIMITED, address, http_options
from headgate.envoy.config import CLUSTER, LISTENER, ROUTES, Part
from headgate.envoy.inbound_chains import InboundSettings
from headgate.envoy.names import InboundRef
from headgate.envoy.upstream_tls import DENIED_HEADER, UNREACHED_HEADER
from headgate.envoy.view import INBOUND_PORT, OUTBOUND_PORT
from headgate.model.routing import Access, InboundPort, Protocol, TlsMode, Workload

TLS_DETECTION_SECONDS = 5
"""How long a client may be silent until it counts as plaintext, where TLS is possible. Less would take slow ones for it."""
_OWN_PORTS = (OUTBOUND_PORT, INBOUND_PORT)
_XFCC_WORDS = ("x", "forwarded", "client", "cert")
"""The words of the header that tells the application who calls: Envoy writes it, and drops what a client wrote there."""
_XFCC_VARIANTS = tuple(
    "".join(chain.from_iterable(zip(_XFCC_WORDS, (*marks, ""), strict=True)))
    for marks in product("-_", repeat=len(_XFCC_WORDS) - 1)
    if "_" in marks
)
"""Its other spellings, which many applications (those behind CGI or WSGI) take for the same header."""

_PROXY_HEADERS = (DENIED_HEADER, UNREACHED_HEADER)
"""Response headers that only this proxy may write: an application's own mean nothing."""


class _Network(NamedTuple):
    """What depends on the version of IP: all addresses, and whose packets no redirection touches (envoy.md, part 2)."""

    everywhere: str
    source: str


_V4 = _Network("0.0.0.0", "127.0.0.6")  # noqa: S104  # the pod's own network namespace
_V6 = _Network("::", "::6")


def parts(workload: Workload, domain: str, trust_domain: str) -> Iterator[Part]:
    """Yield everything of a workload's inbound side but its certificates (`secrets.parts`).

    `domain` ends the server names by which clients say which Service they mean.
    """
    side = InboundSettings(tls_mode=workload.tls_mode, access=workload.access, domain=domain, trust_domain=trust_domain)
    if workload.capture == "explicit":
        yield from _explicit(workload, side)
    else:
        yield from _transparent(workload, side)


def _explicit(workload: Workload, side: InboundSettings) -> Iterator[Part]:
    for port in workload.ports:
        for protocol in _protocols(port):
            name = names.inbound(InboundRef(port.port, protocol))
            yield Part(CLUSTER, name, cluster, (name, protocol, workload.address, port.application))
        yield from _routes(port, side.access)
        name = names.inbound(InboundRef(port.port))
        yield Part(LISTENER, name, listener, (name, workload.address, port, side), _needed_clusters((port,)))


def _transparent(workload: Workload, side: InboundSettings) -> Iterator[Part]:
    network = _V6 if ":" in workload.address else _V4
    ports = tuple(port for port in workload.ports if port.port not in _OWN_PORTS and port.spoken)
    yield Part(CLUSTER, names.OTHER_PORTS, transparent_cluster, (names.OTHER_PORTS, Protocol.TCP, network.source))
    for port in ports:
        for protocol in _protocols(port):
            name = names.inbound(InboundRef(port.port, protocol))
            yield Part(CLUSTER, name, transparent_cluster, (name, protocol, network.source))
        yield from _routes(port, side.access)
    needs = (names.OTHER_PORTS, *_needed_clusters(ports))
    yield Part(LISTENER, names.INBOUND, transparent_listener, (network.everywhere, ports, side), needs)
    yield from probes.parts(workload, everywhere=network.everywhere, source=network.source)


def _protocols(port: InboundPort) -> tuple[Protocol, ...]:
    return tuple(dict.fromkeys(spoken.protocol for spoken in port.spoken))


def _routes(port: InboundPort, access: Access) -> Iterator[Part]:
    for protocol in _protocols(port):
        if protocol.is_http:
            name = names.inbound(InboundRef(port.port, protocol))
            yield Part(ROUTES, name, routes, (name, port, access), (name,))


def _needed_clusters(ports: tuple[InboundPort, ...]) -> tuple[str, ...]:
    """Return the clusters that listeners name themselves: those for connections."""
    return tuple(
        names.inbound(InboundRef(port.port, protocol))
        for port in ports
        for protocol in _protocols(port)
        if not protocol.is_http
    )


def listener(name: str, host: str, port: InboundPort, side: InboundSettings) -> pb.Listener:
    """Return the listener of an explicit sidecar on a port of its pod's address."""
    return _listener(name, address(host, port.port), side.tls_mode, inbound_chains.port_chains(side, port))


def transparent_listener(everywhere: str, ports: tuple[InboundPort, ...], side: InboundSettings) -> pb.Listener:
    """Return the listener of a transparent sidecar, with what is redirected to it from every port of the pod.

    Its own ports lead nowhere, or a connection to one of them would go round in circles for ever.
    """
    chains = [found for port in ports for found in inbound_chains.port_chains(side, port, among_others=True)]
    chains += [inbound_chains.closed_port_chain(port) for port in _OWN_PORTS]
    chains += inbound_chains.other_ports_chains(side)
    message = _listener(names.INBOUND, address(everywhere, INBOUND_PORT), side.tls_mode, chains)
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
        enable_reuse_port=pb.BoolValue(value=False),  # as on other listeners (listeners.py)
        access_log=[traffic_stats.denied_handshakes()] if tls_mode.accepts_tls else [],
    )


def routes(name: str, port: InboundPort, access: Access) -> pb.RouteConfiguration:
    """Return the one route to the application, and who may take it.

    Nothing is tried again here: whoever called has other pods to turn to. What may be tried again is marked
    (`upstream_tls.UNREACHED_HEADER`).
    """
    rules = pb.HttpRbacPerRoute(rbac=pb.HttpRbac(rules=rbac.request_rules(access, port), track_per_rule_stats=True))
    route = pb.Route(
        match=pb.RouteMatch(prefix="/"),
        route=pb.RouteAction(cluster=name, timeout=pb.Duration(seconds=0)),
        typed_per_filter_config={inbound_chains.RBAC: pb.pack(rules)},
    )
    host = pb.VirtualHost(name=name, domains=["*"], routes=[route])
    return pb.RouteConfiguration(
        name=name,
        virtual_hosts=[host],
        request_headers_to_remove=_XFCC_VARIANTS,
        response_headers_to_remove=_PROXY_HEADERS,
    )


def cluster(name: str, protocol: Protocol, host: str, port: int) -> pb.Cluster:
    """Return the cluster of the process behind an explicit sidecar."""
    message = _cluster(name, protocol)
    endpoint = pb.LbEndpoint(endpoint=pb.Endpoint(address=address(host, port)))
    message.type = pb.Cluster.DiscoveryType.STATIC
    message.load_assignment.CopyFrom(
        pb.ClusterLoadAssignment(cluster_name=name, endpoints=[pb.LocalityLbEndpoints(lb_endpoints=[endpoint])])
    )
    return message


def transparent_cluster(name: str, protocol: Protocol, source: str) -> pb.Cluster:
    """Return the cluster of what a transparent sidecar stands before: where the client wanted to go.

    `source` is whom the application sees, and whose packets are not redirected again.
    """
    message = _cluster(name, protocol)
    message.type = pb.Cluster.DiscoveryType.ORIGINAL_DST
    message.lb_policy = pb.Cluster.LbPolicy.CLUSTER_PROVIDED
    message.upstream_bind_config.CopyFrom(pb.BindConfig(source_address=pb.SocketAddress(address=source, port_value=0)))
    return message


def _cluster(name: str, protocol: Protocol) -> pb.Cluster:
    limit = pb.UInt32Value(value=UNLIMITED)
    threshold = pb.CircuitBreakers.Thresholds(
        max_connections=limit, max_pending_requests=limit, max_requests=limit, max_retries=limit
    )
    options = http_options(protocol)
    return pb.Cluster(
        name=name,
        connect_timeout=pb.Duration(seconds=CONNECT_SECONDS),
        circuit_breakers=pb.CircuitBreakers(thresholds=[threshold]),
        typed_extension_protocol_options={HTTP_OPTIONS: pb.pack(options)} if options else None,
    )
