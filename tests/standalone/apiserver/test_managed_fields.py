"""The field managers (`managedFields`) after each kind of write, over HTTP."""

import json
from typing import Any

import pytest
from tests.embedded_api import ApiResponse, AsgiClient
from tests.make.objects import split
from tests.make.sound_objects import path, sound

from headgate.resources.kind import Kind
from headgate.resources.registry import KINDS, POD, SERVICE, TRAFFIC_SPLIT

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
SPLITS, SERVICES = path(TRAFFIC_SPLIT), path(SERVICE)
OLD_SPLITS = SPLITS.replace("v1alpha4", "v1alpha2")
BACKEND = 'k:{"service":"%s"}'


def web_split(version: str = "v1alpha4", **weights: int) -> dict[str, Any]:
    return split("web", weights, namespace="", version=f"split.smi-spec.io/{version}")


async def applied(client: AsgiClient, url: str, obj: Any, manager: str = "one", **query: str) -> ApiResponse:
    extra = "".join(f"&{name}={value}" for name, value in query.items())
    return await client.call(
        "PATCH", f"{url}?fieldManager={manager}{extra}", json.dumps(obj).encode(), content_type=APPLY
    )


def owners(answer: ApiResponse) -> dict[tuple[str, str, str], Any]:
    """Return the owned fields by manager, operation and subresource."""
    return {
        (entry["manager"], entry["operation"], entry.get("subresource", "")): entry["fieldsV1"]
        for entry in answer.body["metadata"].get("managedFields", ())
    }


async def test_each_manager_owns_the_fields_that_it_writes(client: AsgiClient) -> None:
    created = await client.call("POST", f"{SPLITS}?fieldManager=maker", web_split(v1=90, v2=10))
    (backends,) = (fields["f:spec"]["f:backends"] for fields in owners(created).values())
    assert set(backends) == {".", BACKEND % "v1", BACKEND % "v2"}
    labels = {"metadata": {"labels": {"team": "web"}}}
    patched = await client.call("PATCH", f"{SPLITS}/web", labels, content_type=MERGE, user_agent="curl/8.1 (linux)")
    assert owners(patched)["curl", "Update", ""] == {"f:metadata": {"f:labels": {".": {}, "f:team": {}}}}
    status = {"status": {"proxies": {"total": 2}}}
    answered = await client.call("PATCH", f"{SPLITS}/web/status?fieldManager=reporter", status, content_type=MERGE)
    assert owners(answered)["reporter", "Update", "status"] == {
        "f:status": {".": {}, "f:proxies": {".": {}, "f:total": {}}}
    }
    put = await client.call("PUT", f"{SPLITS}/web?fieldManager=putter", {**answered.body, **web_split(v1=50, v2=10)})
    assert owners(put)["putter", "Update", ""] == {"f:spec": {"f:backends": {BACKEND % "v1": {"f:weight": {}}}}}
    assert "f:weight" not in owners(put)["maker", "Update", ""]["f:spec"]["f:backends"][BACKEND % "v1"]
    assert ("curl", "Update", "") not in owners(put)  # curl owned only the labels, which the update removed


async def test_a_manager_that_writes_the_scale_subresource_owns_the_replicas_field(client: AsgiClient) -> None:
    deployment = next(kind for kind in KINDS if kind.kind == "Deployment")
    url = f"{path(deployment)}/web"
    await client.call("POST", path(deployment), sound(deployment, "web"))
    await client.call("PATCH", f"{url}/scale?fieldManager=scaler", {"spec": {"replicas": 3}}, content_type=MERGE)
    assert owners(await client.call("GET", url))["scaler", "Update", "scale"] == {"f:spec": {"f:replicas": {}}}
    config = {"apiVersion": deployment.hub, "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 1}}
    refused = await applied(client, url, config)
    assert refused.code == 409
    assert refused.body["details"]["causes"][0]["message"].startswith(
        'conflict with "scaler" with subresource "scale" using apps/v1 at 2'
    )
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "web"}, "spec": {"replicas": 7}}
    assert (await applied(client, f"{url}/scale", scale, force="true")).body["spec"] == {"replicas": 7}


async def test_the_status_can_be_applied(client: AsgiClient) -> None:
    await client.call("POST", SPLITS, web_split(v1=1))
    condition = {
        "type": "Accepted",
        "status": "True",
        "reason": "a",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    config = {**web_split(v1=7), "status": {"conditions": [condition]}}
    answer = await applied(client, f"{SPLITS}/web/status", config)
    assert answer.body["status"]["conditions"] == [condition]
    assert answer.body["spec"]["backends"][0]["weight"] == 1
    assert set(owners(answer)["one", "Apply", "status"]) == {"f:status"}
    assert (await applied(client, f"{SPLITS}/none/status", {**config, "metadata": {"name": "none"}})).code == 404


async def test_an_apply_of_the_same_configuration_stores_nothing(client: AsgiClient) -> None:
    first = await applied(client, f"{SPLITS}/web", web_split(v1=90, v2=10))
    revision = client.store.revision
    again = await applied(client, f"{SPLITS}/web", web_split(v1=90, v2=10))
    assert (first.code, again.code) == (201, 200)
    assert again.body == first.body
    assert client.store.revision == revision


async def test_a_manager_can_apply_in_another_api_version(client: AsgiClient) -> None:
    await applied(client, f"{OLD_SPLITS}/web", web_split("v1alpha2", v1=90, v2=10))
    other = await applied(client, f"{SPLITS}/web", web_split(v2=20), manager="two")
    assert other.body["details"]["causes"][0]["field"] == '.spec.backends[service="v2"].weight'
    moved = await applied(client, f"{SPLITS}/web", web_split(v1=80))
    assert moved.body["spec"]["backends"] == [{"service": "v1", "weight": 80}]
    ((key, fields),) = owners(moved).items()
    assert key == ("one", "Apply", "")
    assert list(fields["f:spec"]["f:backends"]) == [BACKEND % "v1"]
    assert moved.body["metadata"]["managedFields"][0]["apiVersion"] == "split.smi-spec.io/v1alpha4"


async def test_the_first_apply_assigns_unowned_fields_to_before_first_apply(
    client: AsgiClient,
) -> None:
    await client.store.create({**sound(SERVICE, "web")})
    assert not owners(await client.call("GET", f"{SERVICES}/web"))
    port = {"port": 80, "name": "other"}
    config = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"ports": [port]}}
    refused = await applied(client, f"{SERVICES}/web", config)
    assert 'conflict with "before-first-apply" using v1' in refused.body["message"]
    forced = await applied(client, f"{SERVICES}/web", config, force="true")
    assert forced.body["spec"]["ports"][0]["name"] == "other"


