"""What holds for the configuration of sidecars, whatever users write."""

from collections import Counter, defaultdict
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st
from tests.properties.test_compile import UNRELATED
from tests.properties.worlds import meshes

from headgate.compiler.compile import compile_mesh
from headgate.envoy import names, pb
from headgate.envoy.config import CLUSTER, ENDPOINTS, LISTENER, ROUTES, SCOPES
from headgate.envoy.encode import Memo, encode
from headgate.envoy.view import Node, project, sidecar
from headgate.envoy.visibility import callers
from headgate.model.identities import Credential, PrivateText
from headgate.plane.feed import snapshot_of
from headgate.settings import Settings

GATEWAY = Node(id="gateway", proxy_address="127.0.0.1", proxy_port=15001, probe="/run/probe")
CREDENTIAL = Credential(chain="chain", key=PrivateText("key"), roots="roots")
SETTINGS = st.builds(
    Settings, access=st.sampled_from(("selected", "deny")), outbound=st.sampled_from(("allow", "refuse"))
)
CLASSES = {
    CLUSTER: pb.Cluster,
    ENDPOINTS: pb.ClusterLoadAssignment,
    LISTENER: pb.Listener,
    ROUTES: pb.RouteConfiguration,
    SCOPES: pb.ScopedRouteConfiguration,
}
FIXED = {
    names.PROXY,
    names.OUTBOUND,
    names.OUTBOUND6,
    names.PASSTHROUGH,
    names.INBOUND,
    names.OTHER,
    names.PROBES,
    names.IDENTITY,
    names.ROOTS,
}


def mesh_of(world, settings=None):
    return compile_mesh(snapshot_of(world), settings or Settings()).mesh


def rendered(mesh, node, memo=None):
    return encode(project(mesh, node, CREDENTIAL), memo or Memo())


def all_rendered(mesh):
    memo = Memo()
    return {node.id: rendered(mesh, node, memo) for node in (GATEWAY, *map(sidecar, mesh.workloads))}


def decoded(config, type_url):
    resources = {name: pb.Resource.FromString(item.body) for name, item in config[type_url].items()}
    return {name: CLASSES[type_url].FromString(item.resource.value) for name, item in resources.items()}


@given(meshes(), SETTINGS)
def test_unrelated_objects_change_no_digest(world, settings):
    before, after = (all_rendered(mesh_of(objects, settings)) for objects in (world, world | UNRELATED))
    assert before.keys() == after.keys()
    for node, config in before.items():
        for type_url, resources in config.items():
            assert resources.items() <= after[node][type_url].items()


@given(meshes(), SETTINGS)
def test_what_is_shared_is_what_each_would_have_alone(world, settings):
    mesh = mesh_of(world, settings)
    together = all_rendered(mesh)
    for workload in mesh.workloads:
        assert together[sidecar(workload).id] == rendered(mesh, sidecar(workload))


@given(meshes(), SETTINGS)
def test_nothing_names_what_is_not_there(world, settings):
    mesh = mesh_of(world, settings)
    for config in all_rendered(mesh).values():
        for resource in (*config[ROUTES].values(), *config[LISTENER].values()):
            assert resource.needs <= config[CLUSTER].keys()
        for scope in decoded(config, SCOPES).values():
            assert scope.route_configuration_name in config[ROUTES]
        scopes = Counter(item.key.SerializeToString() for item in decoded(config, SCOPES).values())
        assert all(count == 1 for count in scopes.values())


@given(meshes(), SETTINGS)
def test_no_two_listeners_of_a_proxy_have_one_address(world, settings):
    for node, config in all_rendered(mesh_of(world, settings)).items():
        taken = Counter(item.address.SerializeToString() for item in decoded(config, LISTENER).values())
        assert all(count == 1 for count in taken.values()), node


@given(meshes())
def test_every_name_is_read_back(world):
    mesh = mesh_of(world)
    refs = {table.ref for table in mesh.tables}
    for workload in mesh.workloads:
        for resources in rendered(mesh, sidecar(workload)).values():
            for name in resources:
                known = names.parse(name) in refs, names.parse_inbound(name) is not None, name in FIXED
                assert any(known) or name.startswith(f"{names.PROBES}/"), name


