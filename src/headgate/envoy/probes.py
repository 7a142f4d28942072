"""Serve the kubelet's probes, which have no identity, for pods whose ports accept mTLS only.

A probe is `GET /<container>/<kind>` on a port of its own. Envoy rewrites an HTTP probe to the request of the pod's
manifest and sends it to the application. It makes TCP and gRPC probes itself, at the period of the manifest, and answers
200 or 503 by the last result. So no bytes of the network reach a port that is not HTTP. `GET /ready` is answered with
200: the sidecar has its configuration. Other requests get 404.
"""

from collections.abc import Iterator

from headgate.envoy import names, pb
from headgate.envoy.clusters import CONNECT_SECONDS, HTTP_OPTIONS, address, wildcard_address
from headgate.envoy.config import CLUSTER, LISTENER, Part
from headgate.envoy.http_connections import HEAD_MS, http_options
from headgate.envoy.listeners import router_filter
from headgate.envoy.node_ids import PROBE_PORT
from headgate.envoy.proxy_container import READY_PATH
from headgate.envoy.reserved_headers import remove_reserved
from headgate.envoy.values import duration
from headgate.model.probes import HealthCheck, PortCheck
from headgate.model.routing import Protocol, Workload

FAILING_PERIOD_SECONDS = 1
"""The period of a TCP or gRPC probe while it fails. A port that does not accept connections costs the application
nothing, and the pod becomes ready at the kubelet's next probe."""


def parts(workload: Workload, *, wildcard: str, source: str) -> Iterator[Part]:
    """Yield the listener on the address `wildcard`, and the clusters. The application sees `source` as the client."""
    places = sorted({(probe.port, probe.https) for probe in workload.probes})
    cluster_names = []
    for port, https in places:
        name = names.probe_cluster(port, https=https)
        cluster_names.append(name)
        yield Part(CLUSTER, name, cluster, (name, workload.address, port, https, source))
    for check in workload.port_checks:
        name = names.port_check_cluster(check.name)
        cluster_names.append(name)
        yield Part(CLUSTER, name, checked_cluster, (name, workload.address, check, source))
    yield Part(
        LISTENER, names.PROBES, listener, (wildcard, workload.probes, workload.port_checks), tuple(cluster_names)
    )


def cluster(
    name: str,
    host: str,
    port: int,
    https: bool,  # noqa: FBT001  # the arguments of a Part are positional
    source: str,
) -> pb.Cluster:
    """Return the cluster of one port; packets from `source` are not redirected on their way to the application."""
    endpoint = pb.LbEndpoint(endpoint=pb.Endpoint(address=address(host, port)))
    message = pb.Cluster(
        name=name,
        type=pb.Cluster.DiscoveryType.STATIC,
        connect_timeout=pb.Duration(seconds=CONNECT_SECONDS),
        load_assignment=pb.ClusterLoadAssignment(
            cluster_name=name, endpoints=[pb.LocalityLbEndpoints(lb_endpoints=[endpoint])]
        ),
        upstream_bind_config=pb.BindConfig(source_address=pb.SocketAddress(address=source, port_value=0)),
    )
    if https:
        tls = pb.pack(pb.UpstreamTlsContext())  # without validation of the certificate, like the kubelet
        message.transport_socket.CopyFrom(pb.TransportSocket(name="envoy.transport_sockets.tls", typed_config=tls))
    return message


