"""`kubectl get` on a real API server shows the columns of the definitions, which the embedded API shows as well."""

import subprocess
import time
from typing import Any

from tests.cluster.conftest import READY_S, Cluster
from tests.e2e.running_mesh import KUBECTL

from headgate.kubernetes.install.custom_resources import custom_resource_definitions
from headgate.resources.registry import SIDECAR
from headgate.standalone.apiserver.tables import columns_of

WEBHOOK = {"service": {"namespace": "none", "name": "none", "port": 443}}
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
OBJECTS = "/apis/headgate.dev/v1beta1/namespaces/columns/sidecars"


def test_kubectl_shows_the_status_of_an_object(cluster: Cluster) -> None:
    (definition,) = custom_resource_definitions([SIDECAR], WEBHOOK)
    if cluster.call("GET", f"{DEFINITIONS}/{definition['metadata']['name']}")[0] == 404:
        cluster.make(DEFINITIONS, definition)
    cluster.namespace("columns")
    until = time.monotonic() + READY_S
    while cluster.call("GET", OBJECTS)[0] != 200 and time.monotonic() < until:
        time.sleep(0.1)  # the API server has no event for a newly served kind
    spec = {"selector": {}, "containers": [{"name": "agent", "image": "agent:3"}]}
    body = {"apiVersion": "headgate.dev/v1beta1", "kind": "Sidecar", "metadata": {"name": "agent"}, "spec": spec}
    made = cluster.make(OBJECTS, body)
    condition = {"type": "Accepted", "status": "True", "reason": "Accepted", "message": ""}
    conditions = [{**condition, "lastTransitionTime": made["metadata"]["creationTimestamp"]}]
    status: dict[str, Any] = {"pods": {"total": 3, "injected": 2}, "conditions": conditions}
    assert cluster.call("PUT", f"{OBJECTS}/agent/status", {**made, "status": status})[0] == 200

    command = [KUBECTL, "--kubeconfig", str(cluster.kubeconfig()), "get", "sidecars.headgate.dev", "-n", "columns"]
    titles, cells = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert titles.split() == [column.name.upper() for column in columns_of(SIDECAR) if not column.wide]
    assert cells.split()[:4] == ["agent", "3", "2", "True"]
