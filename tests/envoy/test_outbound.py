"""The outbound side of sidecars: identities, listeners, names, visibility, and shared resources."""

import pytest
from msgspec import structs
from tests.envoy.test_encode import MANY, mesh

from headgate.envoy import names, pb
from headgate.envoy.config import CHAIN, CLUSTER, ENDPOINTS, LISTENER, ROUTES, SCOPES, SECRET
from headgate.envoy.encode import Memo, encode
from headgate.envoy.port_plan import plan_service_port
from headgate.envoy.view import Node, project, sidecar
from headgate.envoy.visibility import allowed_sources
from headgate.model.access import Access, Grant
from headgate.model.identities import Credential, PrivateText
from headgate.model.routing import (
    Endpoint,
    Endpoints,
    Frontend,
    InboundPort,
    Mesh,
    Mirror,
    PortProtocol,
    PortRef,
    Protocol,
    Route,
    RouteTable,
    Split,
    Target,
    Workload,
)
from headgate.resources.meta import Key
from headgate.resources.weights import LARGEST_SUM

GATEWAY = Node(id="gateway", proxy_address="127.0.0.1", proxy_port=15001)
CREDENTIAL = Credential(chain="chain", key=PrivateText("key"), roots="roots")
BLUE, GREEN = (f"spiffe://cluster.local/ns/default/sa/{name}" for name in ("blue", "green"))
ONE, TWO = (PortRef(f"default/{name}", 80) for name in ("one", "two"))


def workload(number=0, *, capture="explicit", namespace="default", **more):
    name, address = f"{namespace}/pod-{number}", f"10.2.0.{number + 1}"
    more = {"identity": f"spiffe://cluster.local/ns/{namespace}/sa/caller-{number}", **more}
    return Workload(name=name, address=address, capture=capture, **more)


def small(*, protocol=Protocol.HTTP, routes=(), address="", **ready):
    """Return a mesh with the Services of `ready`, which maps names to endpoints; `routes` belong to the first
    Service."""
    refs = [PortRef(f"default/{name}", 80) for name in ready]
    own = {item: (Route(split=Split(targets=(Target(ref=item, weight=1),))),) for item in refs}
    tables = own | ({refs[0]: tuple(routes)} if routes else {})
    return Mesh(
        domain="cluster.local",
        frontends=tuple(Frontend(service=item.service, address=address, ports=(80,)) for item in refs),
        tables=tuple(RouteTable(ref=item, routes=found, protocol=protocol) for item, found in tables.items()),
        endpoints=tuple(Endpoints(ref=item, ready=tuple(ready[item.service.split("/")[1]])) for item in refs),
    )


def endpoint_at(number, identity="", port=80):
    return Endpoint(address=f"10.1.0.{number}", port=port, identity=identity)


def view_of(world, found, credential=CREDENTIAL):
    workloads = sorted((*world.workloads, found), key=lambda item: item.name)
    return project(structs.replace(world, workloads=tuple(workloads)), sidecar(found), credential)


def rendered(world, found=None, credential=CREDENTIAL):
    return encode(view_of(world, found or workload(), credential), Memo())


def read(config, type_url, kind, name):
    return kind.FromString(pb.Resource.FromString(config[type_url][name].body).resource.value)


def cluster(config, name):
    return read(config, CLUSTER, pb.Cluster, name)


def listener_of(config, name):
    return read(config, LISTENER, pb.Listener, name)


# --- identities


def test_a_cluster_has_a_transport_socket_for_each_peer_and_for_plaintext():
    config = rendered(small(one=[endpoint_at(1, GREEN), endpoint_at(2, BLUE), endpoint_at(3), endpoint_at(4, BLUE)]))
    found = cluster(config, "outbound/default/one/80")
    match_names = [item.name for item in found.transport_socket_matches]
    assert match_names == [f"80.one.default.svc.cluster.local {GREEN}", "plaintext"]
    first = pb.UpstreamTlsContext.FromString(found.transport_socket.typed_config.value).common_tls_context
    (required,) = first.combined_validation_context.default_validation_context.match_typed_subject_alt_names
    assert required.matcher.exact == BLUE  # unmatched endpoints use this TLS, never plaintext
    assignment = read(config, ENDPOINTS, pb.ClusterLoadAssignment, "outbound/default/one/80")
    match = "envoy.transport_socket_match"
    chosen = {
        item.endpoint.address.socket_address.address: place.metadata.filter_metadata[match]
        for locality in assignment.endpoints
        for item in locality.lb_endpoints
        for place in (item, locality)  # Envoy reads the endpoint's metadata first
        if match in place.metadata.filter_metadata
    }
    keys = {address: struct.fields["headgate"].string_value for address, struct in chosen.items()}
    blue = f"80.one.default.svc.cluster.local {BLUE}"
    assert keys == {"10.1.0.1": match_names[0], "10.1.0.2": blue, "10.1.0.4": blue, "10.1.0.3": "plaintext"}


