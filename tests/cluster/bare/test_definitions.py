"""Definitions that an installation replaces: stored objects stay valid."""

from collections.abc import Mapping
from typing import Any

from tests.cluster.api_server import MERGE, KubeApiServer
from tests.resources.canary import canary_with

from headgate.kubernetes.install.custom_resources import custom_resource_definitions
from headgate.resources.registry import CANARY
from headgate.resources.schema.defaults import with_schema_defaults

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CANARIES = "/apis/headgate.dev/v1beta1/namespaces/default/canaries"


def without_defaults(part: Any) -> Any:
    """Return a part of a schema without default values."""
    if isinstance(part, Mapping):
        return {name: without_defaults(value) for name, value in part.items() if name != "default"}
    return [without_defaults(element) for element in part] if isinstance(part, list) else part


def test_a_stored_canary_gets_new_defaults_and_keeps_its_generation(cluster: KubeApiServer) -> None:
    (definition,) = custom_resource_definitions((CANARY,), {})
    made = cluster.make(DEFINITIONS, {**definition, "spec": without_defaults(definition["spec"])})
    while cluster.call("GET", CANARIES)[0] != 200:
        pass  # retry until the test's timeout
    body = canary_with({"steps": [{"share": "20%"}], "clientErrors": {}})
    del body["metadata"]["namespace"]
    old = cluster.make(CANARIES, body)
    assert old["spec"] == body["spec"]

    place = f"{DEFINITIONS}/{made['metadata']['name']}"
    assert cluster.call("PATCH", place, {"spec": definition["spec"]}, content_type=MERGE)[0] == 200
    expected = with_schema_defaults(body)["spec"]
    assert expected != body["spec"]
    while (new := cluster.call("GET", f"{CANARIES}/website")[1])["spec"] == old["spec"]:
        pass  # retry until the test's timeout
    assert (new["spec"], new["metadata"]["generation"]) == (expected, 1)
    labels = {"metadata": {"labels": {"written": "again"}}}
    code, written = cluster.call("PATCH", f"{CANARIES}/website", labels, content_type=MERGE)
    assert (code, written["spec"], written["metadata"]["generation"]) == (200, expected, 1)
