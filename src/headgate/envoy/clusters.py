"""Render clusters and their endpoints."""

from collections.abc import Callable, Hashable

from msgspec import structs

from headgate.envoy import names, pb, resilience, upstream_tls
from headgate.envoy.cluster_plan import ClusterPlan, Locality
from headgate.envoy.config_source import ads
from headgate.envoy.http_connections import http_options
from headgate.envoy.upstream_tls import ExpectedPeer, Peer, are_proxies
from headgate.model.resilience import Resilience
from headgate.model.routing import Endpoint, Protocol

HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
METADATA_KEY = "headgate"  # the key of headgate's endpoint metadata
CONNECT_SECONDS = 5
FULL_SHARE = 10_000_000
"""Envoy's overprovisioning factor in percent. A backend keeps its whole share while one of its 100,000 endpoints is not
ejected. With Envoy's default of 140, a backend with one of two endpoints ejected would lose 30 % of its share."""
MIRROR_MAX_CONNECTIONS = 100
MIRROR_MAX_PENDING = 100
MIRROR_MAX_REQUESTS = 200
"""The limits of one mirror cluster for connections, pending requests and active requests. Envoy drops further mirrored
requests, so the cost of a hanging mirror is limited."""
MIRROR_TIMEOUT_SECONDS = 10  # timeout of a mirrored request, which no client cancels
MIRROR_CONNECT_SECONDS = 1
QUERY_SECONDS = 2
QUERY_TRIES = 2
"""The timeout of a DNS query, and the number of attempts. Envoy waits for the first answer before a DNS cluster becomes
active. These limits bound how long a name without an answer delays other clusters."""
NOT_EJECTING = Resilience(ejection=None)
NO_PEER = ExpectedPeer(identity="", server_name="")


def cluster(
    name: str,
    protocol: Protocol = Protocol.HTTP,
    peers: tuple[Peer, ...] = (),
    seconds: int = 0,
    settings: Resilience = NOT_EJECTING,
) -> pb.Cluster:
    """Return an EDS cluster with weighted localities; `protocol` is the upstream protocol.

    If there are `peers`, their endpoints are called with TLS, and HTTP connections to proxies are closed after `seconds`.
    """
    idle = settings.timeouts.idle
    options = http_options(protocol, to_proxy=are_proxies(peers), idle_ms=idle) if protocol.is_http else None
    if options and are_proxies(peers):
        options = with_max_age(options, seconds)
    message = pb.Cluster(
        name=name,
        type=pb.Cluster.DiscoveryType.EDS,
        eds_cluster_config=pb.Cluster.EdsClusterConfig(eds_config=ads()),
        common_lb_config=pb.Cluster.CommonLbConfig(
            locality_weighted_lb_config=pb.Cluster.CommonLbConfig.LocalityWeightedLbConfig(),
        ),
        typed_extension_protocol_options={HTTP_OPTIONS: pb.pack(options)} if options else None,
    )
    resilience.apply(message, settings)
    if peers:
        upstream_tls.add_transport_sockets(message, peers)
    return message


def mirror_cluster(
    name: str,
    protocol: Protocol,
    peers: tuple[Peer, ...] = (),
    seconds: int = 0,
    settings: Resilience = NOT_EJECTING,
) -> pb.Cluster:
    """Return the cluster of a mirror. Its own limits keep a hanging mirror from affecting other traffic."""
    mirror = cluster(name, protocol, peers, seconds, settings)
    threshold = pb.CircuitBreakers.Thresholds(
        max_connections=pb.UInt32Value(value=MIRROR_MAX_CONNECTIONS),
        max_pending_requests=pb.UInt32Value(value=MIRROR_MAX_PENDING),
        max_requests=pb.UInt32Value(value=MIRROR_MAX_REQUESTS),
    )
    mirror.circuit_breakers.CopyFrom(pb.CircuitBreakers(thresholds=[threshold]))
    mirror.connect_timeout.CopyFrom(pb.Duration(seconds=MIRROR_CONNECT_SECONDS))
    options = http_options(protocol, to_proxy=are_proxies(peers))
    options.common_http_protocol_options.max_stream_duration.CopyFrom(pb.Duration(seconds=MIRROR_TIMEOUT_SECONDS))
    if are_proxies(peers):
        with_max_age(options, seconds)
    mirror.typed_extension_protocol_options[HTTP_OPTIONS].CopyFrom(pb.pack(options))
    return mirror


