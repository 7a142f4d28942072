"""No request is lost to a canary that refuses connections or dies, and it is rolled back (D33)."""

import pytest
from tests.e2e.running_mesh import RunningMesh
from tests.e2e.versions import ANALYSIS, Versions
from tests.make.rollouts import message_of
from tests.waiting import until


@pytest.fixture
def versions(mesh: RunningMesh, namespace: str) -> Versions:
    return Versions(mesh, namespace)


def test_a_canary_that_refuses_connections_is_rolled_back_and_loses_no_request(versions: Versions) -> None:
    """Its requests are repeated at the primary, and still count against it."""
    mesh, namespace = versions.mesh, versions.namespace
    versions.next.close()
    versions.begin({**ANALYSIS, "interval": "1m"})
    with mesh.load(mesh.request("web", 8080, namespace=namespace)) as load:
        status = versions.ended("RolledBack")
    assert set(load.counts) == {"current"}
    assert "rolled back at step 1 of 3, 10%: more requests fail than at web-current; web-next failed " in message_of(
        status
    )
    assert "attempts without a connection among them" in message_of(status)


def test_a_canary_that_dies_after_it_has_passed_its_step_is_rolled_back(versions: Versions) -> None:
    """The pause keeps a passed step, however long the evidence takes."""
    mesh, namespace = versions.mesh, versions.namespace
    versions.begin({**ANALYSIS, "interval": "5s", "steps": [{"share": "10%", "pause": True}], "minRequests": 1})
    with mesh.load(mesh.request("web", 8080, namespace=namespace)) as load:
        until(lambda: "the step is passed and has a pause" in message_of(versions.status()), seconds=60)
        mesh.delete("endpointslice/web-next-http-0", namespace)
        status = versions.ended("RolledBack")
    assert set(load.counts) == {"current", "next"}
    assert "web-next has had no ready endpoint for 5s" in message_of(status)
