"""A real API server accepts the definition of the kind Sidecar, and keeps all fields of its containers (R79)."""

import time
from typing import Any

from tests.cluster.conftest import READY_S, Cluster

from headgate.kubernetes.install.custom_resources import custom_resource_definitions
from headgate.resources.registry import SIDECAR

WEBHOOK = {"service": {"namespace": "none", "name": "none", "port": 443}}
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
OBJECTS = "/apis/headgate.dev/v1beta1/namespaces/default/sidecars"


def test_the_fields_of_containers_are_kept_and_a_container_without_a_name_is_rejected(cluster: Cluster) -> None:
    (definition,) = custom_resource_definitions([SIDECAR], WEBHOOK)
    if cluster.call("GET", f"{DEFINITIONS}/{definition['metadata']['name']}")[0] == 404:
        cluster.make(DEFINITIONS, definition)
    until = time.monotonic() + READY_S
    while cluster.call("GET", OBJECTS)[0] != 200 and time.monotonic() < until:
        time.sleep(0.1)  # the API server has no event for a newly served kind
    agent = {"name": "agent", "image": "agent:3", "securityContext": {"runAsUser": 7}, "ports": [{"containerPort": 1}]}
    spec: dict[str, Any] = {"selector": {}, "containers": [agent], "env": [{"name": "MODE", "value": "monitored"}]}
    body = {"apiVersion": "headgate.dev/v1beta1", "kind": "Sidecar", "metadata": {"name": "monitoring"}, "spec": spec}
    code, made = cluster.call("POST", OBJECTS, body)
    assert (code, made["spec"]) == (201, spec)
    nameless = {**body, "metadata": {"name": "nameless"}, "spec": {**spec, "containers": [{"image": "agent:3"}]}}
    code, answer = cluster.call("POST", OBJECTS, nameless)
    assert code == 422
    assert "name: Required value" in answer["message"]
    assert cluster.call("DELETE", f"{OBJECTS}/monitoring")[0] == 200
