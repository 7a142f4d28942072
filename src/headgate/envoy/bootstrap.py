"""What a proxy is started with: who it is, where headgate is, and nothing that could be delivered later."""

from google.protobuf import json_format

from headgate.envoy import messages, pb
from headgate.envoy.sources import ads
from headgate.resources.regexes import LARGEST_PROGRAM

XDS_CLUSTER = "xds"
KEPT_STATS = (  # a proxy with many clusters keeps half the memory when the rest is left out
    pb.StringMatcher(prefix="server."),
    pb.StringMatcher(prefix="cluster_manager."),
    pb.StringMatcher(prefix="listener_manager."),
    pb.StringMatcher(prefix="control_plane."),
    pb.StringMatcher(prefix="http."),
    pb.StringMatcher(suffix=".upstream_rq_total"),
)
CONNECTIONS = 100_000  # downstream, so that a flood ends in refusals and not in the kernel's out-of-memory killer


REGEX_MARGIN = 2  # Envoy compiles a pattern a little differently than the check of an object did


def bootstrap(*, node_id: str, xds_socket: str, admin_socket: str) -> bytes:
    """Return the bootstrap as JSON. Both sockets are paths of unix sockets that only their user can open."""
    message = pb.Bootstrap(
        node=pb.Node(id=node_id, cluster="headgate"),
        admin=pb.Admin(address=pb.Address(pipe=pb.Pipe(path=admin_socket, mode=0o600))),
        static_resources=pb.Bootstrap.StaticResources(clusters=[_xds_cluster(xds_socket)]),
        dynamic_resources=pb.Bootstrap.DynamicResources(
            lds_config=ads(),
            cds_config=ads(),
            ads_config=pb.ApiConfigSource(
                api_type=pb.ApiConfigSource.ApiType.DELTA_GRPC,
                transport_api_version=pb.ApiVersion.V3,
                grpc_services=[
                    pb.GrpcService(envoy_grpc=pb.GrpcService.EnvoyGrpc(cluster_name=XDS_CLUSTER)),
                ],
            ),
        ),
        stats_config=pb.StatsConfig(
            stats_matcher=pb.StatsMatcher(inclusion_list=pb.ListStringMatcher(patterns=KEPT_STATS))
        ),
        layered_runtime=_runtime(),
        overload_manager=pb.OverloadManager(
            resource_monitors=[
                pb.ResourceMonitor(
                    name="envoy.resource_monitors.global_downstream_max_connections",
                    typed_config=pb.pack(
                        pb.DownstreamConnectionsMonitor(max_active_downstream_connections=CONNECTIONS)
                    ),
                )
            ]
        ),
    )
    return json_format.MessageToJson(
        message,
        descriptor_pool=messages.pool(),
        preserving_proto_field_name=True,
        sort_keys=True,  # maps have no order of their own, and an Envoy is adopted only when its bootstrap is the same
    ).encode()


def _runtime() -> pb.LayeredRuntime:
    """Let a proxy take every expression that an object may have; by itself it refuses those of more than 100 steps.

    A header with several values is one value, joined by commas, whatever its name: by itself Envoy joins the headers that
    it knows well and looks at each value of the others.
    """
    limit = pb.Value(number_value=LARGEST_PROGRAM * REGEX_MARGIN)
    fields = {
        "re2.max_program_size.error_level": limit,
        "envoy.reloadable_features.match_headers_individually": pb.Value(bool_value=False),
    }
    layer = pb.RuntimeLayer(name="headgate", static_layer=pb.Struct(fields=fields))
    return pb.LayeredRuntime(layers=[layer])


def _xds_cluster(path: str) -> pb.Cluster:
    options = pb.HttpProtocolOptions(
        explicit_http_config=pb.HttpProtocolOptions.ExplicitHttpConfig(
            http2_protocol_options=pb.Http2ProtocolOptions(
                connection_keepalive=pb.KeepaliveSettings(
                    interval=pb.Duration(seconds=30), timeout=pb.Duration(seconds=5)
                )
            )
        )
    )
    endpoint = pb.LbEndpoint(endpoint=pb.Endpoint(address=pb.Address(pipe=pb.Pipe(path=path))))
    return pb.Cluster(
        name=XDS_CLUSTER,
        type=pb.Cluster.DiscoveryType.STATIC,
        connect_timeout=pb.Duration(seconds=1),
        load_assignment=pb.ClusterLoadAssignment(
            cluster_name=XDS_CLUSTER, endpoints=[pb.LocalityLbEndpoints(lb_endpoints=[endpoint])]
        ),
        typed_extension_protocol_options={
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": pb.pack(options),
        },
    )
