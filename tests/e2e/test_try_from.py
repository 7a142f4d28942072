"""`headgate try --from`: the workload's sidecar sends the requests with its identity; denied requests are failures."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.running_mesh import RunningMesh, mesh_in_a_new_directory
from tests.waiting import until

from headgate.standalone.network.choice import missing

EXAMPLE = Path(__file__).parents[2] / "examples" / "bookstore"


@pytest.fixture(scope="module", params=["host", "pod"])
def bookstore(request: pytest.FixtureRequest) -> Iterator[RunningMesh]:
    """Return the example, once with explicit sidecars and once with transparent ones."""
    if request.param == "pod" and (reason := missing()):
        pytest.skip(reason)
    manifests = {path.name: path.read_text() for path in EXAMPLE.glob("*.yaml")}
    with mesh_in_a_new_directory("--network", request.param, manifests=manifests) as mesh:
        until(lambda: mesh.headgate("status").returncode == 0)
        yield mesh


@pytest.mark.parametrize("caller", ["deployment/buyer", "serviceaccount/buyer"])
def test_an_allowed_workload_gets_the_shares_of_the_split(bookstore: RunningMesh, caller: str) -> None:
    done = bookstore.headgate("try", "http://bookstore:8080/books", "--from", caller, "--number", "200", "-o", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["caller"].startswith("Pod default/buyer-")
    assert found["identity"].endswith("/ns/default/sa/buyer")
    assert (found["statuses"], found["failed"]) == ({"200": 200}, 0)
    assert {item["backend"]: item["fits"] for item in found["backends"]} == {
        "default/bookstore-v1": True,
        "default/bookstore-v2": True,
    }


def test_denied_requests_of_a_workload_are_failures(bookstore: RunningMesh) -> None:
    arguments = ("try", "http://bookstore:8080/books", "--from", "serviceaccount/thief", "--number", "20")
    done = bookstore.headgate(*arguments)
    assert done.returncode == 1
    assert "x 403 from the sidecar of default/bookstore-v1: headgate: access denied: no rule of this" in done.stdout
    assert "sa/thief" in done.stdout
    assert "20 failed" in done.stdout
    found = json.loads(bookstore.headgate(*arguments, "-o", "json").stdout)
    assert (found["failed"], {item["refused"] for item in found["failures"]}) == (20, {True})
    pod = bookstore.get("pods")["items"]
    thief = next(item["metadata"]["name"] for item in pod if item["metadata"]["labels"]["app"] == "thief")
    assert bookstore.headgate(*arguments[:3], f"pod/{thief}", "-n", "1").returncode == 1


def test_requests_without_from_have_the_identity_of_the_gateway(bookstore: RunningMesh) -> None:
    done = bookstore.headgate("try", "http://bookstore:8080/books", "--number", "5")
    assert done.returncode == 1
    assert "headgate-system/sa/gateway" in done.stdout


def test_try_names_a_workload_that_does_not_exist(bookstore: RunningMesh) -> None:
    done = bookstore.headgate("try", "http://bookstore:8080/", "--from", "deployment/missing")
    assert done.returncode == 1
    assert "found no sidecar of Deployment default/missing" in done.stderr
    done = bookstore.headgate("try", "http://bookstore:8080/", "--from", "pod/missing")
    assert "error: found no sidecar of Pod default/missing" in done.stderr
    done = bookstore.headgate("try", "http://bookstore:8080/", "--from", "buyer")
    assert (done.returncode, "'buyer' is not a client" in done.stderr) == (2, True)
