"""`headgate status` with a real API server."""

from typing import Any

import pytest
from tests.cluster.api_server import MERGE, KubeApiServer
from tests.cluster.installation import SYSTEM
from typer.testing import CliRunner, Result

from headgate.cli.app import app
from headgate.cli.inspect_client import InspectClient
from headgate.plane.mesh_state import Observed, mesh_state
from headgate.resources.inspect import ObjectName
from headgate.resources.mesh_status import MESH, MeshStatus, Revisions

PODS = f"{SYSTEM}/pods"
READY = {"conditions": [{"type": "Ready", "status": "True"}]}


def replica(cluster: KubeApiServer, name: str, **status: Any) -> None:
    """Create a pod of the control plane with a status, as a kubelet writes it."""
    labels = {"app.kubernetes.io/name": "headgate"}
    spec = {"serviceAccountName": "headgate", "containers": [{"name": "headgate", "image": "headgate:1"}]}
    cluster.make(PODS, {"metadata": {"name": name, "labels": labels}, "spec": spec})
    cluster.call("PATCH", f"{PODS}/{name}/status", {"status": status}, content_type=MERGE)


def run(cluster: KubeApiServer, patch: pytest.MonkeyPatch, *words: str) -> Result:
    """Run the command; the active replica reports a mesh without problems, because no pod runs here."""
    observed = Observed(Revisions(stored=1, compiled=1, current=True, failures=0), (), ())
    healthy = MeshStatus(metadata=ObjectName(name=MESH), status=mesh_state(observed, started=0, now=1))

    async def status(_client: InspectClient) -> MeshStatus:
        return healthy

    patch.setattr(InspectClient, "status", status)
    return CliRunner().invoke(app, ["status", "--kubeconfig", str(cluster.kubeconfig()), *words])


def test_a_replica_that_never_gets_ready_is_a_problem_with_its_reason(
    cluster: KubeApiServer, monkeypatch: pytest.MonkeyPatch
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
