"""`headgate proxies --outdated` and `headgate restart` under load, on one machine."""

import json
from collections.abc import Callable
from pathlib import Path

from tests.e2e.manifests import site
from tests.e2e.running_mesh import RunningMesh


def test_outdated_workloads_are_restarted_one_by_one_and_no_request_is_lost(
    new_mesh: Callable[..., RunningMesh], tmp_path: Path
) -> None:
    mesh = new_mesh("--sidecars", "labelled", manifests=site(tmp_path))
    assert mesh.headgate("proxies", "--outdated").returncode == 0
    mesh.kubectl("label", "namespace", "default", "headgate.dev/inject=true")
    mesh.settle()
    before = {pod["metadata"]["name"] for pod in mesh.get("pods")["items"]}
    listed = mesh.headgate("proxies", "--outdated", "-o", "json")
    assert listed.returncode == 1
    assert [
        (due["kind"], due["name"], due["pods"], due["outdatedPods"]) for due in json.loads(listed.stdout)["items"]
    ] == [
        ("Deployment", "v1", 1, 1),
        ("Deployment", "v2", 1, 1),
    ]
    with mesh.load(*[mesh.request("web", 8080)] * 4) as load:
        ran = mesh.headgate("restart", "--outdated")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert [line.partition(":")[0] for line in ran.stdout.splitlines()] == [
        "default/deployment/v1 restarted",
        "default/deployment/v2 restarted",
    ]
    assert set(load.counts) == {"v1", "v2"}
    pods = [pod for pod in mesh.get("pods")["items"] if not pod["metadata"].get("deletionTimestamp")]
    after = {pod["metadata"]["name"]: pod for pod in pods}
    assert not before & after.keys()
    assert all(pod["metadata"]["annotations"]["headgate.dev/sidecar-mode"] == "explicit" for pod in after.values())
    assert mesh.headgate("proxies", "--outdated").returncode == 0