def test_a_peer_is_called_by_tls_1_3_and_must_prove_its_identity():
    """R70, R76."""
    config = rendered(small(one=[endpoint_at(1, BLUE)]))
    socket = cluster(config, "outbound/default/one/80").transport_socket
    context = pb.UpstreamTlsContext.FromString(socket.typed_config.value)
    common, newest = context.common_tls_context, pb.TlsParameters.TlsProtocol.TLSv1_3
    params = common.tls_params
    assert (params.tls_minimum_protocol_version, params.tls_maximum_protocol_version) == (newest, newest)
    (matcher,) = common.combined_validation_context.default_validation_context.match_typed_subject_alt_names
    assert (matcher.san_type, matcher.matcher.exact) == (pb.SubjectAltNameMatcher.SanType.URI, BLUE)
    assert context.sni == "80.one.default.svc.cluster.local"
    assert common.tls_certificate_sds_secret_configs[0].name in config[SECRET]
    assert common.combined_validation_context.validation_context_sds_secret_config.name in config[SECRET]


@pytest.mark.parametrize("protocol", Protocol)
def test_ports_that_are_not_http_are_called_with_the_meshs_alpn(protocol):
    config = rendered(small(one=[endpoint_at(1, BLUE)], protocol=protocol))
    socket = cluster(config, "outbound/default/one/80").transport_socket
    common = pb.UpstreamTlsContext.FromString(socket.typed_config.value).common_tls_context
    assert list(common.alpn_protocols) == ([] if protocol.is_http else ["headgate"])


@pytest.mark.parametrize("protocol", [Protocol.HTTP, Protocol.HTTP2, Protocol.HTTP_ANY])
def test_http_connections_end_before_certificates_expire(protocol):
    config = rendered(small(one=[endpoint_at(1, BLUE)], protocol=protocol))
    packed = cluster(config, "outbound/default/one/80").typed_extension_protocol_options
    options = pb.HttpProtocolOptions.FromString(next(iter(packed.values())).value)
    assert options.common_http_protocol_options.max_connection_duration.seconds == 3600


def test_tcp_connections_have_no_maximum_age():
    """The proxy must not close a database connection after an hour."""
    config = rendered(small(one=[endpoint_at(1, BLUE)], protocol=Protocol.TCP))
    assert not cluster(config, "outbound/default/one/80").typed_extension_protocol_options


def test_without_a_certificate_all_endpoints_are_called_in_plaintext():
    with_identity, without = (
        small(one=[endpoint_at(1, BLUE), endpoint_at(2)]),
        small(one=[endpoint_at(1), endpoint_at(2)]),
    )
    for type_url in (CLUSTER, ENDPOINTS, ROUTES):
        one, two = (encode(project(world, GATEWAY), Memo())[type_url] for world in (with_identity, without))
        assert one == two


def test_a_certificate_changes_nothing_for_endpoints_without_identity():
    world = small(one=[endpoint_at(1), endpoint_at(2)])
    one, two = (encode(project(world, GATEWAY, item), Memo()) for item in (None, CREDENTIAL))
    assert {**one[CLUSTER], names.IDENTITY: two[CLUSTER][names.IDENTITY]} == two[CLUSTER]
    assert [one[kind] for kind in (ENDPOINTS, LISTENER, ROUTES)] == [
        two[kind] for kind in (ENDPOINTS, LISTENER, ROUTES)
    ]


