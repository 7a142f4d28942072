"""Send metrics and spans to the user's OpenTelemetry collector: a second stats sink of a bootstrap, and a cluster for spans."""

from google.protobuf import json_format

from headgate.envoy import descriptors, names, pb
from headgate.envoy.bootstrap import host_discovery
from headgate.envoy.stats_sink import NODE
from headgate.option import HostPort, parse_collector

CLUSTER = "collector"
SERVICE_NAME = "headgate-proxy"
_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_CONNECT_SECONDS = 5
MAX_EXPORTS = 8
"""The number of messages with spans that a proxy sends at the same time. It drops the spans of further ones."""


def with_collector(bootstrap: bytes, collector: HostPort | None) -> bytes:
    """Return a bootstrap (JSON) with a stats sink for the collector; unchanged if `collector` is None."""
    if collector is None:
        return bootstrap
    message = json_format.Parse(bootstrap, pb.Bootstrap(), descriptor_pool=descriptors.pool())
    message.static_resources.clusters.append(_cluster(CLUSTER, collector))
    own = pb.OpenTelemetrySink.FromString(message.stats_sinks[0].typed_config.value)
    own.grpc_service.envoy_grpc.cluster_name = CLUSTER
    for detector in own.resource_detectors:
        attributes = {
            NODE: message.node.id,
            "service.name": SERVICE_NAME,
            "service.instance.id": message.node.id,
        }
        detector.typed_config.CopyFrom(pb.pack(pb.StaticResourceDetector(attributes=attributes)))
    message.stats_sinks.append(pb.StatsSink(name=message.stats_sinks[0].name, typed_config=pb.pack(own)))
    return json_format.MessageToJson(
        message, descriptor_pool=descriptors.pool(), preserving_proto_field_name=True, sort_keys=True
    ).encode()


def traces_cluster(address: str) -> pb.Cluster:
    """Return the cluster for the span collector at `HOST:PORT`."""
    collector = parse_collector(address)
    if collector is None:
        raise ValueError("the collector of spans has no address")
    limit = pb.UInt32Value(value=MAX_EXPORTS)
    cluster = _cluster(names.TRACES, collector)
    cluster.circuit_breakers.thresholds.append(
        pb.CircuitBreakers.Thresholds(max_requests=limit, max_pending_requests=limit)
    )
    return cluster


def _cluster(name: str, collector: HostPort) -> pb.Cluster:
    address = pb.Address(socket_address=pb.SocketAddress(address=collector.host, port_value=collector.port))
    endpoint = pb.LbEndpoint(endpoint=pb.Endpoint(address=address))
    cluster = pb.Cluster(
        name=name,
        type=host_discovery(collector.host),
        connect_timeout=pb.Duration(seconds=_CONNECT_SECONDS),
        # By default Envoy uses only the IPv6 address of `localhost`, where many collectors do not listen.
        dns_lookup_family=pb.Cluster.DnsLookupFamily.V4_PREFERRED,
        # By default Envoy requests no configuration until the name is resolved or rejected. While DNS did not answer,
        # it requested none in 60 s.
        wait_for_warm_on_init=pb.BoolValue(value=False),
        load_assignment=pb.ClusterLoadAssignment(
            cluster_name=name, endpoints=[pb.LocalityLbEndpoints(lb_endpoints=[endpoint])]
        ),
    )
    explicit = pb.HttpProtocolOptions.ExplicitHttpConfig(http2_protocol_options=pb.Http2ProtocolOptions())
    cluster.typed_extension_protocol_options[_OPTIONS].CopyFrom(
        pb.pack(pb.HttpProtocolOptions(explicit_http_config=explicit))
    )
    return cluster
