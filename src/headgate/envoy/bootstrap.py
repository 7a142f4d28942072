"""The Envoy bootstrap: the node ID, the connection to headgate, and the list of statistics to keep.

The token and the trusted root certificates change while a proxy runs, so each is in a file of its own. The bootstrap
names a *source* for each: a small file with the path of the secret and the directory to watch. Envoy watches only
secrets that are configured by a source. The code that writes these files sets their permissions.
"""

import ipaddress
from pathlib import PurePosixPath

from google.protobuf import json_format
from google.protobuf.message import Message

from headgate.envoy import cluster_stats, descriptors, names, pb, stats_sink, tap
from headgate.envoy.config_source import XDS_CLUSTER, ads
from headgate.resources.meta import Value
from headgate.resources.regexes import LARGEST_PROGRAM

KEPT_STATS = (  # dropping all other statistics halves the memory of a proxy with many clusters
    pb.StringMatcher(prefix="server."),
    pb.StringMatcher(prefix="cluster_manager."),
    pb.StringMatcher(prefix="listener_manager."),
    pb.StringMatcher(prefix="control_plane."),
    pb.StringMatcher(prefix=f"cluster.{XDS_CLUSTER}.ssl."),  # TLS errors of the connection to headgate
    pb.StringMatcher(prefix="http."),
    pb.StringMatcher(suffix=".upstream_rq_total"),
    # Envoy answers TCP and gRPC probes by these gauges (`probes`).
    pb.StringMatcher(safe_regex=pb.RegexMatcher(regex=rf"cluster\.{names.PROBES}/.*\.membership_(healthy|total)")),
    pb.StringMatcher(safe_regex=pb.RegexMatcher(regex=rf"cluster\.mirror/.*\{cluster_stats.PENDING_OVERFLOW}")),
    pb.StringMatcher(suffix=cluster_stats.DATAGRAMS_DROPPED),
    pb.StringMatcher(contains="rbac."),  # the RBAC counters of HTTP and network filters
    pb.StringMatcher(
        safe_regex=pb.RegexMatcher(
            regex=r"listener\..*\.ssl\.(handshake|connection_error|no_certificate|fail_verify_.*)"
        )
    ),
)
CREDENTIAL = "token"  # `CREDENTIAL` and `ROOTS` have the names of the secrets in the source files
ROOTS = "roots"
MAX_DOWNSTREAM_CONNECTIONS = 100_000  # Envoy refuses further connections, which could exhaust its memory
FIRST_RECONNECT_MS, LAST_RECONNECT_S = 500, 3  # shortest and longest pause between attempts to connect
# Seconds in which a thread of Envoy does not react until Envoy counts it as stuck. The threads wake twice in the shorter time to
# show that they run: with Envoy's 0.2 s, that took a third of the processor time of an idle proxy.
WATCHDOG_MISS_S, WATCHDOG_MEGAMISS_S = 2, 5
_SOL_SOCKET, _SO_MARK = 1, 36  # socket(7)
REGEX_MARGIN = 2  # factor by which Envoy's RE2 programs may be larger than those that admission measures


class XdsAddress(Value, frozen=True, kw_only=True):
    """The TCP address of headgate, for connections with TLS. headgate's certificate must contain the DNS name `name`.

    `roots` is the path of the file with the output of `roots_source`.
    """

    host: str
    port: int
    name: str
    roots: str


def token_source(token: str) -> bytes:
    """Return the JSON of the source for the token in the file `token`.

    Envoy reads the token again when another file is renamed to `token`.
    """
    path = PurePosixPath(token)
    content = pb.DataSource(filename=str(path), watched_directory=pb.WatchedDirectory(path=str(path.parent)))
    return _source(pb.Secret(name=CREDENTIAL, generic_secret=pb.GenericSecret(secret=content)))


def roots_source(roots: str) -> bytes:
    """Return the JSON of the source for the trusted root certificates in the PEM file `roots`."""
    path = PurePosixPath(roots)
    trusted = pb.CertificateValidationContext(
        trusted_ca=pb.DataSource(filename=str(path)),
        watched_directory=pb.WatchedDirectory(path=str(path.parent)),
    )
    return _source(pb.Secret(name=ROOTS, validation_context=trusted))


