"""A real API server accepts the definition of the kind Canary, and checks what a schema expresses (R109, D19)."""

import re
import subprocess
import time
from typing import Any

import pytest
from tests.cluster.conftest import READY_S, Cluster
from tests.e2e.running_mesh import KUBECTL
from tests.resources.canary import canary

from headgate.kubernetes.install.custom_resources import custom_resource_definitions
from headgate.resources.registry import CANARY
from headgate.standalone.apiserver.tables import columns_of

WEBHOOK = {"service": {"namespace": "none", "name": "none", "port": 443}}
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
OBJECTS = "/apis/headgate.dev/v1beta1/namespaces/shop/canaries"
ANALYSIS = {
    "steps": [{"weight": 20}, {"weight": 50, "pause": True}],
    "interval": "1m",
    "minRequests": 20,
    "errorProbability": "1%",
    "dryRun": False,
    "success": {"maxDrop": "0%", "margin": "1%", "min": "99.5%"},
    "latency": [{"percentile": "p99", "max": "500ms"}, {"percentile": "p99", "maxIncrease": "10%"}],
}
STATUS = {
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


@pytest.fixture
def served(cluster: Cluster) -> Cluster:
    (definition,) = custom_resource_definitions([CANARY], WEBHOOK)
    if cluster.call("GET", f"{DEFINITIONS}/{definition['metadata']['name']}")[0] == 404:
        cluster.make(DEFINITIONS, definition)
        cluster.namespace("shop")
    until = time.monotonic() + READY_S
    while cluster.call("GET", OBJECTS)[0] != 200 and time.monotonic() < until:
        time.sleep(0.1)  # the API server has no event for a newly served kind
    return cluster


def test_all_fields_are_kept_and_kubectl_shows_the_state(served: Cluster) -> None:
    backends = [{"service": "website-v1", "weight": 9}, {"service": "website-v2", "weight": "1000m"}]
    body = canary(ANALYSIS, paused=False, backends=backends)
    made = served.make(OBJECTS, body)
    assert made["spec"] == body["spec"]
    code, written = served.call("PUT", f"{OBJECTS}/website/status", {**made, "status": STATUS})
    assert (code, written["status"]) == (200, STATUS)
    command = [KUBECTL, "--kubeconfig", str(served.kubeconfig()), "get", "canaries", "-n", "shop"]
    titles, cells = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert titles.split() == [column.name.upper() for column in columns_of(CANARY) if not column.wide]
    assert cells.split()[:5] == ["website", "website", "Progressing", "2", "20%"]
    assert served.call("DELETE", f"{OBJECTS}/website")[0] == 200


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
def test_the_api_server_rejects_a_mistake_without_the_webhook(served: Cluster, analysis: Any, field: str) -> None:
    code, answer = served.call("POST", OBJECTS, canary(analysis))
    assert code == 422
    assert re.search(rf"spec\.analysis\.[a-z.\[\]0-9]*{field}: ", answer["message"])
