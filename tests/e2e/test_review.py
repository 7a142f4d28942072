"""docs/tasks/review.md: a change to examples/bookstore in CI, access rules from its traffic, and a bad change that is undone."""

import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from tests.e2e.bookstore import ALLOWED, BOOKSTORE, DENIED, EXAMPLES, last_results
from tests.e2e.running_mesh import BIN, RunningMesh
from tests.waiting import until

REVIEW = EXAMPLES / "review"
GENERATED = "traffictarget/bookstore-http-8080"


@pytest.mark.parametrize(
    ("change", "code", "verdicts"),
    [
        ("half", 0, ["holds: no new access", "holds: never"]),
        ("inventory", 1, ["does not hold: no new access", "does not hold: never"]),
    ],
)
def test_the_check_of_a_pull_request_refuses_new_access(change: str, code: int, verdicts: list[str]) -> None:
    command = [REVIEW / "check.sh", EXAMPLES / "bookstore", REVIEW / f"changes/{change}.yaml"]
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == code, done.stderr
    assert re.findall(r"^(?:holds|does not hold): (?:no new access|never)", done.stdout, re.MULTILINE) == verdicts


def test_rules_from_the_traffic_close_the_thief_out_and_a_bad_change_is_found_and_undone(
    new_mesh: Callable[..., RunningMesh], tmp_path: Path
) -> None:
    """Once the mesh has started, no request of the buyer fails until the bad change."""
    mesh = new_mesh(manifests=BOOKSTORE)
    until(lambda: last_results(mesh, "buyer") == ALLOWED, "the buyer buys")
    started = len(mesh.log("buyer"))
    mesh.kubectl("annotate", "traffictargets", "--all", "headgate.dev/mode=audit")
    until(lambda: last_results(mesh, "thief") == ALLOWED, "the audit refuses nothing")
    generate = (
        "generate",
        "traffictargets",
        "--from-traffic",
        "168h",
        "--exclude",
        "default/thief",
        "--output-dir",
        str(tmp_path),
    )
    until(lambda: "3 TrafficTargets allow" in mesh.headgate(*generate).stderr, "a call of each caller is recorded")
    mesh.kubectl("apply", "-f", tmp_path)
    mesh.kubectl("delete", "traffictarget", "buyer-to-bookstore", "bookstore-to-warehouse", "warehouse-to-database")
    until(lambda: last_results(mesh, "thief") == DENIED, "the thief is denied")
    until(lambda: last_results(mesh, "buyer") == ALLOWED, "the buyer buys")
    assert not [line for line in mesh.log("buyer")[started:] if "403" in line or "503" in line]

    good = revisions(mesh)[-1]
    patch = [{"op": "replace", "path": "/spec/sources/0/name", "value": "buyers"}]
    warned = mesh.try_kubectl("patch", GENERATED, "--type=json", "-p", json.dumps(patch)).stderr
    assert (
        "Warning: effect on requests and access: 1 loss of access, 1 gain of access; first: ServiceAccount " in warned
    )
    until(lambda: last_results(mesh, "buyer") == DENIED, "the bad change is active")
    bad = until(lambda: found[-1] if (found := revisions(mesh))[-1] != good else None)
    assert bad["changes"][0]["by"] == "kubectl-patch"
    assert "ServiceAccount default/buyer may no longer send all requests" in bad["effectMessages"][0]
    done = mesh.headgate("rollback", str(good["revision"]), GENERATED)
    assert done.stdout == f"{GENERATED} restored\n", done.stderr
    until(lambda: last_results(mesh, "buyer") == ALLOWED, "the buyer buys again")
    warned = mesh.try_kubectl("delete", GENERATED).stderr
    assert "may send all requests to ServiceAccount default/bookstore, port 8080" in warned


def revisions(mesh: RunningMesh) -> list[Mapping[str, list[Mapping[str, str]]]]:
    """Return the revisions of the generated rule."""
    return list(json.loads(mesh.headgate("history", GENERATED, "-o", "json").stdout)["items"])
