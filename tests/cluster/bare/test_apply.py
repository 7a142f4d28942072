"""headgate's server-side apply has the same objects, managers and conflicts as a real kube-apiserver."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest
from tests.cluster.api_server import KubeApiServer
from tests.cluster.isolation import emptied
from tests.cluster.shared_servers import Shared
from tests.decoding import admit
from tests.embedded_api import TOKEN, AsgiClient

from headgate.kubernetes.install.custom_resources import custom_resource_definitions
from headgate.resources.gateway_api.gateway import KIND as GATEWAY
from headgate.resources.registry import CANARY, TRAFFIC_SPLIT
from headgate.standalone.apiserver.app import create_app
from headgate.standalone.store.memory import MemoryStore

APPLY = "application/apply-patch+yaml"
INT_OR_STRING = "x-kubernetes-int-or-string"
MERGE = "application/merge-patch+json"
MAPS = "/api/v1/namespaces/default/configmaps"
SERVICES = "/api/v1/namespaces/default/services"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
SPLITS = "/apis/split.smi-spec.io/v1alpha4/namespaces/default/trafficsplits"
CANARIES = "/apis/headgate.dev/v1beta1/namespaces/default/canaries"
GATEWAYS = "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways"


class Step(NamedTuple):
    """One write by one manager; `verb` is apply, force, create, merge, update or status."""

    manager: str
    verb: str
    fields: Mapping[str, Any]


def _content(**data: Any) -> dict[str, Any]:
    return {"data": data}


def _deployment(*containers: Any, **spec: Any) -> dict[str, Any]:
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": list(containers)}}
    return {"spec": {"selector": {"matchLabels": labels}, "template": template, **spec}}


def _port(port: int, **more: Any) -> dict[str, Any]:
    return {"port": port, "protocol": "TCP", "targetPort": port, **more}


def _split(**weights: int) -> dict[str, Any]:
    return {"spec": {"service": "web", "backends": [{"service": n, "weight": w} for n, w in weights.items()]}}


def _canary(**analysis: Any) -> dict[str, Any]:
    backends = [{"service": "web-v1", "weight": "9"}, {"service": "web-v2", "weight": "1000m"}]
    return {"spec": {"service": "web", "backends": backends, "analysis": {"canary": "web-v2", **analysis}}}


def _gateway(**ports: int) -> dict[str, Any]:
    listeners = [{"name": name, "port": port, "protocol": "HTTP"} for name, port in ports.items()]
    return {"spec": {"gatewayClassName": "headgate", "listeners": listeners}}


def _label(**labels: str) -> dict[str, Any]:
    return {"metadata": {"labels": labels}}


WEB = {"name": "web", "image": "web", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}
SEQUENCES = {
    "a field removed from the manifest is removed from the object": (
        MAPS,
        [Step("one", "apply", _content(a="1", b="2")), Step("one", "apply", _content(b="2"))],
    ),
    "two managers of different fields": (
        MAPS,
        [Step("one", "apply", _content(a="1")), Step("two", "apply", _content(b="2")), Step("one", "apply", _label(x="y"))],
    ),
    "a field of two managers stays until both remove it": (
        MAPS,
        [
            Step("one", "apply", _content(a="1", b="1")),
            Step("two", "apply", _content(a="1")),
            Step("one", "apply", _content(b="1")),
            Step("two", "apply", _label(x="y")),
        ],
    ),
    "a conflict, then a forced apply": (
        MAPS,
        [
            Step("one", "apply", _content(a="1", c="1")),
            Step("two", "apply", _content(a="2", c="2")),
            Step("two", "force", _content(a="2", c="2")),
            Step("one", "apply", _content(a="1")),
        ],
    ),
    "an update takes ownership of fields": (
        MAPS,
        [
            Step("one", "apply", _content(a="1", b="1")),
            Step("two", "merge", _content(a="2")),
            Step("one", "apply", _content(a="1", b="1")),
            Step("one", "apply", _content(b="1")),
        ],
    ),
    "created, patched, applied": (
        MAPS,
        [
            Step("one", "create", {**_content(a="1"), **_label(x="1", y="2")}),
            Step("two", "merge", {"metadata": {"labels": {"x": "2", "z": "3"}, "annotations": {"n": "1"}}}),
            Step("three", "apply", _content(b="1")),
            Step("two", "merge", {"metadata": {"labels": {"x": None}}}),
        ],
    ),
    "finalizers are a set": (
        MAPS,
        [
            Step("one", "apply", {"metadata": {"finalizers": ["a.example/x"]}}),
            Step("two", "apply", {"metadata": {"finalizers": ["b.example/x", "a.example/x"]}}),
            Step("one", "apply", _content(a="1")),
            Step("two", "apply", _content(b="1")),
        ],
    ),
    "ports of a Service by port and protocol": (
        SERVICES,
        [
            Step("one", "apply", {"spec": {"ports": [_port(80, name="http")]}}),
            Step("two", "apply", {"spec": {"ports": [_port(81, name="more")]}}),
            Step("two", "apply", {"spec": {"ports": [_port(81, name="other")]}}),
            Step("one", "apply", {"spec": {"ports": [_port(80, name="web")]}}),
            Step("two", "apply", _label(x="y")),
        ],
    ),
    "containers and their environment by name": (
        DEPLOYMENTS,
        [
            Step("one", "apply", _deployment(WEB, replicas=2)),
            Step("two", "apply", _deployment({"name": "web", "env": [{"name": "C", "value": "3"}]})),
            Step("three", "merge", {"spec": {"replicas": 5}}),
            Step("one", "apply", _deployment({"name": "web", "image": "web", "env": [{"name": "B", "value": "2"}]})),
            Step("one", "apply", _deployment({"name": "web", "image": "new"}, replicas=5)),
        ],
    ),
    "backends of a split by service": (
        SPLITS,
        [
            Step("one", "apply", _split(v1=90, v2=10)),
            Step("two", "apply", _split(v3=5)),
            Step("two", "apply", _split(v2=20, v3=5)),
            Step("two", "force", _split(v2=20, v3=5)),
            Step("one", "apply", _split(v1=80)),
            Step("three", "merge", {"spec": {"backends": [{"service": "v1", "weight": 1}, {"service": "v3", "weight": 5}]}}),
        ],
    ),
    "a split is created, then applied": (
        SPLITS,
        [
            Step("one", "create", _split(v1=90, v2=10)),
            Step("two", "apply", _split(v1=90)),
            Step("two", "apply", _split(v1=80)),
            Step("two", "force", _split(v1=80)),
            Step("two", "apply", {"spec": {"service": "web"}}),
        ],
    ),
    "defaults of a Canary": (
        CANARIES,
        [
            Step("one", "create", _canary()),
            Step("two", "apply", _canary(minRequests=20, success={"margin": "2%"})),
            Step("two", "force", _canary(minRequests=30, success={"margin": "2%"})),
            Step("two", "apply", _canary(steps=[{"share": "20%"}, {"share": "50%", "pause": True}])),
            Step("one", "merge", {"spec": {"paused": None, "analysis": {"interval": None, "dryRun": True}}}),
            Step("two", "apply", _canary(clientErrors={"margin": "2%"}, webhooks=[
                {"name": "load", "when": "During", "service": "load", "port": 80}])),
            Step("one", "merge", {"spec": {"analysis": {"success": None, "webhooks": None}}}),
        ],
    ),
    "nulls in a Canary": (
        CANARIES,
        [Step("one", "create", _canary(interval=None, success={"maxDrop": None, "min": None}, clientErrors=None))],
    ),
    "listeners of a Gateway by name": (
        GATEWAYS,
        [
            Step("one", "apply", _gateway(http=80, other=81)),
            Step("two", "apply", _gateway(more=82)),
            Step("one", "apply", _gateway(http=8080)),
            Step("two", "status", {"status": {"conditions": [{"type": "Accepted", "status": "True", "reason": "x",
                "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}),
        ],
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def reference(empty_server: Shared) -> Iterator[KubeApiServer]:
    """An API server with CustomResourceDefinitions for the mesh's kinds, with the schemas that headgate publishes."""
    server, leftovers = empty_server
    with emptied(server, leftovers):
        webhook = {"service": {"namespace": "headgate-system", "name": "headgate"}}  # no test converts objects
        for definition in custom_resource_definitions((TRAFFIC_SPLIT, GATEWAY, CANARY), webhook):
            approved = {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/gateway-api/pull/1"}
            metadata = {**definition["metadata"], "annotations": approved}
            body = {**_without_mixed_types(definition), "metadata": metadata}
            server.make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body)
        for collection in (SPLITS, GATEWAYS, CANARIES):
            _until_served(server, collection)
        yield server


