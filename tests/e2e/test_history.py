"""`headgate history`, `explain --at` and `rollback` of a running mesh, compared with where requests arrive."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from tests.e2e.manifests import external, service, split
from tests.e2e.world import World, until, world_in_a_new_directory

OBJECT = "trafficsplit/web"


@pytest.fixture
def mesh() -> Iterator[World]:
    """Run a split of two backends in this process, with all requests to the first."""
    with world_in_a_new_directory() as world:
        old, new = world.backend("old"), world.backend("new")
        world.submit(service("web", {"http": 8080}), external("old", old), external("new", new))
        world.apply(split("web", "web", {"old": 100, "new": 0}))
        yield world


def revisions(world: World, *words: str) -> list[dict[str, Any]]:
    """Return the revisions of the split."""
    done = world.headgate("history", OBJECT, *words, "-o", "json")
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout)["items"])


def last(world: World, number: int) -> dict[str, Any]:
    """Wait for a number of revisions of the split; return the newest one."""
    return until(lambda: found[-1] if len(found := revisions(world)) == number else None)


def test_a_bad_change_is_found_in_the_history_and_undone(mesh: World) -> None:
    good = last(mesh, 1)["revision"]
    mesh.kubectl("patch", OBJECT, "--type=merge", "-p", '{"spec":{"backends":[{"service":"new","weight":1}]}}')
    mesh.settle()
    assert mesh.send(4, mesh.request("web", 8080)) == Counter(new=4)
    bad = last(mesh, 2)
    assert [change["by"] for change in bad["changes"]] == ["kubectl-patch"]
    assert any("default/old:8080" in line and "default/new:8080" in line for line in bad["effect"])
    shown = mesh.headgate("history", str(bad["revision"])).stdout
    assert "trafficsplit/web in default changed by kubectl-patch" in shown
    assert "  spec.backends[new].weight: 0 -> 1" in shown

    explained = mesh.headgate("explain", "--at", str(good), "http://web:8080/")
    assert "default/old:8080      1" in explained.stdout
    assert "pods, endpoints, Namespaces and Secrets are those of today" in explained.stderr
    printed = mesh.headgate("rollback", str(good), OBJECT, "--dry-run").stdout
    (manifest,) = filter(None, yaml.safe_load_all(printed))
    assert manifest["spec"]["backends"][0] == {"service": "old", "weight": 100}
    assert len(revisions(mesh)) == 2

    done = mesh.headgate("rollback", str(good), OBJECT)
    assert (done.returncode, done.stdout) == (0, "trafficsplit/web restored\n"), done.stderr
    mesh.settle()
    assert mesh.send(4, mesh.request("web", 8080)) == Counter(old=4)
    assert last(mesh, 3)["changes"][0]["by"] == "headgate-rollback"
    assert "nothing to restore" in mesh.headgate("rollback", str(good), OBJECT).stderr


def test_a_restart_keeps_the_history_from_which_deleted_objects_are_restored(mesh: World) -> None:
    before = last(mesh, 1)
    mesh.apply(split("web", "web", {"old": 50, "new": 50}))
    changed = last(mesh, 2)
    mesh.stop()
    mesh.start()
    assert revisions(mesh) == [before, changed]
    mesh.delete(OBJECT)
    deleted = last(mesh, 3)
    assert [(change["action"], change["by"]) for change in deleted["changes"]] == [("deleted", "")]
    restored = mesh.headgate("rollback", str(changed["revision"]), OBJECT)
    assert restored.stdout == "trafficsplit/web created\n"
    assert mesh.get(OBJECT)["spec"]["backends"][0] == {"service": "old", "weight": 50}
    for words in (("history", "999"), ("rollback", "999"), ("explain", "--at", "999", "http://web:8080/")):
        done = mesh.headgate(*words)
        assert (done.returncode, "revision 999 not found; the history has revisions 1 to" in done.stderr) == (1, True)
