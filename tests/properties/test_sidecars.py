"""Properties of the configuration of sidecars over random worlds."""

from collections import Counter, defaultdict
from fractions import Fraction
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from tests.properties.builds import GATEWAY, UNRELATED, WORLDS, all_rendered, decoded, mesh_of, rendered_for
from tests.properties.worlds import meshes

from headgate.envoy import names, pb
from headgate.envoy.config import CLUSTER, ENDPOINTS, LISTENER, ROUTES, SCOPES
from headgate.envoy.encode import Memo, encode
from headgate.envoy.view import project, sidecar
from headgate.envoy.visibility import allowed_sources
from headgate.model.routing import PortRef
from headgate.settings import Settings

SETTINGS = st.builds(
    Settings, access=st.sampled_from(("selected", "deny")), outbound=st.sampled_from(("allow", "refuse"))
)
MATCH = "envoy.transport_socket_match"
FIXED = {
    names.PROXY,
    names.SHARED_CHAIN,
    names.OUTBOUND,
    names.OUTBOUND6,
    names.PASSTHROUGH,
    names.INBOUND,
    names.OTHER_PORTS,
    names.PROBES,
    names.IDENTITY,
    names.ROOTS,
    names.TUNNEL,
}
OF_PORTS = tuple(f"{kind}/" for kind in (names.INBOUND, names.PROBES, names.CALLERS))


class BuiltSidecars(NamedTuple):
    """A world, its settings, the compiled result, and the configurations of all proxies, built with a shared memo."""

    world: Any
    settings: Settings
    mesh: Any
    configs: Any


def unrelated_objects_change_no_digest(one):
    before, after = one.configs, all_rendered(mesh_of(one.world | UNRELATED, one.settings))
    assert before.keys() == after.keys()
    for node, config in before.items():
        for type_url, resources in config.items():
            assert resources.items() <= after[node][type_url].items()


def shared_resources_equal_separate_rendering(one):
    for workload in one.mesh.workloads:
        assert one.configs[sidecar(workload).id] == rendered_for(one.mesh, sidecar(workload))


def all_references_exist(one):
    for config in one.configs.values():
        for resource in (*config[ROUTES].values(), *config[LISTENER].values(), *config[SCOPES].values()):
            assert resource.needs <= config[CLUSTER].keys()
        for scope in decoded(config, SCOPES).values():
            assert scope.HasField("route_configuration") or scope.route_configuration_name in config[ROUTES]
        scopes = Counter(item.key.SerializeToString() for item in decoded(config, SCOPES).values())
        assert all(count == 1 for count in scopes.values())


def no_two_listeners_of_a_proxy_have_one_address(one):
    for node, config in one.configs.items():
        listeners = [item for item in decoded(config, LISTENER).values() if not item.HasField("internal_listener")]
        taken = Counter(item.address.SerializeToString() for item in listeners)
        assert all(count == 1 for count in taken.values()), node


def every_resource_name_can_be_parsed(one):
    refs = {table.ref for table in one.mesh.tables}
    for workload in one.mesh.workloads:
        for resources in one.configs[sidecar(workload).id].values():
            for name in resources:
                assert names.parse(name) in refs or name in FIXED or name.startswith(OF_PORTS), name


def a_cluster_requires_exactly_the_identity_of_its_endpoint(one):
    """R70, R76. The cluster requires the SPIFFE ID of the endpoint."""
    wanted = defaultdict(set)
    for entry in one.mesh.endpoints:
        for place in entry.ready:
            wanted[entry.ref.service, place.address, place.port].add(place.identity)
    for config in one.configs.values():
        clusters = decoded(config, CLUSTER)
        for name, assignment in decoded(config, ENDPOINTS).items():
            for backend, place, metadata in _places(assignment):
                assert _demanded(clusters[name], metadata) in wanted[backend, *place], (name, place)


def backends_keep_their_shares_if_some_endpoints_use_mtls(one):
    secured = decoded(one.configs[GATEWAY.id], ENDPOINTS)
    plaintext = decoded(encode(project(one.mesh, GATEWAY), Memo()), ENDPOINTS)
    assert {name: _shares(item) for name, item in secured.items()} == {
        name: _shares(item) for name, item in plaintext.items()
    }


@WORLDS
@given(meshes(), SETTINGS)
def test_the_properties_of_sidecars_in_every_world(world, settings):
    """All properties share one world, because drawing it takes as long as compiling it."""
    mesh = mesh_of(world, settings)
    one = BuiltSidecars(world, settings, mesh, all_rendered(mesh))
    for holds in (
        unrelated_objects_change_no_digest,
        shared_resources_equal_separate_rendering,
        all_references_exist,
        no_two_listeners_of_a_proxy_have_one_address,
        every_resource_name_can_be_parsed,
        a_cluster_requires_exactly_the_identity_of_its_endpoint,
        backends_keep_their_shares_if_some_endpoints_use_mtls,
    ):
        holds(one)
    a_sidecar_is_configured_only_for_services_that_it_may_call(world)


def a_sidecar_is_configured_only_for_services_that_it_may_call(world):
    """D21 with the access setting `deny`."""
    mesh = mesh_of(world, Settings(access="deny", outbound="refuse"))
    known = allowed_sources(mesh)
    memo = Memo()
    addressed = {PortRef(front.service, port) for front in mesh.frontends if front.address for port in front.ports}
    for workload in mesh.workloads:
        config = rendered_for(mesh, sidecar(workload), memo)
        named = {ref.service for name in (*config[ROUTES], *config[SCOPES]) if (ref := names.parse(name))}
        for table in mesh.tables:
            callers = known[table.ref.service]
            allowed = callers is None or workload.identity in callers
            assert allowed or table.ref.service not in named
            if workload.capture == "explicit":
                assert (table.ref.service in named) is allowed
            elif allowed and table.ref in addressed:  # no request can reach a Service without an address
                name = names.outbound(table.ref)
                assert name in config[LISTENER]
                assert (name in config[SCOPES]) is table.protocol.is_http
            if callers is not None and workload.identity not in callers:
                assert not any(_may_call(mesh, workload, place) for place in _backends(mesh, table))


def _places(assignment):
    for locality in assignment.endpoints:
        backend = f"{locality.locality.region}/{locality.locality.zone}"
        for item in locality.lb_endpoints:
            where = item.endpoint.address.socket_address
            named = item.metadata if MATCH in item.metadata.filter_metadata else locality.metadata
            yield backend, (where.address, where.port_value), named.filter_metadata


def _demanded(cluster, metadata):
    """Return the identity that the proxy requires of an endpoint; empty for plaintext."""
    if not cluster.transport_socket_matches:
        assert not cluster.HasField("transport_socket")
        return ""
    said = metadata[MATCH]
    matching = (item.transport_socket for item in cluster.transport_socket_matches if item.match == said)
    chosen = next(matching, cluster.transport_socket)
    if chosen.typed_config.type_url.endswith("RawBuffer"):
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
