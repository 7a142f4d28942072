"""Clusters and their endpoints."""

from headgate.envoy import pb
from headgate.envoy.plan import ClusterPlan, Locality
from headgate.envoy.sources import ads
from headgate.model.protocols import Protocol

HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
METADATA = "headgate"  # the key of what headgate says about an endpoint
CONNECT_SECONDS = 5
UNLIMITED = 2**32 - 1  # a mesh proxy does not cap what applications do; limits are the user's to set


def cluster(name: str, protocol: Protocol = Protocol.HTTP) -> pb.Cluster:
    """Return a cluster whose endpoints come in weighted localities; `protocol` is what they are called with."""
    threshold = pb.CircuitBreakers.Thresholds(
        max_connections=pb.UInt32Value(value=UNLIMITED),
        max_pending_requests=pb.UInt32Value(value=UNLIMITED),
        max_requests=pb.UInt32Value(value=UNLIMITED),
        max_retries=pb.UInt32Value(value=UNLIMITED),
    )
    options = http_options(protocol)
    return pb.Cluster(
        name=name,
        type=pb.Cluster.DiscoveryType.EDS,
        eds_cluster_config=pb.Cluster.EdsClusterConfig(eds_config=ads()),
        connect_timeout=pb.Duration(seconds=CONNECT_SECONDS),
        common_lb_config=pb.Cluster.CommonLbConfig(
            locality_weighted_lb_config=pb.Cluster.CommonLbConfig.LocalityWeightedLbConfig(),
        ),
        circuit_breakers=pb.CircuitBreakers(thresholds=[threshold]),
        typed_extension_protocol_options={HTTP_OPTIONS: pb.pack(options)} if options else None,
    )


def http_options(protocol: Protocol) -> pb.HttpProtocolOptions | None:
    """Return how a cluster speaks HTTP (R65); None is HTTP/1.1, and what is not looked at."""
    http2 = pb.Http2ProtocolOptions()
    if protocol is Protocol.HTTP2:
        explicit = pb.HttpProtocolOptions.ExplicitHttpConfig(http2_protocol_options=http2)
        return pb.HttpProtocolOptions(explicit_http_config=explicit)
    if protocol is Protocol.HTTP_ANY:
        same = pb.HttpProtocolOptions.UseDownstreamHttpConfig(
            http_protocol_options=pb.Http1ProtocolOptions(), http2_protocol_options=http2
        )
        return pb.HttpProtocolOptions(use_downstream_protocol_config=same)
    return None


def assignment(plan: ClusterPlan) -> pb.ClusterLoadAssignment:
    """Return the endpoints of a cluster."""
    return pb.ClusterLoadAssignment(
        cluster_name=plan.name, endpoints=[_locality(locality) for locality in plan.localities]
    )


def _locality(locality: Locality) -> pb.LocalityLbEndpoints:
    namespace, name = locality.backend.split("/")
    return pb.LocalityLbEndpoints(
        locality=pb.Locality(region=namespace, zone=name),
        load_balancing_weight=pb.UInt32Value(value=locality.weight),
        lb_endpoints=[
            pb.LbEndpoint(
                endpoint=pb.Endpoint(address=address(endpoint.address, endpoint.port)),
                metadata=_metadata(backend=locality.backend, pod=endpoint.workload),
            )
            for endpoint in locality.endpoints
        ],
    )


def _metadata(**texts: str) -> pb.Metadata:
    fields = {key: pb.Value(string_value=text) for key, text in texts.items() if text}
    return pb.Metadata(filter_metadata={METADATA: pb.Struct(fields=fields)})


def address(host: str, port: int) -> pb.Address:
    """Return a TCP address."""
    return pb.Address(socket_address=pb.SocketAddress(address=host, port_value=port))
