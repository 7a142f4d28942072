"""`headgate down` after headgate was killed: it ends all processes and keeps the objects."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.e2e.manifests import counting_deployment, service_manifest
from tests.e2e.running_mesh import RunningMesh, headgate
from tests.headgate_program import command
from tests.processes import runs
from tests.waiting import until


def test_down_ends_and_names_the_processes_of_a_killed_headgate(
    new_mesh: Callable[..., RunningMesh], tmp_path: Path
) -> None:
    manifests = [
        service_manifest("web", {"http": 8080}, selector={"app": "web"}),
        counting_deployment("web", tmp_path / "requests", labels={"app": "web"}, ports={"http": 8080}),
    ]
    mesh = new_mesh(manifests={"site.yaml": "\n---\n".join(manifests)})
    refused = mesh.headgate("down")
    assert refused.returncode == 1
    assert f"a headgate (process {mesh.instance['pid']}) runs with the state directory" in refused.stderr
    assert (
        "`headgate down` stops only the processes of a killed headgate; press Ctrl-C in the terminal" in refused.stderr
    )
    until(lambda: mesh.headgate("status").returncode == 0)
    mesh.kill()
    left = [*mesh.processes().values(), *mesh.sidecars().values()]
    assert len(left) == 3  # the gateway's Envoy, the container, its sidecar
    sockets = Path(mesh.instance["admin"]).parent
    sourced = {**os.environ, "HEADGATE_STATE": str(mesh.state)}
    done = subprocess.run(
        [*command(), "down"], cwd=tmp_path, env=sourced, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    pod = next(iter(mesh.state.glob("pods/*"))).name.split("_")[1]
    for process in (f"container app of pod default/{pod}", f"the sidecar of pod default/{pod}", "the gateway"):
        assert f"stopped {process} (process " in done.stdout
    assert not any(runs(pid) for pid in left)
    assert f"removed {sockets}" in done.stdout
    assert not sockets.exists()
    assert "found no processes or sockets of a killed headgate" in mesh.headgate("down").stdout
    mesh.start()
    found = until(lambda: [item for item in mesh.get("pods")["items"] if item["status"]["phase"] == "Running"])
    assert found[0]["metadata"]["name"] == pod
    assert found[0]["status"]["containerStatuses"][0]["restartCount"] == 0


def test_down_names_a_state_directory_that_does_not_exist(tmp_path: Path) -> None:
    done = headgate("down", "--state", str(tmp_path / "typo"))
    assert (done.returncode, "does not exist; set --state" in done.stderr) == (1, True)