def bootstrap(
    *, node_id: str, admin_socket: str, xds_socket: str = "", xds: XdsAddress | None = None, token: str = ""
) -> bytes:
    """Return the bootstrap as JSON. Equal arguments give equal bytes.

    `admin_socket` and `xds_socket` have paths of unix sockets that only their owner can open. `token` is the path of the
    file with the output of `token_source`. Raises ValueError unless exactly one of `xds_socket` and `xds` is set.
    """
    if bool(xds_socket) == bool(xds):
        raise ValueError("set exactly one of xds_socket and xds")
    cluster = _at_address(xds) if xds else _at_socket(xds_socket)
    cluster.typed_extension_protocol_options["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"].CopyFrom(
        pb.pack(_http2(token))
    )
    message = pb.Bootstrap(
        node=pb.Node(id=node_id, cluster="headgate"),
        admin=pb.Admin(address=pb.Address(pipe=pb.Pipe(path=admin_socket, mode=0o600))),
        static_resources=pb.Bootstrap.StaticResources(clusters=[cluster]),
        dynamic_resources=pb.Bootstrap.DynamicResources(
            lds_config=ads(),
            cds_config=ads(),
            ads_config=pb.ApiConfigSource(
                api_type=pb.ApiConfigSource.ApiType.DELTA_GRPC,
                transport_api_version=pb.ApiVersion.V3,
                grpc_services=[_xds_service()],
            ),
        ),
        stats_config=pb.StatsConfig(
            stats_matcher=pb.StatsMatcher(inclusion_list=pb.ListStringMatcher(patterns=KEPT_STATS))
        ),
        # creates the statistics of a cluster on first use, which saves 4 KiB per cluster
        deferred_stat_options=pb.Bootstrap.DeferredStatOptions(enable_deferred_creation_stats=True),
        watchdogs=pb.Watchdogs(main_thread_watchdog=_watchdog(), worker_watchdog=_watchdog()),
        layered_runtime=_runtime(),
        bootstrap_extensions=[  # enables listeners inside the proxy
            pb.TypedExtensionConfig(
                name="envoy.bootstrap.internal_listener", typed_config=pb.pack(pb.InternalListener())
            )
        ],
        overload_manager=pb.OverloadManager(
            resource_monitors=[
                pb.ResourceMonitor(
                    name="envoy.resource_monitors.global_downstream_max_connections",
                    typed_config=pb.pack(
                        pb.DownstreamConnectionsMonitor(max_active_downstream_connections=MAX_DOWNSTREAM_CONNECTIONS)
                    ),
                )
            ]
        ),
    )
    seconds = stats_sink.CLUSTER_SECONDS if xds else stats_sink.LOCAL_SECONDS
    stats_sink.add_stats_sink(message, cluster=XDS_CLUSTER, seconds=seconds)
    return _json(message)


def with_mark(bootstrap: bytes, mark: int) -> bytes:
    """Return a bootstrap (JSON) of a proxy whose packets to upstreams have a mark (SO_MARK); unchanged if the mark is 0."""
    if not mark:
        return bootstrap
    message = json_format.Parse(bootstrap, pb.Bootstrap(), descriptor_pool=descriptors.pool())
    option = pb.SocketOption(level=_SOL_SOCKET, name=_SO_MARK, int_value=mark, state=pb.SocketOption.STATE_PREBIND)
    message.cluster_manager.upstream_bind_config.socket_options.append(option)
    return _json(message)


def _json(message: Message) -> bytes:
    """Return a message as JSON in a stable order: a running Envoy is adopted only if its bootstrap is unchanged."""
    return json_format.MessageToJson(
        message,
        descriptor_pool=descriptors.pool(),
        preserving_proto_field_name=True,
        sort_keys=True,  # protobuf maps have no order
    ).encode()


def _source(secret: pb.Secret) -> bytes:
    return _json(pb.DiscoveryResponse(resources=[pb.pack(secret)]))


def _runtime() -> pb.LayeredRuntime:
    """Return the runtime settings: a limit for regular expressions, and the matching of joined header values.

    Envoy's default limit is 100 RE2 instructions; objects may have larger expressions.

    Routes and access rules match all values of a header as one text, joined by commas. By default Envoy does so for
    well-known headers only, and matches each value of other headers separately. An allowed value would then hide a
    forbidden one.
    """
    limit = pb.Value(number_value=LARGEST_PROGRAM * REGEX_MARGIN)
    fields = {
        "re2.max_program_size.error_level": limit,
        "envoy.reloadable_features.match_headers_individually": pb.Value(bool_value=False),
        "envoy.reloadable_features.rbac_match_headers_individually": pb.Value(bool_value=False),
    }
    layer = pb.RuntimeLayer(name="headgate", static_layer=pb.Struct(fields=fields))
    return pb.LayeredRuntime(layers=[layer, tap.runtime_layer()])


def _watchdog() -> pb.Watchdog:
    miss, megamiss = (pb.Duration(seconds=seconds) for seconds in (WATCHDOG_MISS_S, WATCHDOG_MEGAMISS_S))
    return pb.Watchdog(miss_timeout=miss, megamiss_timeout=megamiss)


