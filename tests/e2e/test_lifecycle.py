"""Start, kill, restart and stop headgate: workloads run without headgate, and a stop leaves no process or file."""

import json
import os
import signal
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.e2e.manifests import external, site, split_manifest
from tests.e2e.running_mesh import HEADGATE, RunningMesh
from tests.processes import runs
from tests.waiting import until


@pytest.fixture
def meshed(shared_mesh: Callable[..., RunningMesh]) -> RunningMesh:
    """Return a mesh with a Service that is split 3 to 1 between two Deployments."""
    return shared_mesh(site)


def test_all_objects_are_active_when_headgate_is_ready(meshed: RunningMesh) -> None:
    mesh = meshed
    assert mesh.ready["findings"] == []
    assert mesh.ready["services"]["default/web"] == {"8080": str(mesh.address("web", 8080))}
    assert mesh.send(40, mesh.request("web", 8080)) == {"v1": 30, "v2": 10}
    assert stat.S_IMODE(Path(mesh.ready["kubeconfig"]).stat().st_mode) == 0o600


def test_no_request_fails_when_headgate_is_killed_and_restarted(meshed: RunningMesh) -> None:
    """Envoy and the pods run without headgate, and the next start adopts them."""
    mesh = meshed
    before, ready = mesh.processes(), mesh.ready
    assert len(before) == 3
    with mesh.load(mesh.request("web", 8080)) as load:
        mesh.kill()
        seen = load.sent
        until(lambda: load.sent > seen + 50)
        mesh.start()
        seen = load.sent
        until(lambda: load.sent > seen + 50)
        mesh.write("split.yaml", split_manifest("web", "web", {"v2": 1}))
        seen = load.counts["v2"]
        until(lambda: load.counts["v2"] > seen + 20)
    assert set(load.counts) == {"v1", "v2"}
    assert mesh.processes() == before
    # Another test may have removed a Service since the start before.
    assert mesh.ready["services"].items() <= ready["services"].items()
    assert "default/web" in mesh.ready["services"]
    assert mesh.ready["proxy"] == ready["proxy"]
    assert mesh.send(20, mesh.request("web", 8080)) == {"v2": 20}
    assert all(pod["status"]["containerStatuses"][0]["restartCount"] == 0 for pod in mesh.get("pods")["items"])
    mesh.write("split.yaml", site(mesh.root)["split.yaml"])


def test_a_stopped_headgate_leaves_nothing_and_the_next_start_applies_files_that_changed_meanwhile(
    meshed: RunningMesh,
) -> None:
    mesh = meshed
    mesh.patch("service/web", {"metadata": {"labels": {"kept": "yes"}}})
    processes, sidecars, sockets = mesh.processes(), mesh.sidecars(), Path(mesh.instance["admin"]).parent
    assert len(sidecars) == 2
    assert list(sockets.iterdir())
    assert mesh.stop() == 0
    assert mesh.processes() == {}
    assert not [pid for pid in (*processes.values(), *sidecars.values()) if runs(pid)]
    assert not sockets.exists()
    assert mesh.complaints == []
    (mesh.directory / "split.yaml").write_text(split_manifest("web", "web", {"v1": 1, "v2": 1}))
    (mesh.directory / "more.yaml").write_text(external("more", mesh.backend("more")))
    mesh.start()
    assert mesh.send(20, mesh.request("web", 8080)) == {"v1": 10, "v2": 10}
    assert mesh.send(5, mesh.request("more", 8080)) == {"more": 5}
    assert mesh.get("service/web")["metadata"]["labels"] == {"kept": "yes"}
    mesh.remove("more.yaml")
    mesh.write("split.yaml", site(mesh.root)["split.yaml"])


def test_the_next_start_removes_the_sockets_of_a_killed_headgate(new_mesh: Callable[..., RunningMesh]) -> None:
    killed = new_mesh()
    sockets, envoy = Path(killed.instance["admin"]).parent, killed.processes()["envoy"]
    killed.kill()
    other = new_mesh()
    assert sockets.is_dir()  # the Envoy of the killed headgate still uses the sockets
    other.stop()
    os.kill(envoy, signal.SIGKILL)
    until(lambda: not killed.processes())
    other.start()
    assert not sockets.exists()


def test_a_signal_during_the_start_ends_headgate(unstarted: RunningMesh, tmp_path: Path) -> None:
    for name, text in site(tmp_path).items():
        (unstarted.directory / name).write_text(text)
    unstarted.launch()
    until(unstarted.processes)
    assert unstarted.stop() == 0
    assert unstarted.processes() == {}


def test_a_second_headgate_with_the_same_state_directory_fails(mesh: RunningMesh, namespace: str) -> None:
    second = subprocess.run(
        [HEADGATE, "up", str(mesh.directory), "--state", str(mesh.state)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert second.returncode == 1
    assert str(mesh.state) in second.stderr
    assert "Traceback" not in second.stderr
    mesh.apply(external("web", mesh.backend("v1")), namespace=namespace)  # the first headgate still works
    assert mesh.send(5, mesh.request("web", 8080, namespace=namespace)) == {"v1": 5}


def test_two_headgates_run_side_by_side(
    meshed: RunningMesh, new_mesh: Callable[..., RunningMesh], tmp_path: Path
) -> None:
    one, two = meshed, new_mesh(manifests=site(tmp_path))
    assert one.address("web", 8080) != two.address("web", 8080)
    two.write("split.yaml", split_manifest("web", "web", {"v2": 1}))
    assert one.send(20, one.request("web", 8080)) == {"v1": 15, "v2": 5}
    assert two.send(20, two.request("web", 8080)) == {"v2": 20}
    two.stop()
    assert one.send(20, one.request("web", 8080, via="proxy")) == {"v1": 15, "v2": 5}


def test_an_ephemeral_headgate_keeps_no_state(new_mesh: Callable[..., RunningMesh], tmp_path: Path) -> None:
    mesh = new_mesh("--ephemeral", manifests=site(tmp_path))
    mesh.apply(external("by-hand", mesh.backend("here")))
    mesh.stop()
    assert not mesh.state.exists()
    mesh.start()
    names = {item["metadata"]["name"] for item in mesh.get("services")["items"]}
    assert "by-hand" not in names
    assert "web" in names


def test_headgate_reports_and_restarts_an_envoy_that_was_killed(
    new_mesh: Callable[..., RunningMesh], tmp_path: Path
) -> None:
    """Only the parent of a process learns its signal, so the mesh has not been restarted."""
    mesh = new_mesh(manifests=site(tmp_path))
    first, mark = mesh.processes()["envoy"], len(mesh.lines)
    os.kill(first, signal.SIGKILL)
    message = mesh.line(lambda line: "trouble" in line, mark)["trouble"]
    assert message.startswith("the gateway's Envoy ended with signal 9, SIGKILL")
    assert message.endswith("requests through it fail until headgate has restarted it")
    assert "\n" not in message
    assert mesh.event("EnvoyEnded", "local") == ("Warning", "EnvoyEnded", message)
    until(lambda: mesh.processes().get("envoy", first) != first)
    request = mesh.request("web", 8080)
    until(lambda: mesh.send(1, request) in ({"v1": 1}, {"v2": 1}))
    assert mesh.send(40, request) == {"v1": 30, "v2": 10}
    config = json.loads(mesh.envoy("/config_dump?resource=dynamic_active_clusters"))
    assert any("default/web/8080" in item["cluster"]["name"] for item in config["configs"])