def _without_mixed_types(part: Any) -> Any:
    """Return a part of a definition whose fields have one type each.

    kube-apiserver 1.20 fails to read a definition with `x-kubernetes-int-or-string` for server-side apply ("has invalid
    property: anyOf"), and merges its objects as if it had no schema.
    """
    if isinstance(part, Mapping):
        kept = {name: _without_mixed_types(value) for name, value in part.items() if name != INT_OR_STRING}
        return {**kept, "type": "string"} if INT_OR_STRING in part else kept
    return [_without_mixed_types(element) for element in part] if isinstance(part, list) else part


def _until_served(server: KubeApiServer, collection: str) -> None:
    while server.call("GET", collection)[0] != 200:
        pass  # retry until the test's timeout


class Sides:
    """The kube-apiserver and headgate; both receive the same writes."""

    def __init__(self, reference: KubeApiServer, collection: str, name: str) -> None:
        store = MemoryStore(admit=admit)
        self._client = AsgiClient(create_app(store, token=TOKEN), store)
        self._reference = reference
        self._collection = collection
        self._name = name

    async def write(self, step: Step) -> tuple[Any, Any]:
        """Write to the kube-apiserver, then to headgate; return both responses."""
        method, url, kind = self._request(step)
        body = {"apiVersion": self._version, "kind": self._kind, **step.fields}
        body["metadata"] = {"name": self._name, **step.fields.get("metadata", {})}
        if step.verb in ("merge", "status"):
            body = dict(step.fields)
        _, theirs = self._reference.call(method, url, body, content_type=kind)
        ours = await self._client.call(method, url, json.dumps(body).encode(), content_type=kind)
        return theirs, ours.body

    def _request(self, step: Step) -> tuple[str, str, str]:
        query = f"?fieldManager={step.manager}"
        place = f"{self._collection}/{self._name}"
        match step.verb:
            case "create":
                return "POST", self._collection + query, "application/json"
            case "apply":
                return "PATCH", place + query, APPLY
            case "force":
                return "PATCH", f"{place}{query}&force=true", APPLY
            case "status":
                return "PATCH", f"{place}/status{query}", MERGE
            case _:
                return "PATCH", place + query, MERGE

    @property
    def _version(self) -> str:
        parts = self._collection.split("/")
        return parts[2] if parts[1] == "api" else f"{parts[2]}/{parts[3]}"

    @property
    def _kind(self) -> str:
        return {
            MAPS: "ConfigMap",
            SERVICES: "Service",
            DEPLOYMENTS: "Deployment",
            SPLITS: "TrafficSplit",
            GATEWAYS: "Gateway",
            CANARIES: "Canary",
        }[self._collection]