def _xds_service() -> pb.GrpcService:
    """Return the gRPC service for ADS. Its longest back-off is `LAST_RECONNECT_S`; Envoy's default is 30 s."""
    service = pb.GrpcService(envoy_grpc=pb.GrpcService.EnvoyGrpc(cluster_name=XDS_CLUSTER))
    service.envoy_grpc.retry_policy.retry_back_off.CopyFrom(
        pb.BackoffStrategy(
            base_interval=pb.Duration(nanos=FIRST_RECONNECT_MS * 1_000_000),
            max_interval=pb.Duration(seconds=LAST_RECONNECT_S),
        )
    )
    return service


def _at_socket(path: str) -> pb.Cluster:
    return _xds_cluster(pb.Cluster.DiscoveryType.STATIC, pb.Address(pipe=pb.Pipe(path=path)))


def _at_address(xds: XdsAddress) -> pb.Cluster:
    address = pb.Address(socket_address=pb.SocketAddress(address=xds.host, port_value=xds.port))
    cluster = _xds_cluster(host_discovery(xds.host), address)
    name = pb.SubjectAltNameMatcher(
        san_type=pb.SubjectAltNameMatcher.SanType.DNS, matcher=pb.StringMatcher(exact=xds.name)
    )
    validation = pb.CommonTlsContext.CombinedCertificateValidationContext(
        default_validation_context=pb.CertificateValidationContext(match_typed_subject_alt_names=[name]),
        validation_context_sds_secret_config=_watched(ROOTS, xds.roots),
    )
    # The maximum is set too, because Envoy's clients default to at most TLS 1.2.
    newest = pb.TlsParameters.TlsProtocol.TLSv1_3
    context = pb.UpstreamTlsContext(
        sni=xds.name,
        common_tls_context=pb.CommonTlsContext(
            tls_params=pb.TlsParameters(tls_minimum_protocol_version=newest, tls_maximum_protocol_version=newest),
            alpn_protocols=["h2"],
            combined_validation_context=validation,
        ),
    )
    cluster.transport_socket.CopyFrom(
        pb.TransportSocket(name="envoy.transport_sockets.tls", typed_config=pb.pack(context))
    )
    return cluster


def host_discovery(host: str) -> pb.Cluster.DiscoveryType:
    """Return the type of a cluster with one endpoint: STATIC for an IP address, STRICT_DNS for a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return pb.Cluster.DiscoveryType.STRICT_DNS
    return pb.Cluster.DiscoveryType.STATIC


def _xds_cluster(kind: pb.Cluster.DiscoveryType, address: pb.Address) -> pb.Cluster:
    endpoint = pb.LbEndpoint(endpoint=pb.Endpoint(address=address))
    return pb.Cluster(
        name=XDS_CLUSTER,
        type=kind,
        connect_timeout=pb.Duration(seconds=5),  # includes the TLS handshake
        load_assignment=pb.ClusterLoadAssignment(
            cluster_name=XDS_CLUSTER, endpoints=[pb.LocalityLbEndpoints(lb_endpoints=[endpoint])]
        ),
    )


def _http2(token: str) -> pb.HttpProtocolOptions:
    """Return HTTP/2 options: keepalives detect a dead peer, and a filter adds the token to each stream's headers."""
    keepalive = pb.KeepaliveSettings(interval=pb.Duration(seconds=30), timeout=pb.Duration(seconds=5))
    explicit = pb.HttpProtocolOptions.ExplicitHttpConfig(
        http2_protocol_options=pb.Http2ProtocolOptions(connection_keepalive=keepalive)
    )
    filters = [_injector(token), _filter("upstream_codec", pb.UpstreamCodec())] if token else []
    return pb.HttpProtocolOptions(explicit_http_config=explicit, http_filters=filters)


def _injector(token: str) -> pb.HttpFilter:
    credential = pb.GenericCredential(
        credential=_watched(CREDENTIAL, token), header="authorization", header_value_prefix="Bearer "
    )
    injected = pb.TypedExtensionConfig(name="envoy.http.injected_credentials.generic", typed_config=pb.pack(credential))
    return _filter("credential_injector", pb.CredentialInjector(overwrite=True, credential=injected))


def _filter(name: str, config: Message) -> pb.HttpFilter:
    return pb.HttpFilter(name=f"envoy.filters.http.{name}", typed_config=pb.pack(config))


def _watched(name: str, source: str) -> pb.SdsSecretConfig:
    """Return the configuration of the secret `name` from the file `source`, which Envoy watches for changes."""
    path = PurePosixPath(source)
    watched = pb.PathConfigSource(path=str(path), watched_directory=pb.WatchedDirectory(path=str(path.parent)))
    config = pb.ConfigSource(path_config_source=watched, resource_api_version=pb.ApiVersion.V3)
    return pb.SdsSecretConfig(name=name, sds_config=config)