@given(meshes(), SETTINGS)
def test_an_endpoint_must_prove_its_identity_and_no_other_one(world, settings):
    """R70, R76: what an endpoint says about its transport is in its cluster, and demands exactly its SPIFFE ID."""
    mesh = mesh_of(world, settings)
    wanted = defaultdict(set)
    for entry in mesh.endpoints:
        for place in entry.ready:
            wanted[entry.ref.service, place.address, place.port].add(place.identity)
    for node in (GATEWAY, *map(sidecar, mesh.workloads)):
        config = rendered(mesh, node)
        clusters = decoded(config, CLUSTER)
        for name, assignment in decoded(config, ENDPOINTS).items():
            for backend, place, metadata in _places(assignment):
                assert _demanded(clusters[name], metadata) in wanted[backend, *place], (name, place)


@given(meshes())
def test_backends_keep_their_shares_when_some_of_their_endpoints_are_called_by_tls(world):
    mesh = mesh_of(world)
    secured = decoded(rendered(mesh, GATEWAY), ENDPOINTS)
    plaintext = decoded(encode(project(mesh, GATEWAY), Memo()), ENDPOINTS)
    assert {name: _shares(item) for name, item in secured.items()} == {
        name: _shares(item) for name, item in plaintext.items()
    }


@given(meshes())
def test_a_sidecar_is_told_of_what_it_may_call_and_of_nothing_else(world):
    """D21 `deny`."""
    mesh = mesh_of(world, Settings(access="deny", outbound="refuse"))
    known = callers(mesh)
    for workload in mesh.workloads:
        told = {names.parse(name).service for name in rendered(mesh, sidecar(workload))[ROUTES] if names.parse(name)}
        for table in mesh.tables:
            who = known[table.ref.service]
            assert (table.ref.service in told) is (who is None or workload.identity in who)
            if who is not None and workload.identity not in who:
                assert not any(_may_call(mesh, workload, place) for place in _backends(mesh, table))


def _places(assignment):
    for locality in assignment.endpoints:
        backend = f"{locality.locality.region}/{locality.locality.zone}"
        for item in locality.lb_endpoints:
            where = item.endpoint.address.socket_address
            yield backend, (where.address, where.port_value), item.metadata.filter_metadata


def _demanded(cluster, metadata):
    """Return the identity that the proxy demands of an endpoint, as Envoy chooses; empty is plaintext."""
    if not cluster.transport_socket_matches:
        assert not cluster.HasField("transport_socket")
        return ""
    said = metadata["envoy.transport_socket_match"]
    matching = (item.transport_socket for item in cluster.transport_socket_matches if item.match == said)
    chosen = next(matching, cluster.transport_socket)
    if chosen.name == "envoy.transport_sockets.raw_buffer":
        return ""
    context = pb.UpstreamTlsContext.FromString(chosen.typed_config.value).common_tls_context
    (matcher,) = context.combined_validation_context.default_validation_context.match_typed_subject_alt_names
    return matcher.matcher.exact


def _shares(assignment):
    total = sum(item.load_balancing_weight.value for item in assignment.endpoints)
    assert total < 2**32
    shares = Counter()
    for locality in assignment.endpoints:
        part = Fraction(locality.load_balancing_weight.value, total * len(locality.lb_endpoints))
        for item in locality.lb_endpoints:
            where = item.endpoint.address.socket_address
            shares[locality.locality.region, locality.locality.zone, where.address, where.port_value] += part
    return shares


def _backends(mesh, table):
    ready = {entry.ref: entry.ready for entry in mesh.endpoints}
    return [place for route in table.routes for target in route.split.targets for place in ready[target.ref]]


def _may_call(mesh, caller, place):
    able = [item for item in mesh.workloads if place.workload == item.name or place.address == item.address]
    granted = [caller.identity in grant.sources for item in able for grant in item.access.grants]
    return not able or all(not item.access.closed for item in able) or any(granted)