async def test_a_controllers_update_keeps_the_managed_fields(client: AsgiClient) -> None:
    first = await applied(client, f"{SPLITS}/web", web_split(v1=1))
    stored = (await client.store.list("split.smi-spec.io", "TrafficSplit")).items[0]
    await client.store.update({**stored, "status": {"proxies": {"total": 1}}}, subresource="status")
    await client.store.update(
        {**stored, "metadata": {**stored["metadata"], "resourceVersion": ""}, "spec": stored["spec"]}
    )
    assert owners(await client.call("GET", f"{SPLITS}/web")) == owners(first)


@pytest.mark.parametrize("entries", [[{}]])
async def test_a_client_can_reset_the_managed_fields(client: AsgiClient, entries: Any) -> None:
    await applied(client, f"{SPLITS}/web", web_split(v1=1))
    reset = await client.call("PATCH", f"{SPLITS}/web", {"metadata": {"managedFields": entries}}, content_type=MERGE)
    assert "managedFields" not in reset.body["metadata"]


async def test_invalid_managed_fields_in_an_update_are_ignored(client: AsgiClient) -> None:
    first = await applied(client, f"{SPLITS}/web", web_split(v1=1))
    body = {**web_split(v1=1), "metadata": {"name": "web", "managedFields": [{"manager": "x", "operation": "Fly"}]}}
    assert owners(await client.call("PUT", f"{SPLITS}/web", body)) == owners(first)


@pytest.mark.parametrize(
    ("url", "obj", "code", "text"),
    [
        (f"{SPLITS}/web", web_split(v1=1), 400, "fieldManager: Required value: is required for apply patch"),
        (f"{SPLITS}/web?fieldManager={'x' * 129}", web_split(v1=1), 400, "fieldManager: Too long: may not be more than 128"),
        (f"{SPLITS}/web?fieldManager=a", {**web_split(v1=1), "metadata": {"name": "web", "managedFields": [{}]}}, 400,
         "metadata.managedFields must be nil"),
        (f"{SPLITS}/web?fieldManager=a", {**web_split(), "spec": {"backends": [{"service": "a"}, {"service": "a"}]}}, 422,
         '.spec.backends[service="a"]: the item is in the list twice'),
        (f"{SPLITS}/web?fieldManager=a&fieldValidation=Strict", {**web_split(v1=1), "spce": {}}, 400, 'unknown field "spce"'),
    ],
)  # fmt: skip
async def test_an_invalid_apply_is_rejected(client: AsgiClient, url: str, obj: Any, code: int, text: str) -> None:
    answer = await client.call("PATCH", url, json.dumps(obj).encode(), content_type=APPLY)
    assert (answer.code, text in answer.body["message"]) == (code, True), answer.body


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.kind}.{kind.group}")
async def test_an_apply_can_remove_a_field_of_every_kind(client: AsgiClient, kind: Kind) -> None:
    url, obj = f"{path(kind)}/web", sound(kind, "web")
    obj["metadata"]["labels"] = {**obj["metadata"].get("labels", {}), "tier": "a"}
    labelled = {**obj, "metadata": {**obj["metadata"], "labels": {**obj["metadata"]["labels"], "team": "web"}}}
    first = await applied(client, url, labelled)
    assert first.body["metadata"]["labels"]["team"] == "web"
    second = await applied(client, url, obj)
    assert second.code == 200, second.body
    assert {"team", "tier"} & set(second.body["metadata"]["labels"]) == {"tier"}
    assert [key[0] for key in owners(second)] == ["one"]


async def test_an_eviction_deletes_the_pod(client: AsgiClient) -> None:
    pod = sound(POD, "web")
    await client.call("POST", path(POD), pod)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web", "namespace": "default"}}
    url = f"{path(POD)}/web/eviction"
    assert (await client.call("POST", f"{url}?dryRun=All", eviction)).code == 201
    assert (await client.call("POST", url, {**eviction, "deleteOptions": {"dryRun": ["All"]}})).code == 201
    assert (await client.call("GET", f"{path(POD)}/web")).code == 200
    answer = await client.call("POST", url, eviction)
    assert (answer.code, answer.body["status"]) == (201, "Success")
    assert (await client.call("GET", f"{path(POD)}/web")).code == 404
    assert (await client.call("POST", url, eviction)).code == 404
    assert (await client.call("GET", url)).code == 405
