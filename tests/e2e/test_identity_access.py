"""Changes to TrafficTargets take effect on open connections (R69, R70, D21)."""

from collections.abc import Callable
from pathlib import Path

from tests.e2e import identity_rig as rig
from tests.e2e.identity_rig import CALLER, RAW, ROUTES, SERVER, WEB, ask, open_connections
from tests.e2e.running_mesh import RunningMesh
from tests.waiting import until


def test_a_changed_traffic_target_denies_requests_on_open_connections(
    new_mesh: Callable[..., RunningMesh], tmp_path: Path
) -> None:
    """The proxy denies the next request on an open connection, and closes TCP connections within seconds."""
    mesh = new_mesh(manifests=rig.site(tmp_path))
    with open_connections(mesh) as (web, raw):
        assert ask(mesh, web).answered_by == ask(mesh, raw).answered_by == SERVER
        mesh.submit(ROUTES)
        allowed = rig.access(CALLER, rule=WEB), rig.access(CALLER, rule=RAW)
        mesh.submit(*allowed)
        for name in ("web", "raw"):
            assert "1 of 1" in rig.headgate_wait(mesh, f"traffictarget/{name}-callers")
        assert ask(mesh, web).answered_by == SERVER
        assert web.opened == 1  # the connection with allowed requests stayed open
        mesh.network.run(rig.close(raw))  # its filter chain changed, so Envoy closes this connection
        assert ask(mesh, raw).answered_by == SERVER

        denied = rig.access("another-account", rule=WEB), rig.access("another-account", rule=RAW)
        mesh.submit(*denied)
        for name in ("web", "raw"):
            rig.headgate_wait(mesh, f"traffictarget/{name}-callers")
        before = rig.counted_requests(tmp_path / SERVER)
        refused = ask(mesh, web)
        assert refused.status == 403
        assert "spiffe://cluster.local/ns/default/sa/caller" in refused.body
        assert web.opened == 1
        mesh.network.run(raw.wait_until_closed())
        assert rig.counted_requests(tmp_path / SERVER) == before

        mesh.submit(*allowed)
        for name in ("web", "raw"):
            rig.headgate_wait(mesh, f"traffictarget/{name}-callers")
        assert ask(mesh, web).answered_by == SERVER
        assert web.opened == 1  # the connection with the denied request stayed open
        mesh.network.run(rig.close(raw))
        assert ask(mesh, raw).answered_by == SERVER
    assert mesh.complaints == []


def test_an_allowed_caller_loses_no_request_when_traffic_targets_are_created_and_deleted(
    new_mesh: Callable[..., RunningMesh], tmp_path: Path
) -> None:
    """The first target denies all callers that it does not name."""
    mesh = new_mesh(manifests=rig.site(tmp_path))
    target = rig.access(CALLER, rule=WEB)
    with mesh.load(*[rig.request_through_sidecar(rig.only_pod(mesh, CALLER))] * 3) as load:
        for _ in range(2):
            rig.wait_for_requests(load)
            mesh.submit(ROUTES, target)
            rig.headgate_wait(mesh, "traffictarget/web-callers")
            assert mesh.send(1, mesh.request(SERVER, 8080)) == {"403": 1}  # no target names the gateway
            rig.wait_for_requests(load)
            mesh.delete("traffictarget/web-callers")
            until(lambda: mesh.send(1, mesh.request(SERVER, 8080)) == {SERVER: 1})
    assert set(load.counts) == {SERVER}