def managers(answer: Any) -> Any:
    """Return the fields of each manager, without the subresource, which older servers do not report."""
    return {
        (entry["manager"], entry["operation"], entry["apiVersion"]): entry["fieldsV1"]
        for entry in answer["metadata"].get("managedFields", ())
    }


def content(answer: Any) -> Any:
    """Return the object without the fields that a server fills in."""
    labels = {name: answer["metadata"].get(name) for name in ("labels", "annotations")}
    labels["finalizers"] = sorted(
        answer["metadata"].get("finalizers", ())
    )  # newer servers keep the order of applied lists
    spec = answer.get("spec") or {}
    if answer["kind"] == "Service":
        return labels, spec.get("ports")
    if answer["kind"] == "Deployment":
        fields = ("name", "image", "env")
        containers = [{n: c[n] for n in fields if n in c} for c in spec["template"]["spec"]["containers"]]
        return labels, spec["replicas"], containers
    return labels, answer.get("data"), spec, answer.get("status")


def conflicts(answer: Any) -> Any:
    causes = answer["details"]["causes"]
    return sorted((cause["reason"], cause["message"].partition(" using ")[0], cause["field"]) for cause in causes)


@pytest.mark.parametrize("name", SEQUENCES)
async def test_headgate_and_the_kube_apiserver_respond_equally_to_writes(reference: KubeApiServer, name: str) -> None:
    collection, steps = SEQUENCES[name]
    sides = Sides(reference, collection, f"apply-{list(SEQUENCES).index(name)}")
    for number, step in enumerate(steps):
        theirs, ours = await sides.write(step)
        where = f"{name}, step {number}: {step}"
        assert ours.get("code") == theirs.get("code"), (where, ours, theirs)
        if ours["kind"] == "Status":
            assert ours["code"] == 422 or conflicts(ours) == conflicts(theirs), where
            continue
        assert content(ours) == content(theirs), where
        assert managers(ours) == managers(theirs), where