def counting_sizes(render: Callable[..., pb.Cluster], *arguments: Hashable) -> pb.Cluster:
    """Return a cluster whose response sizes are counted: `cluster` or `mirror_cluster` with some arguments."""
    return _with_sizes(render(*arguments))


def _with_sizes(message: pb.Cluster) -> pb.Cluster:
    message.track_cluster_stats.CopyFrom(pb.TrackClusterStats(request_response_sizes=True))
    return message


def dns_cluster(plan: ClusterPlan) -> pb.Cluster:
    """Return the cluster of an external DNS name (R5), which the proxy resolves.

    Each new connection uses an address from the latest DNS answer.
    """
    render = mirror_cluster if plan.is_mirror else cluster
    # One endpoint has all addresses, so none is ejected.
    settings = structs.replace(plan.settings, ejection=None)
    message = render(plan.name, plan.protocol, plan.peers, 0, settings)
    message.ClearField("eds_cluster_config")
    message.ClearField("common_lb_config")
    message.cluster_type.CopyFrom(
        pb.Cluster.CustomClusterType(name="envoy.cluster.dns", typed_config=pb.pack(_resolution()))
    )
    message.load_assignment.CopyFrom(load_assignment(plan))
    return _with_sizes(message) if plan.counts_sizes else message


def _resolution() -> pb.DnsCluster:
    resolver = pb.CaresDnsResolver(
        # The name is fully qualified; search domains would change it.
        dns_resolver_options=pb.DnsResolverOptions(no_default_search_domain=True),
        query_timeout_seconds=pb.UInt64Value(value=QUERY_SECONDS),
        query_tries=pb.UInt32Value(value=QUERY_TRIES),
    )
    return pb.DnsCluster(
        respect_dns_ttl=True,
        typed_dns_resolver_config=pb.TypedExtensionConfig(
            name="envoy.network.dns_resolver.cares", typed_config=pb.pack(resolver)
        ),
        dns_lookup_family=pb.DnsLookupFamily.ALL,
        all_addresses_in_single_endpoint=True,
    )


def direct_cluster(name: str, peer: ExpectedPeer) -> pb.Cluster:
    """Return the cluster that connects to a connection's original destination by mTLS with one peer."""
    message = passthrough_cluster(name)
    message.transport_socket.CopyFrom(upstream_tls.transport_socket(peer))
    return message


def identity_cluster() -> pb.Cluster:
    """Return a cluster without endpoints that makes a proxy load its certificate and roots before it needs them.

    The first endpoint with an identity reaches the old version of its cluster too, which has no TLS, and which serves until
    the new version has its certificates. Without this cluster a proxy requested them only then, and sent requests in plaintext
    meanwhile.
    """
    return pb.Cluster(
        name=names.IDENTITY,
        type=pb.Cluster.DiscoveryType.STATIC,
        transport_socket=upstream_tls.transport_socket(NO_PEER),
    )


def passthrough_cluster(name: str) -> pb.Cluster:
    """Return the cluster that connects to a connection's original destination without changes."""
    return pb.Cluster(
        name=name,
        type=pb.Cluster.DiscoveryType.ORIGINAL_DST,
        lb_policy=pb.Cluster.LbPolicy.CLUSTER_PROVIDED,
        connect_timeout=pb.Duration(seconds=CONNECT_SECONDS),
    )


