"""`headgate history`, `explain --at` and `rollback` of a running mesh, compared with where requests arrive."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from tests.e2e.manifests import external, service_manifest, split_manifest
from tests.e2e.running_mesh import RunningMesh, mesh_in_a_new_directory
from tests.waiting import until


@pytest.fixture(scope="module")
def mesh() -> Iterator[RunningMesh]:
    with mesh_in_a_new_directory() as mesh:
        yield mesh


def send_all_to_old(mesh: RunningMesh, name: str) -> str:
    """Split a Service between two backends in this process, with all requests to the first; return the split."""
    old, new = mesh.backend("old"), mesh.backend("new")
    mesh.submit(service_manifest(name, {"http": 8080}), external(f"{name}-old", old), external(f"{name}-new", new))
    mesh.apply(split_manifest(name, name, {f"{name}-old": 100, f"{name}-new": 0}))
    return f"trafficsplit/{name}"


def revisions(mesh: RunningMesh, obj: str) -> list[dict[str, Any]]:
    """Return the revisions of an object."""
    done = mesh.headgate("history", obj, "-o", "json")
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout)["items"])


def last(mesh: RunningMesh, obj: str, number: int) -> dict[str, Any]:
    """Wait for a number of revisions of an object; return the newest one."""
    return until(lambda: found[-1] if len(found := revisions(mesh, obj)) == number else None)


def test_a_bad_change_is_found_in_the_history_and_undone(mesh: RunningMesh) -> None:
    web = send_all_to_old(mesh, "web")
    good = last(mesh, web, 1)["revision"]
    mesh.kubectl("patch", web, "--type=merge", "-p", '{"spec":{"backends":[{"service":"web-new","weight":1}]}}')
    mesh.settle()
    assert mesh.send(4, mesh.request("web", 8080)) == Counter(new=4)
    bad = last(mesh, web, 2)
    assert [change["by"] for change in bad["changes"]] == ["kubectl-patch"]
    assert any("default/web-old:8080" in line and "default/web-new:8080" in line for line in bad["effectMessages"])
    shown = mesh.headgate("history", str(bad["revision"])).stdout
    assert "trafficsplit/web in default changed by kubectl-patch" in shown
    assert "  spec.backends[web-new].weight: 0 -> 1" in shown

    explained = mesh.headgate("explain", "--at", str(good), "http://web:8080/")
    assert "default/web-old:8080      1" in explained.stdout
    assert "pods, endpoints, Namespaces and Secrets are the current ones" in explained.stderr
    printed = mesh.headgate("rollback", str(good), web, "--dry-run").stdout
    (manifest,) = filter(None, yaml.safe_load_all(printed))
    assert manifest["spec"]["backends"][0] == {"service": "web-old", "weight": 100}
    assert len(revisions(mesh, web)) == 2

    done = mesh.headgate("rollback", str(good), web)
    assert (done.returncode, done.stdout) == (0, "trafficsplit/web restored\n"), done.stderr
    mesh.settle()
    assert mesh.send(4, mesh.request("web", 8080)) == Counter(old=4)
    assert last(mesh, web, 3)["changes"][0]["by"] == "headgate-rollback"
    assert "nothing to restore" in mesh.headgate("rollback", str(good), web).stderr


def test_a_restart_keeps_the_history_from_which_deleted_objects_are_restored(mesh: RunningMesh) -> None:
    shop = send_all_to_old(mesh, "shop")
    before = last(mesh, shop, 1)
    mesh.apply(split_manifest("shop", "shop", {"shop-old": 50, "shop-new": 50}))
    changed = last(mesh, shop, 2)
    mesh.stop()
    mesh.start()
    until(lambda: revisions(mesh, shop) == [before, changed])  # the history may be loaded later
    mesh.delete(shop)
    deleted = last(mesh, shop, 3)
    assert [(change["action"], change["by"]) for change in deleted["changes"]] == [("Deleted", "")]
    restored = mesh.headgate("rollback", str(changed["revision"]), shop)
    assert restored.stdout == "trafficsplit/shop created\n"
    assert mesh.get(shop)["spec"]["backends"][0] == {"service": "shop-old", "weight": 50}
    for words in (("history", "999"), ("rollback", "999"), ("explain", "--at", "999", "http://shop:8080/")):
        done = mesh.headgate(*words)
        assert (done.returncode, "revision 999 not found; the history has revisions 1 to" in done.stderr) == (1, True)
