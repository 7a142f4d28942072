"""`headgate status` and `headgate install` with a real API server."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cluster.conftest import Cluster, started
from tests.cluster.control_planes import install
from typer.testing import CliRunner, Result

from headgate.cli.app import app
from headgate.cli.inspect_client import InspectClient
from headgate.kubernetes.install.manifests import Values
from headgate.plane.mesh_state import Observed, mesh_state
from headgate.resources.inspect import ObjectName
from headgate.resources.mesh_status import MESH, MeshStatus, Revisions

PODS = "/api/v1/namespaces/headgate-system/pods"
READY = {"conditions": [{"type": "Ready", "status": "True"}]}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with started(tmp_path_factory.mktemp("status")) as found:
        asyncio.run(install(found, Values(image="headgate:1", budget_version="policy/v1beta1"), gateways=False))
        yield found


def replica(cluster: Cluster, name: str, **status: Any) -> None:
    """Create a pod of the control plane with a status, as a kubelet writes it."""
    labels = {"app.kubernetes.io/name": "headgate"}
    spec = {"serviceAccountName": "headgate", "containers": [{"name": "headgate", "image": "headgate:1"}]}
    cluster.make(PODS, {"metadata": {"name": name, "labels": labels}, "spec": spec})
    cluster.call("PATCH", f"{PODS}/{name}/status", {"status": status}, content_type="application/merge-patch+json")


def run(cluster: Cluster, patch: pytest.MonkeyPatch, *words: str) -> Result:
    """Run the command; the active replica reports a mesh without problems, because no pod runs here."""
    observed = Observed(Revisions(stored=1, compiled=1, current=True, failures=0), (), (), None)
    healthy = MeshStatus(metadata=ObjectName(name=MESH), status=mesh_state(observed, started=0, now=1))

    async def status(_client: InspectClient) -> MeshStatus:
        return healthy

    patch.setattr(InspectClient, "status", status)
    return CliRunner().invoke(app, ["status", "--kubeconfig", str(cluster.kubeconfig()), *words])


def test_a_replica_that_never_gets_ready_is_a_problem_with_its_reason(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica(cluster, "headgate-active", **READY)
    healthy = run(cluster, monkeypatch)
    assert healthy.exit_code == 0, healthy.output
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    container = {"image": "", "imageID": "", "ready": False, "restartCount": 0}
    replica(cluster, "headgate-new", containerStatuses=[{"name": "headgate", "state": waiting, **container}])
    found = run(cluster, monkeypatch)
    assert found.exit_code == 1
    line = "a replica of the control plane is not ready: pod headgate-new: ImagePullBackOff: no such image"
    assert found.output.splitlines()[-1] == line
    document = run(cluster, monkeypatch, "-o", "yaml").output
    assert "healthy: false" in document
    assert "pod headgate-new: ImagePullBackOff" in document


def test_install_prints_the_namespace_of_each_namespaced_object(cluster: Cluster) -> None:
    cluster.namespace("shop")
    words = ["install", "--kubeconfig", str(cluster.kubeconfig()), "--namespaces", "shop", "--timeout", "1"]
    lines = CliRunner().invoke(app, words).output.splitlines()
    assert "role/headgate-namespace created (namespace shop)" in lines
    assert "rolebinding/headgate-namespace created (namespace shop)" in lines
    (service,) = [line for line in lines if line.startswith("service/headgate-webhooks ")]
    assert service.endswith(" (namespace headgate-system)")
    (cluster_role,) = [line for line in lines if line.startswith("clusterrole/headgate ")]
    assert "(namespace" not in cluster_role
