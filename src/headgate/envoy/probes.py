"""Serve the kubelet's probes, which have no identity, for pods whose ports accept mTLS only.

A probe is `GET /<container>/<kind>` on a port of its own. Envoy rewrites it to the request of the pod's manifest and
sends it to the application. `GET /ready` is answered with 200: the sidecar has its configuration. Other requests get 404.
"""

from collections.abc import Iterator

from headgate.envoy import names, pb
from headgate.envoy.clusters import CONNECT_SECONDS, address
from headgate.envoy.config import CLUSTER, LISTENER, Part
from headgate.envoy.listeners import router_filter
from headgate.envoy.view import PROBE_PORT
from headgate.model.routing import Probe, Workload

READY_PATH = "/ready"
"""The path of the sidecar's own readiness check. It differs from all paths of containers' probes: they have two parts."""


def parts(workload: Workload, *, wildcard: str, source: str) -> Iterator[Part]:
    """Yield the listener on the address `wildcard`, and the clusters. The application sees `source` as the client."""
    places = sorted({(probe.port, probe.https) for probe in workload.probes})
    found = []
    for port, https in places:
        name = names.probe_cluster(port, https=https)
        found.append(name)
        yield Part(CLUSTER, name, cluster, (name, workload.address, port, https, source))
    yield Part(LISTENER, names.PROBES, listener, (wildcard, workload.probes), tuple(found))


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


def listener(wildcard: str, probes: tuple[Probe, ...]) -> pb.Listener:
    """Return the listener of all probes of a pod."""
    table = pb.RouteConfiguration(
        name=names.PROBES,
        virtual_hosts=[pb.VirtualHost(name=names.PROBES, domains=["*"], routes=[_ready(), *map(_route, probes)])],
    )
    connection = pb.HttpConnectionManager(
        stat_prefix=names.PROBES,
        route_config=table,
        http_filters=[router_filter()],
        server_header_transformation=pb.HttpConnectionManager.ServerHeaderTransformation.PASS_THROUGH,
        generate_request_id=pb.BoolValue(value=False),
    )
    http = pb.Filter(name="envoy.filters.network.http_connection_manager", typed_config=pb.pack(connection))
    return pb.Listener(
        name=names.PROBES,
        address=address(wildcard, PROBE_PORT),
        filter_chains=[pb.FilterChain(name=names.PROBES, filters=[http])],
        enable_reuse_port=pb.BoolValue(value=False),
    )


def _ready() -> pb.Route:
    return pb.Route(match=pb.RouteMatch(path=READY_PATH), direct_response=pb.DirectResponseAction(status=200))


def _route(probe: Probe) -> pb.Route:
    """Return the route of a probe. The Host header stays as it is.

    The kubelet counts a redirect as success, but would follow its `location`, which is not served here. So the header
    is removed.
    """
    path = f"/{probe.name}"
    # The path must have no query: Envoy would forward a query that the manifest does not have.
    exactly = {":method": "GET", ":path": path}
    headers = [pb.HeaderMatcher(name=name, string_match=pb.StringMatcher(exact=text)) for name, text in exactly.items()]
    return pb.Route(
        match=pb.RouteMatch(path=path, headers=headers),
        route=pb.RouteAction(
            cluster=names.probe_cluster(probe.port, https=probe.https),
            prefix_rewrite=probe.path if probe.path.startswith("/") else f"/{probe.path}",
            timeout=pb.Duration(seconds=0),  # the kubelet has its own timeout
        ),
        response_headers_to_remove=["location"],
    )