def test_a_mirror_is_called_by_mtls():
    routes = [
        Route(
            split=Split(targets=(Target(ref=ONE, weight=1),)),
            mirrors=(Mirror(ref=TWO, targets=(Target(ref=TWO, weight=1),), numerator=1, denominator=1),),
        )
    ]
    config = rendered(small(one=[endpoint_at(1)], two=[endpoint_at(2, GREEN)], routes=routes))
    mirror = cluster(config, "mirror/default/two/80")
    assert pb.UpstreamTlsContext.FromString(mirror.transport_socket.typed_config.value).sni.startswith(
        "80.two.default."
    )
    assert [item.name for item in mirror.transport_socket_matches] == ["plaintext"]
    assert not cluster(config, "outbound/default/one/80").transport_socket_matches


def test_backends_of_a_tcp_root_are_called_with_the_meshs_alpn_by_all_callers():
    """The backends' sidecars expect TCP, and would forward TLS without this ALPN to the application (D15)."""
    split = Split(targets=(Target(ref=TWO, weight=1, protocol=Protocol.TCP),))
    world = small(one=[endpoint_at(1)], two=[endpoint_at(2, GREEN)], routes=[Route(split=split)])
    first, second = world.tables
    config = rendered(structs.replace(world, tables=(structs.replace(first, protocol=Protocol.TCP), second)))
    for name in ("outbound/default/one/80", "outbound/default/two/80"):
        context = pb.UpstreamTlsContext()
        assert cluster(config, name).transport_socket.typed_config.Unpack(context)
        assert (context.sni, list(context.common_tls_context.alpn_protocols)) == (
            "80.two.default.svc.cluster.local",
            ["headgate"],
        )


def test_tls_and_plaintext_endpoints_get_separate_localities_with_their_shares():
    ready = {ONE: (endpoint_at(1, BLUE), endpoint_at(2), endpoint_at(3)), TWO: (endpoint_at(4, GREEN), endpoint_at(5))}
    shares = tuple(Target(ref=item, weight=weight) for item, weight in ((ONE, 9), (TWO, 1)))
    _, (found,) = plan_service_port(
        RouteTable(ref=ONE, routes=(Route(split=Split(targets=shares)),)), ready, domain="c.l"
    )
    assert [(item.backend, item.uses_tls, item.weight) for item in found.localities_by_tls] == [
        ("default/one", True, 18),
        ("default/one", False, 36),
        ("default/two", True, 3),
        ("default/two", False, 3),
    ]


def test_localities_stay_undivided_if_their_weights_would_be_too_large():
    ready = {ONE: (endpoint_at(1, BLUE), endpoint_at(2)), TWO: (endpoint_at(3),)}
    shares = (Target(ref=ONE, weight=LARGEST_SUM - 1), Target(ref=TWO, weight=1))
    _, (found,) = plan_service_port(
        RouteTable(ref=ONE, routes=(Route(split=Split(targets=shares)),)), ready, domain="c.l"
    )
    assert [item.weight for item in found.localities_by_tls] == [LARGEST_SUM - 1, 1]


# --- an HTTP proxy


def test_the_http_proxy_is_the_only_outbound_listener_of_an_explicit_sidecar():
    world = small(one=[endpoint_at(1)], address="10.0.0.1")
    config = rendered(world, workload())
    assert {*config[LISTENER]} == {"proxy", "tunnel"}
    where = listener_of(config, "proxy").address.socket_address
    assert (where.address, where.port_value) == ("10.2.0.1", 15001)


def test_a_tunnel_to_an_http_port_leads_to_the_listener_inside_the_proxy():
    config = rendered(small(one=[endpoint_at(1, BLUE)], address="10.0.0.1"))
    first = read(config, ROUTES, pb.RouteConfiguration, "outbound/default/one/80").virtual_hosts[0].routes[0]
    assert first.match.HasField("connect_matcher")
    assert first.route.cluster == names.TUNNEL
    assert listener_of(config, names.TUNNEL).HasField("internal_listener")


def test_a_short_name_means_a_service_of_the_pods_namespace():
    world = Mesh(
        domain="c.l",
        frontends=tuple(Frontend(service=f"{namespace}/web", ports=(80,)) for namespace in ("default", "shop")),
        tables=tuple(RouteTable(ref=PortRef(f"{item}/web", 80), routes=()) for item in ("default", "shop")),
    )
    for namespace in ("default", "shop"):
        scopes = rendered(world, workload(namespace=namespace))[SCOPES]
        assert {name for name in scopes if name.endswith(("/web", "/web:80"))} == {
            f"host/{namespace}/web/80/web",
            f"host/{namespace}/web/80/web:80",
        }
        assert len(scopes) == 14


