"""A real API server with the definitions of Canaries and Sidecars: what it keeps, rejects by itself and shows (R79, R109)."""

import re
import subprocess
from typing import Any

import pytest
from tests.cluster.api_server import KubeApiServer
from tests.e2e.running_mesh import KUBECTL
from tests.make.objects import container, sidecar
from tests.resources.canary import canary_with

from headgate.resources.kind import Kind
from headgate.resources.registry import CANARY, SIDECAR

CANARIES = "/apis/headgate.dev/v1beta1/namespaces/shop/canaries"
SIDECARS = "/apis/headgate.dev/v1beta1/namespaces/shop/sidecars"
ANALYSIS = {
    "steps": [{"weight": 20}, {"weight": 50, "pause": True}],
    "interval": "1m",
    "minRequests": 20,
    "errorProbability": "1%",
    "dryRun": False,
    "success": {"maxDrop": "0%", "margin": "1%", "min": "99.5%"},
    "latency": [{"percentile": "p99", "max": "500ms"}, {"percentile": "p99", "maxIncrease": "10%"}],
}
ROLLOUT = {
    "observedGeneration": 1,
    "phase": "Progressing",
    "message": "2 of 20 requests",
    "step": 2,
    "steps": 4,
    "canaryWeight": "20%",
    "backends": [{"service": "website-v1", "weight": 4, "requests": 8, "failures": 0}],
    "criteria": [{"name": "success", "rollBack": "3%", "promote": "40%"}],
    "rollout": '{"step": 1}',
}


@pytest.fixture(scope="module", autouse=True)
def shop(cluster: KubeApiServer) -> None:
    cluster.namespace("shop")


def shown(cluster: KubeApiServer, kind: Kind) -> list[str]:
    """Return the cells that kubectl shows for the only object of a kind. Asserts that it shows the embedded API's columns."""
    name = f"{kind.plural}.{kind.group}"
    command = [KUBECTL, "--kubeconfig", str(cluster.kubeconfig()), "get", name, "-n", "shop"]
    titles, cells = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert titles.split() == [column.name.upper() for column in kind.columns if not column.wide]
    return cells.split()


def test_all_fields_of_a_canary_are_kept_and_kubectl_shows_the_state(cluster: KubeApiServer) -> None:
    backends = [{"service": "website-v1", "weight": 9}, {"service": "website-v2", "weight": "1000m"}]
    body = canary_with(ANALYSIS, paused=False, backends=backends)
    made = cluster.make(CANARIES, body)
    assert made["spec"] == body["spec"]
    code, written = cluster.call("PUT", f"{CANARIES}/website/status", {**made, "status": ROLLOUT})
    assert (code, written["status"]) == (200, ROLLOUT)
    assert shown(cluster, CANARY)[:5] == ["website", "website", "Progressing", "2", "20%"]
    command = [KUBECTL, "--kubeconfig", str(cluster.kubeconfig()), "get", "headgate", "-n", "shop", "-o", "name"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert "canary.headgate.dev/website" in listed


@pytest.mark.parametrize(
    ("analysis", "field"),
    [
        ({"steps": [{"weight": 0}]}, "weight"),
        ({"errorProbability": "0.01"}, "errorProbability"),
        ({"interval": "soon"}, "interval"),
        ({"latency": [{"percentile": "99"}]}, "percentile"),
        ({"canary": None}, "canary"),
    ],
)
def test_the_api_server_rejects_a_mistake_in_a_canary_without_the_webhook(
    cluster: KubeApiServer, analysis: Any, field: str
) -> None:
    code, answer = cluster.call("POST", CANARIES, canary_with(analysis))
    assert code == 422
    assert re.search(rf"spec\.analysis\.[a-z.\[\]0-9]*{field}: ", answer["message"])


def test_the_fields_of_a_sidecars_containers_are_kept_and_kubectl_shows_its_status(cluster: KubeApiServer) -> None:
    agent = container("agent", 1, image="agent:3", securityContext={"runAsUser": 7})
    body = sidecar("agent", {}, namespace="shop", containers=[agent], env=[{"name": "MODE", "value": "monitored"}])
    made = cluster.make(SIDECARS, body)
    assert made["spec"] == body["spec"]
    condition = {"type": "Accepted", "status": "True", "reason": "Accepted", "message": ""}
    conditions = [{**condition, "lastTransitionTime": made["metadata"]["creationTimestamp"]}]
    status: dict[str, Any] = {"pods": {"total": 3, "injected": 2}, "conditions": conditions}
    assert cluster.call("PUT", f"{SIDECARS}/agent/status", {**made, "status": status})[0] == 200
    assert shown(cluster, SIDECAR)[:4] == ["agent", "3", "2", "True"]


def test_a_container_without_a_name_is_rejected(cluster: KubeApiServer) -> None:
    nameless = sidecar("nameless", {}, namespace="shop", containers=[{"image": "agent:3"}])
    code, answer = cluster.call("POST", SIDECARS, nameless)
    assert code == 422
    assert "name: Required value" in answer["message"]
