"""A real API server with the definitions of Canaries and Sidecars: what it keeps, rejects by itself and shows (R79, R109)."""

import re
import subprocess
from typing import Any

import pytest
from tests.cluster.api_server import KubeApiServer
from tests.e2e.running_mesh import KUBECTL
from tests.make.objects import container, sidecar
from tests.make.rollouts import conditions_of
from tests.make.sound_objects import path, sound
from tests.resources.canary import canary_with

from headgate.resources.columns import with_summary
from headgate.resources.kind import Kind
from headgate.resources.registry import CANARY, KINDS, SIDECAR

CANARIES = "/apis/headgate.dev/v1beta1/namespaces/shop/canaries"
SIDECARS = "/apis/headgate.dev/v1beta1/namespaces/shop/sidecars"
ANALYSIS = {
    "steps": [{"share": "20%", "pause": False}, {"share": "50%", "pause": True}],
    "interval": "1m",
    "minRequests": 20,
    "errorProbability": "1%",
    "dryRun": False,
    "success": {"maxDrop": "0%", "margin": "1%", "min": "99.5%"},
    "latencies": [{"percentile": "p99", "max": "500ms", "maxIncrease": "10%"}],
}
FIELDS_OF_SPLIT = {
    "stickiness": {"by": "Cookie", "name": "side"},
    "noEndpointsPolicy": "Fail",
    "allowSelfReference": False,
    "gateway": "Envoy",
}
ROLLOUT = {
    "observedGeneration": 1,
    "conditions": conditions_of("Progressing", "2 of 20 requests"),
    "step": 2,
    "stepCount": 4,
    "canaryShare": "20%",
    "backends": [{"service": "website-v1", "weight": 4, "requests": 8, "failures": 0}],
    "criteria": [{"name": "success", "rollBack": "3%", "promote": "40%"}],
    "rollout": {"step": 1, "since": 1000.5, "evidence": {"success": {"fine": {"evidence": 1.25}}}},
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
    body = canary_with(ANALYSIS, **FIELDS_OF_SPLIT, paused=False, backends=backends)
    made = cluster.make(CANARIES, body)
    assert made["spec"] == body["spec"]
    code, written = cluster.call("PUT", f"{CANARIES}/website/status", {**made, "status": ROLLOUT})
    assert (code, written["status"]) == (200, ROLLOUT)
    assert shown(cluster, CANARY)[:7] == ["website", "website", "Progressing", "2", "20%", "True", "True"]
    command = [KUBECTL, "--kubeconfig", str(cluster.kubeconfig()), "get", "headgate", "-n", "shop", "-o", "name"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert "canary.headgate.dev/website" in listed


@pytest.mark.parametrize(
    ("analysis", "field"),
    [
        ({"steps": [{"share": "101%"}]}, "share"),
        ({"errorProbability": "0.01"}, "errorProbability"),
        ({"interval": "soon"}, "interval"),
        ({"latencies": [{"percentile": "99"}]}, "percentile"),
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


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.schema], ids=lambda kind: kind.kind)
@pytest.mark.parametrize("with_status", [True, False])
def test_a_table_has_the_cells_of_the_embedded_api(cluster: KubeApiServer, kind: Kind, *, with_status: bool) -> None:
    """Without a status, the texts that it has for the table are empty."""
    name = f"shown-{with_status}".lower()
    made = cluster.make(path(kind), sound(kind, name))
    if with_status and kind.ready_by:
        conditions = conditions_of("Progressing", "2 of 20 requests")
        status: dict[str, Any] = {"observedGeneration": 1, "conditions": conditions}
        if kind.kind != "Canary":
            status["pods"] = {"total": 3, "injected": 2} if kind is SIDECAR else {"total": 3, "sidecars": 2}
        if kind.kind not in ("Canary", "Sidecar"):
            status["proxies"] = {"programmed": 1, "total": 3}
        if kind.kind == "TrafficSplit":
            del status["pods"]
        if kind is CANARY:
            status |= {"step": 2, "stepCount": 4, "canaryShare": "20%"}
        status = {**with_summary(kind.columns, made, status)}
        code, made = cluster.call("PUT", f"{path(kind)}/{name}/status", {**made, "status": status})
        assert (code, made["status"]) == (200, status)
    table = "application/json;as=Table;v=v1;g=meta.k8s.io"
    code, shown = cluster.call("GET", f"{path(kind)}/{name}", accept=table)
    (row,) = shown["rows"]
    cells = dict(zip([column["name"] for column in shown["columnDefinitions"]], row["cells"], strict=True))
    assert cells.keys() == {column.name for column in kind.columns}
    for column in kind.columns:
        has_no_text = column.path.startswith(".status.summary") and not with_status
        expected = "" if has_no_text else column.shown(made)
        assert column.name == "Age" or (cells[column.name] or "") == (expected or ""), column.name


def test_a_container_without_a_name_is_rejected(cluster: KubeApiServer) -> None:
    nameless = sidecar("nameless", {}, namespace="shop", containers=[{"image": "agent:3"}])
    code, answer = cluster.call("POST", SIDECARS, nameless)
    assert code == 422
    assert "name: Required value" in answer["message"]