def checked_cluster(name: str, host: str, check: PortCheck, source: str) -> pb.Cluster:
    """Return a cluster whose only endpoint Envoy checks. Each check is a new connection, like those of the kubelet."""
    message = cluster(name, host, check.port, False, source)  # noqa: FBT003  # the arguments of a Part are positional
    period, failing = pb.Duration(seconds=check.period), pb.Duration(seconds=FAILING_PERIOD_SECONDS)
    health = pb.HealthCheck(
        timeout=pb.Duration(seconds=check.timeout),
        interval=period,
        unhealthy_interval=failing,
        # Envoy uses these two intervals for a cluster without requests.
        no_traffic_healthy_interval=period,
        no_traffic_interval=failing,
        healthy_threshold=pb.UInt32Value(value=1),
        unhealthy_threshold=pb.UInt32Value(value=1),
        reuse_connection=pb.BoolValue(value=False),
    )
    if check.grpc:
        authority = f"[{host}]:{check.port}" if ":" in host else f"{host}:{check.port}"
        health.grpc_health_check.CopyFrom(
            pb.HealthCheck.GrpcHealthCheck(service_name=check.service, authority=authority)
        )
        message.typed_extension_protocol_options[HTTP_OPTIONS].CopyFrom(pb.pack(http_options(Protocol.HTTP2)))
    else:
        health.tcp_health_check.CopyFrom(pb.HealthCheck.TcpHealthCheck())
    message.health_checks.append(health)
    return message


def listener(wildcard: str, probes: tuple[HealthCheck, ...], port_checks: tuple[PortCheck, ...]) -> pb.Listener:
    """Return the listener for all probes of a pod. `headgate sidecar wait` requests it by IPv4, also in a pod without IPv4."""
    table = pb.RouteConfiguration(
        name=names.PROBES,
        virtual_hosts=[pb.VirtualHost(name=names.PROBES, domains=["*"], routes=[_ready(), *map(_route, probes)])],
    )
    connection = pb.HttpConnectionManager(
        stat_prefix=names.PROBES,
        route_config=table,
        http_filters=[*map(_result_filter, port_checks), router_filter()],
        server_header_transformation=pb.HttpConnectionManager.ServerHeaderTransformation.PASS_THROUGH,
        generate_request_id=pb.BoolValue(value=False),
        request_headers_timeout=duration(HEAD_MS),
    )
    remove_reserved(connection)
    http = pb.Filter(name="envoy.filters.network.http_connection_manager", typed_config=pb.pack(connection))
    return pb.Listener(
        name=names.PROBES,
        address=wildcard_address(wildcard, PROBE_PORT),
        filter_chains=[pb.FilterChain(name=names.PROBES, filters=[http])],
        enable_reuse_port=pb.BoolValue(value=False),
    )


def _ready() -> pb.Route:
    return pb.Route(match=pb.RouteMatch(path=READY_PATH), direct_response=pb.DirectResponseAction(status=200))


def _route(probe: HealthCheck) -> pb.Route:
    """Return the route of a probe. The Host header stays as it is.

    The kubelet counts a redirect as success, but would follow its `location`, which is not served here. So the header
    is removed.
    """
    path = f"/{probe.name}"
    return pb.Route(
        # The path must have no query: Envoy would forward a query that the manifest does not have.
        match=pb.RouteMatch(path=path, headers=_exactly(path)),
        route=pb.RouteAction(
            cluster=names.probe_cluster(probe.port, https=probe.https),
            prefix_rewrite=probe.path if probe.path.startswith("/") else f"/{probe.path}",
            timeout=pb.Duration(seconds=0),  # the kubelet has its own timeout
        ),
        response_headers_to_remove=["location"],
    )


def _result_filter(check: PortCheck) -> pb.HttpFilter:
    """Return the filter that answers a probe by the last result of its check: 200, else 503."""
    filter_config = pb.HealthCheckFilter(
        pass_through_mode=pb.BoolValue(value=False),
        headers=_exactly(f"/{check.name}"),
        cluster_min_healthy_percentages={names.port_check_cluster(check.name): pb.Percent(value=100)},
    )
    return pb.HttpFilter(name=names.port_check_cluster(check.name), typed_config=pb.pack(filter_config))


def _exactly(path: str) -> list[pb.HeaderMatcher]:
    """Return the matchers for a GET request with this path and without a query."""
    headers = {":method": "GET", ":path": path}
    return [pb.HeaderMatcher(name=name, string_match=pb.StringMatcher(exact=text)) for name, text in headers.items()]