# --- redirected connections


def test_redirected_connections_have_a_listener_for_each_service_port():
    config = rendered(
        small(one=[endpoint_at(1)], two=[endpoint_at(2)], address="10.0.0.1"), workload(capture="transparent")
    )
    found = {name: listener_of(config, name) for name in config[LISTENER]}
    assert found["outbound"].use_original_dst.value
    assert found["outbound"].address.socket_address.port_value == 15001
    assert not found["outbound/default/one/80"].bind_to_port.value
    assert found["outbound/default/one/80"].HasField("bind_to_port")
    assert names.PROXY not in found


@pytest.mark.parametrize(
    ("address", "key"), [("10.0.0.1", "10.0.0.1:80"), ("fd00::1", "[fd00::1]:80"), ("fd00:0::0:1", "[fd00::1]:80")]
)
def test_the_original_address_selects_the_routes_of_redirected_requests(address, key):
    config = rendered(small(one=[endpoint_at(1)], address=address), workload(capture="transparent"))
    scope = read(config, SCOPES, pb.ScopedRouteConfiguration, "outbound/default/one/80")
    assert [fragment.string_key for fragment in scope.key.fragments] == [key]
    assert scope.route_configuration.virtual_hosts[0].routes[0].route.cluster == "outbound/default/one/80"
    assert config[SCOPES]["outbound/default/one/80"].needs == {"outbound/default/one/80"}
    assert not config[ROUTES]


def test_listeners_for_redirected_requests_share_a_filter_chain():
    config = rendered(
        small(one=[endpoint_at(1)], two=[endpoint_at(2)], address="10.0.0.1"), workload(capture="transparent")
    )
    assert list(config[CHAIN]) == [names.SHARED_CHAIN]
    for service in ("one", "two"):
        found = listener_of(config, f"outbound/default/{service}/80")
        assert not found.filter_chains
        assert found.filter_chain_matcher.on_no_match.action.typed_config.value == b"\n\x08requests"


def test_redirected_connections_to_a_port_that_cannot_be_bound_have_a_listener():
    world = small(one=[endpoint_at(1)], address="10.0.0.1")
    fronts = tuple(structs.replace(front, unbindable=front.ports) for front in world.frontends)
    config = rendered(structs.replace(world, frontends=fronts), workload(capture="transparent"))
    assert "outbound/default/one/80" in config[LISTENER]


@pytest.mark.parametrize(("address", "listeners"), [("10.0.0.1", {"outbound"}), ("fd00::1", {"outbound", "outbound6"})])
def test_ipv6_connections_are_redirected_if_a_service_has_an_ipv6_address(address, listeners):
    config = rendered(small(one=[endpoint_at(1)], address=address), workload(capture="transparent"))
    assert {name for name in config[LISTENER] if name in {"outbound", "outbound6"}} == listeners


def test_a_pod_of_two_services_has_one_listener():
    world = small(one=[endpoint_at(1, BLUE), endpoint_at(2)], two=[endpoint_at(1, BLUE)])
    config = rendered(world, workload(capture="transparent"))
    pods = [name for name in config[LISTENER] if name.startswith("pod/")]
    assert pods == ["pod/default/one/80/10.1.0.1/80", "pod/default/one/80/10.1.0.2/80"]
    assert cluster(config, f"direct/default/one/80/{BLUE}").HasField("transport_socket")
    assert config[LISTENER][pods[1]].needs == {names.PASSTHROUGH}


def test_names_of_pods_and_their_clusters_can_be_parsed():
    for name in (names.pod(ONE, "fd00::1", 8080), names.direct_cluster(ONE, BLUE)):
        assert names.parse(name) == ONE


# --- the Services that a workload may call


def closed(number, *sources):
    grants = (Grant(origin=Key("access.smi-spec.io", "TrafficTarget", "default", "t"), sources=sources),)
    ports = (InboundPort(port=80, application=80, protocols=(PortProtocol(protocol=Protocol.HTTP),)),)
    found = workload(number, ports=ports, access=Access(closed=True, grants=grants))
    return structs.replace(found, name=f"default/server-{number}", address=f"10.1.0.{number}")


CALLER = workload().identity


