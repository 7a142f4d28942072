"""Damage the store, and restore it from a backup, with the commands that the documentation shows."""

import os
import subprocess
from collections.abc import Callable

from tests.docs.console import ROOT, blocks
from tests.e2e.manifests import site
from tests.e2e.running_mesh import RunningMesh
from tests.make.objects import config_map, manifest
from tests.waiting import until

PAGE = ROOT / "docs/tasks/local-runtime.md"


def documented(word: str) -> str:
    """Return the commands of the block that has a word, as a script."""
    texts = [block for block in blocks(PAGE) if block.language == "console" and word in block.text]
    (block,) = texts
    return "\n".join(step.command for step in block.steps())


def run(mesh: RunningMesh, script: str) -> None:
    """Run a script in the directory that contains the mesh's state directory as `.headgate`."""
    link = mesh.root / ".headgate"
    if not link.exists():
        link.symlink_to(mesh.state)
    subprocess.run(["bash", "-ec", script], cwd=mesh.root, check=True)


def create_config_map(mesh: RunningMesh, name: str) -> None:
    mesh.submit(manifest(config_map(name, {"a": "b"})))


def test_a_backup_of_a_running_mesh_is_restored_as_documented(shared_mesh: Callable[..., RunningMesh]) -> None:
    mesh = shared_mesh(site)
    create_config_map(mesh, "before")
    run(mesh, documented("VACUUM INTO"))
    assert (mesh.root / "backup.sqlite").stat().st_mode & 0o077 == 0
    create_config_map(mesh, "after")
    mesh.kill()
    database = mesh.state / "objects.sqlite"
    database.write_bytes(os.urandom(16384))
    database.with_name("objects.sqlite-wal").unlink()
    mesh.launch()
    until(lambda: not mesh.runs)
    assert "can't read the store" in mesh.stderr
    run(mesh, documented("cp backup.sqlite"))
    mesh.start()
    assert "Changes are lost" in mesh.stderr
    assert mesh.get("configmap/before")["data"] == {"a": "b"}
    assert "after" not in [item["metadata"]["name"] for item in mesh.get("configmaps")["items"]]
    assert mesh.send(40, mesh.request("web", 8080)) == {"v1": 30, "v2": 10}


def test_the_rest_of_a_mesh_runs_without_a_damaged_object(shared_mesh: Callable[..., RunningMesh]) -> None:
    """Objects of the manifests directory are applied again at the same start."""
    mesh = shared_mesh(site)
    create_config_map(mesh, "mine")
    pods = mesh.processes()
    mesh.kill()
    damage = "UPDATE objects SET body = 'x' WHERE name IN ('mine', 'web')"
    run(
        mesh,
        f"python3 -c \"import sqlite3; c = sqlite3.connect('.headgate/objects.sqlite'); c.execute('''{damage}'''); c.commit()\"",
    )
    mesh.start()
    assert "The object ConfigMap default/mine in the store is damaged" in mesh.stderr
    assert mesh.processes() == pods
    assert mesh.send(40, mesh.request("web", 8080)) == {"v1": 30, "v2": 10}
    (status, check) = mesh.headgate("status"), mesh.headgate("check")
    assert status.returncode == check.returncode == 1
    assert "ConfigMap_default_mine_" in status.stdout
    for file in (mesh.state / "damaged-objects").iterdir():
        file.unlink()
    until(lambda: mesh.headgate("status").returncode == 0)  # it fails until each proxy has connected again
