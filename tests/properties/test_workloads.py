"""Properties of workloads over random worlds."""

from hypothesis import given
from hypothesis import strategies as st
from tests.properties.builds import ACCESS_SETTINGS, WORLDS, compiled, mesh_is_valid, mesh_of
from tests.properties.worlds import key_of, meshes, named

from headgate.model.mutual_tls import TlsMode

TLS_MODES = st.dictionaries(st.integers(1, 9).map(lambda number: f"default/pod-{number}"), st.sampled_from(TlsMode))
CLOSING = named(
    "TrafficTarget",
    "default",
    "closing",
    spec={"destination": {"kind": "ServiceAccount", "name": "a"}, "sources": [], "rules": []},
)


@WORLDS
@given(meshes(), ACCESS_SETTINGS, TLS_MODES, st.randoms(use_true_random=False))
def test_the_properties_of_workloads_in_every_world(world, settings, tls_modes, random):
    """All properties share one world, because drawing it takes as long as compiling it."""
    result = compiled(world, settings, tls_modes)
    mesh_is_valid(result)
    assert set(result.report.seen) >= {selected.about for selected in result.report.selected}
    assert compiled(dict(random.sample(list(world.items()), len(world))), settings, tls_modes) == result
    clients_use_mtls_exactly_where_a_sidecar_accepts_it(result.mesh)
    a_target_that_allows_nothing_closes_its_own_pods_only(world, settings)
    a_deleted_route_allows_no_additional_call(world, settings, random)


def a_target_that_allows_nothing_closes_its_own_pods_only(world, settings):
    """D21. It adds no grant, closes the pods of its account, and changes no other pods."""
    without = {key: obj for key, obj in world.items() if key != key_of(CLOSING)}
    before, after = mesh_of(without, settings), mesh_of(without | {key_of(CLOSING): CLOSING}, settings)
    for old, new in zip(before.workloads, after.workloads, strict=True):
        assert old.access.grants == new.access.grants
        assert new.access.closed is (old.access.closed or new.identity.endswith("/ns/default/sa/a"))


def a_deleted_route_allows_no_additional_call(world, settings, random):
    """A rule without its route allows nothing."""
    gone = random.choice([key for key in world if key.kind in {"HTTPRouteGroup", "TCPRoute"}])
    before = mesh_of(world, settings)
    after = mesh_of({key: obj for key, obj in world.items() if key != gone}, settings)
    for old, new in zip(before.workloads, after.workloads, strict=True):
        assert new.access.closed is old.access.closed
        assert _allowed(new) <= _allowed(old)


def clients_use_mtls_exactly_where_a_sidecar_accepts_it(mesh):
    by_identity = {}
    for item in mesh.workloads:
        by_identity.setdefault(item.identity, []).append(item)
    for place in (place for entry in mesh.endpoints for place in entry.ready if place.identity):
        able = [
            item for item in by_identity[place.identity] if place.workload == item.name or place.address == item.address
        ]
        assert any(item.tls_mode.accepts_tls and place.port in {port.port for port in item.ports} for item in able)


def _allowed(workload):
    return {
        (grant.origin, source, grant.port, part)
        for grant in workload.access.grants
        for source in grant.sources
        for part in (*grant.requests, *grant.connections)
    }