@pytest.mark.parametrize(
    ("servers", "ready", "known"),
    [
        ([], [1], True),  # a pod without a sidecar is open to all
        ([closed(1)], [1], False),
        ([closed(1, GREEN)], [1], False),
        ([closed(1, GREEN, CALLER)], [1], True),
        ([closed(1), closed(2, CALLER)], [1, 2], True),
        ([closed(1)], [1, 2], True),
        ([closed(1)], [], True),  # without endpoints, callers must get 503
    ],
)
def test_a_service_is_visible_to_a_sidecar_that_may_call_one_of_its_pods(servers, ready, known):
    world = structs.replace(small(one=[endpoint_at(number) for number in ready]), scoped=True, workloads=tuple(servers))
    config = rendered(world)
    assert ("outbound/default/one/80" in config[ROUTES]) is known
    assert bool(config[SCOPES]) is known
    assert (config[CLUSTER].keys() > {names.TUNNEL, names.IDENTITY}) is known
    everything = encode(project(world, GATEWAY, CREDENTIAL), Memo())
    assert "outbound/default/one/80" in everything[ROUTES]


def test_a_split_may_be_called_by_the_sources_of_any_backend():
    routes = [Route(split=Split(targets=(Target(ref=ONE, weight=1), Target(ref=TWO, weight=1))))]
    world = small(one=[endpoint_at(1)], two=[endpoint_at(2)], routes=routes)
    known = allowed_sources(structs.replace(world, workloads=(closed(1, GREEN), closed(2, BLUE))))
    assert known == {"default/one": {GREEN, BLUE}, "default/two": {BLUE}}


def test_every_service_is_visible_to_a_transparent_sidecar_with_passthrough():
    """Otherwise the sidecar would forward connections to a hidden Service in plaintext, past the proxies."""
    world = structs.replace(small(one=[endpoint_at(1)], address="10.0.0.1"), scoped=True, workloads=(closed(1),))
    found = workload(capture="transparent")
    has_listener = [
        "outbound/default/one/80" in rendered(structs.replace(world, passthrough=item), found)[LISTENER]
        for item in (True, False)
    ]
    assert has_listener == [True, False]


def test_the_response_for_an_unknown_host_mentions_access_if_visibility_is_limited():
    world = small(one=[endpoint_at(1)])
    texts = [
        pb.Resource.FromString(rendered(item)[LISTENER]["proxy"].body).resource.value
        for item in (world, structs.replace(world, scoped=True))
    ]
    assert [CALLER.encode() in text and b"TrafficTarget" in text for text in texts] == [False, True]


# --- the cost of sidecars and changes


@pytest.mark.parametrize("capture", ["explicit", "transparent"])
@pytest.mark.parametrize("services", [5, MANY])
def test_a_further_sidecar_encodes_only_its_own_resources(capture, services):
    memo, world = Memo(), mesh(services=services)
    found = tuple(workload(number, capture=capture) for number in range(3))
    world = structs.replace(world, workloads=found)
    own = [structs.replace(CREDENTIAL, chain=item.name) for item in found]
    first = encode(project(world, sidecar(found[0]), own[0]), memo)
    cost = memo.encoded
    second = encode(project(world, sidecar(found[1]), own[1]), memo)
    assert memo.encoded - cost <= 2  # the certificate, and the listener of an HTTP proxy
    assert all(second[ENDPOINTS][name] is item for name, item in first[ENDPOINTS].items())
    assert second[ENDPOINTS] is first[ENDPOINTS]  # the combined endpoints are reused


@pytest.mark.parametrize("capture", ["explicit", "transparent"])
def test_a_weight_change_encodes_one_resource_whatever_the_number_of_sidecars(capture):
    memo = Memo()
    found = tuple(workload(number, capture=capture) for number in range(10))

    def build(*weights):
        memo.begin_build()
        world = structs.replace(mesh(*weights), workloads=found)
        for item in found:
            encode(project(world, sidecar(item), CREDENTIAL), memo)

    build()
    cost = memo.encoded
    build(8, 2)
    assert memo.encoded == cost + 1


def test_the_view_of_a_sidecar_has_the_workload_of_its_pod():
    found = workload(3, namespace="shop")
    view = view_of(mesh(), found)
    assert (view.workload, view.identity, view.client_namespace) == (found, found.identity, "shop")
    gone = project(mesh(), sidecar(found), CREDENTIAL)
    assert (gone.workload, gone.identity) == (None, "")
    assert project(mesh(), GATEWAY).workload is None
