"""Properties of workloads over random worlds."""

from hypothesis import given
from hypothesis import strategies as st
from tests.properties.worlds import key_of, meshes, named

from headgate.compiler.compile import compile_mesh
from headgate.model.check import check
from headgate.model.routing import TlsMode
from headgate.plane.feed import snapshot_of
from headgate.settings import Settings

TLS_MODES = st.dictionaries(st.integers(1, 9).map(lambda number: f"default/pod-{number}"), st.sampled_from(TlsMode))
SETTINGS = st.builds(
    Settings, mtls=st.sampled_from(("off", "permissive", "strict")), access=st.sampled_from(("selected", "deny"))
)
CLOSING = named(
    "TrafficTarget",
    "default",
    "closing",
    spec={"destination": {"kind": "ServiceAccount", "name": "a"}, "sources": [], "rules": []},
)


def compiled(world, settings=None, tls_modes=None):
    return compile_mesh(snapshot_of(world), settings or Settings(), tls_modes or {})


@given(meshes(), SETTINGS, TLS_MODES, st.randoms(use_true_random=False))
def test_every_mesh_is_valid_and_independent_of_object_order(world, settings, tls_modes, random):
    result = compiled(world, settings, tls_modes)
    assert check(result.mesh) == ()
    assert set(result.report.seen) >= {finding.about for finding in result.report.findings}
    assert set(result.report.seen) >= {item.about for item in result.report.selected}
    items = list(world.items())
    random.shuffle(items)
    assert compiled(dict(items), settings, tls_modes) == result


@given(meshes())
def test_a_target_that_allows_nothing_closes_its_own_pods_only(world):
    """D21. It adds no grant, closes the pods of its account, and changes no other pods."""
    world.pop(key_of(CLOSING), None)
    before, after = compiled(world).mesh, compiled(world | {key_of(CLOSING): CLOSING}).mesh
    for old, new in zip(before.workloads, after.workloads, strict=True):
        assert old.access.grants == new.access.grants
        assert new.access.closed is (old.access.closed or new.identity.endswith("/ns/default/sa/a"))


@given(meshes(), st.data())
def test_a_deleted_route_allows_no_additional_call(world, data):
    """A rule without its route allows nothing."""
    routes = [key for key in world if key.kind in {"HTTPRouteGroup", "TCPRoute"}]
    if not routes:
        return
    gone = data.draw(st.sampled_from(routes))
    before = compiled(world).mesh
    after = compiled({key: obj for key, obj in world.items() if key != gone}).mesh
    for old, new in zip(before.workloads, after.workloads, strict=True):
        assert new.access.closed is old.access.closed
        assert _allowed(new) <= _allowed(old)


@given(meshes(), TLS_MODES)
def test_clients_use_mtls_exactly_where_a_sidecar_accepts_it(world, tls_modes):
    mesh = compiled(world, tls_modes=tls_modes).mesh
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