def with_max_age(options: pb.HttpProtocolOptions, seconds: int) -> pb.HttpProtocolOptions:
    """Limit the age of a cluster's connections in seconds, so that they end before certificates expire.

    Envoy closes such a connection after its last request. TCP connections have no limit: they belong to the
    application, and are authenticated when they begin.
    """
    options.common_http_protocol_options.max_connection_duration.CopyFrom(pb.Duration(seconds=seconds))
    return options


def load_assignment(plan: ClusterPlan) -> pb.ClusterLoadAssignment:
    """Return the endpoints of a cluster."""
    ref = names.parse(plan.name)
    localities = [_locality(plan, locality, ref.service if ref else "") for locality in plan.localities_by_tls]
    policy = pb.ClusterLoadAssignment.Policy(overprovisioning_factor=pb.UInt32Value(value=FULL_SHARE))
    # A DNS cluster and a cluster with one backend have no shares to keep.
    return pb.ClusterLoadAssignment(
        cluster_name=plan.name, endpoints=localities, policy=policy if localities[1:] else None
    )


def _locality(plan: ClusterPlan, locality: Locality, service: str) -> pb.LocalityLbEndpoints:
    """Return the endpoints of one backend. An endpoint's hostname is its pod, for statistics only (traffic_stats.py).

    The metadata of an endpoint names its backend, unless that is `service`, which the cluster's name contains. The root
    of the backend follows, if there is one (`traffic_stats`).

    In a cluster with peers, the metadata of the locality names the peer of all its endpoints. If the endpoints have
    different peers, the metadata of each endpoint names its peer. Envoy reads the metadata of a locality only when it
    creates an endpoint. That suffices: the metadata changes only when the cluster's peers change, and then Envoy
    creates a new cluster.
    """
    namespace, name = locality.backend.split("/")
    is_in_name = locality.backend == service and not locality.root
    backend = None if is_in_name else _backend(f"{locality.backend} {locality.root}".rstrip())
    peers = locality.peers
    message = pb.LocalityLbEndpoints(
        locality=pb.Locality(region=namespace, zone=name, sub_zone="tls" if locality.uses_tls else ""),
        # Without a weight, the endpoints get only the sessions that they have (`sessions`).
        load_balancing_weight=pb.UInt32Value(value=locality.weight) if locality.weight else None,
        priority=1 if locality.standby else None,
        lb_endpoints=[
            pb.LbEndpoint(
                endpoint=pb.Endpoint(address=address(endpoint.address, endpoint.port), hostname=pod_and_port(endpoint)),
                metadata=backend,
            )
            for endpoint in locality.endpoints
        ],
    )
    if plan.peers and len(peers) == 1:
        message.metadata.filter_metadata[upstream_tls.MATCH_METADATA].CopyFrom(upstream_tls.peer_metadata(*peers))
    elif plan.peers:
        for lb_endpoint, endpoint in zip(message.lb_endpoints, locality.endpoints, strict=True):
            lb_endpoint.metadata.filter_metadata[upstream_tls.MATCH_METADATA].CopyFrom(
                upstream_tls.peer_metadata(locality.peer(endpoint))
            )
    return message


def _backend(text: str) -> pb.Metadata:
    return pb.Metadata(filter_metadata={METADATA_KEY: pb.Struct(fields={"backend": pb.Value(string_value=text)})})


def pod_and_port(endpoint: Endpoint) -> str:
    """Return an endpoint's pod as `namespace/name:port` and a space; empty if the endpoint is not a pod."""
    return f"{endpoint.workload}:{endpoint.port} " if endpoint.workload else ""


def address(host: str, port: int) -> pb.Address:
    """Return a TCP address."""
    return pb.Address(socket_address=pb.SocketAddress(address=host, port_value=port))


def wildcard_address(host: str, port: int) -> pb.Address:
    """Return an address of all interfaces. If `host` is `::`, it includes the IPv4 addresses."""
    return pb.Address(socket_address=pb.SocketAddress(address=host, port_value=port, ipv4_compat=":" in host))
