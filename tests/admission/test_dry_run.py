"""Dry runs against the API with admission, address assignment and the compiler's warnings."""

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, NamedTuple

import pytest
from tests.cli.conftest import plane
from tests.embedded_api import TOKEN, ApiResponse, AsgiClient
from tests.make.sound_objects import path, sound

from headgate.admission.chain import admission, object_check
from headgate.admission.injection import explicit_sidecars
from headgate.plane.live_state import LiveState
from headgate.plane.write_warnings import prepare_warnings
from headgate.resources.kind import Kind
from headgate.resources.registry import KINDS, SERVICE, TRAFFIC_SPLIT
from headgate.settings import Settings
from headgate.standalone.address_pool import AddressPool
from headgate.standalone.apiserver.app import create_app
from headgate.standalone.controllers.services import service_admission, track_cluster_ips
from headgate.standalone.store.memory import MemoryStore

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
ROUTES = ("HTTPRoute", "GRPCRoute", "TCPRoute", "TLSRoute", "UDPRoute")
LABEL = {"metadata": {"labels": {"dry": "run"}}}
SPLITS, SERVICES = path(TRAFFIC_SPLIT), path(SERVICE)


class DryRunApi(NamedTuple):
    client: AsgiClient
    addresses: AddressPool

    async def dry(self, method: str, url: str, body: Any = None, **headers: str) -> ApiResponse:
        """Send a dry run, which must succeed and store nothing."""
        before = self.client.store.revision
        separator = "&" if "?" in url else "?"
        answer = await self.client.call(method, f"{url}{separator}dryRun=All", body, **headers)
        assert answer.code in {200, 201}, answer.body
        assert self.client.store.revision == before, "a dry run is a change that watchers see"
        return answer


@pytest.fixture
async def api() -> AsyncIterator[DryRunApi]:
    addresses = AddressPool(77)
    store = MemoryStore(
        check=object_check(Settings()),
        admit=admission(explicit_sidecars("all"), {("v1", "Service"): service_admission(addresses)}),
        kept=track_cluster_ips(addresses),
    )
    live_state = LiveState(store, *plane(store))
    parts = [asyncio.create_task(part.run()) for part in (live_state.feed, live_state.loop)]
    yield DryRunApi(
        AsgiClient(create_app(store, token=TOKEN, prepare_warnings=partial(prepare_warnings, live_state)), store),
        addresses,
    )
    for part in parts:
        part.cancel()
    await asyncio.gather(*parts, return_exceptions=True)


async def writes(api: DryRunApi, kind: Kind) -> None:
    """Send a dry run of every verb for an object of a kind."""
    url, obj = path(kind), sound(kind, "web")
    created = await api.dry("POST", url, obj)
    assert created.code == 201
    assert created.body["metadata"]["uid"]
    assert "resourceVersion" not in created.body["metadata"]
    assert (await api.client.call("GET", f"{url}/web")).code == 404
    applied = await api.dry("PATCH", f"{url}/web?fieldManager=me", json.dumps(obj).encode(), content_type=APPLY)
    assert applied.code == 201

    stored = (await api.client.call("POST", url, obj)).body
    changed = {**stored, "metadata": {**stored["metadata"], "labels": {"dry": "run"}}}
    label = {"apiVersion": kind.hub, "kind": kind.kind, **LABEL}
    operations = [{"op": "add", "path": "/metadata/labels", "value": {"dry": "run"}}]
    custom = "." in kind.group and not kind.group.endswith("discovery.k8s.io")
    answers = [
        await api.dry("PUT", f"{url}/web", changed),
        await api.dry("PATCH", f"{url}/web", LABEL, content_type=MERGE),
        await api.dry("PATCH", f"{url}/web", operations, content_type=JSON_PATCH),
        await api.dry("PATCH", f"{url}/web?fieldManager=me", json.dumps(label).encode(), content_type=APPLY),
    ]
    if not custom:
        answers.append(await api.dry("PATCH", f"{url}/web", LABEL, content_type=STRATEGIC))
    assert [answer.body["metadata"]["labels"]["dry"] for answer in answers] == ["run"] * len(answers)
    await api.dry("DELETE", f"{url}/web")
    if kind.kind not in {"Namespace", "Service"}:
        await api.dry("DELETE", url)
    assert (await api.client.call("GET", f"{url}/web")).body == stored


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.kind}.{kind.group}")
async def test_a_dry_run_of_any_verb_responds_as_usual_and_stores_nothing(api: DryRunApi, kind: Kind) -> None:
    await writes(api, kind)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.status], ids=lambda kind: f"{kind.kind}.{kind.group}")
async def test_a_status_is_not_stored_by_a_dry_run(api: DryRunApi, kind: Kind) -> None:
    stored = (await api.client.call("POST", path(kind), sound(kind, "web"))).body
    entries = (
        "parents"
        if kind.kind in (*ROUTES, "XBackend")
        else "ancestors"
        if kind.kind in {"BackendTLSPolicy", "XBackendTrafficPolicy"}
        else "conditions"
    )
    status: Any = {"status": {entries: []}}
    answer = await api.dry("PATCH", f"{path(kind)}/web/status", status, content_type=MERGE)
    assert status["status"].items() <= answer.body["status"].items()
    assert (await api.dry("PUT", f"{path(kind)}/web/status", {**stored, **status})).body["status"] == status["status"]


async def test_a_scale_is_not_stored_by_a_dry_run(api: DryRunApi) -> None:
    kind = next(kind for kind in KINDS if kind.kind == "Deployment")
    deployments = path(kind)
    await api.client.call("POST", deployments, sound(kind, "web"))
    scale = {"spec": {"replicas": 3}}
    assert (await api.dry("PATCH", f"{deployments}/web/scale", scale, content_type=MERGE)).body["spec"] == scale["spec"]
    assert (await api.dry("PUT", f"{deployments}/web/scale", scale)).body["spec"] == scale["spec"]


async def test_a_dry_run_reserves_no_address(api: DryRunApi) -> None:
    answer = await api.dry("POST", SERVICES, sound(SERVICE, "web"))
    address = answer.body["spec"]["clusterIP"]
    assert api.addresses.covers(address, "services")
    other = sound(SERVICE, "other")
    other["spec"] = {**other["spec"], "clusterIP": address}
    assert (await api.client.call("POST", SERVICES, other)).body["spec"]["clusterIP"] == address


async def test_the_warnings_of_a_dry_run_are_about_the_new_object(api: DryRunApi) -> None:
    await api.client.call("POST", SERVICES, sound(SERVICE, "web"))
    answer = await api.dry("POST", SPLITS, sound(TRAFFIC_SPLIT, "web"))
    assert any("web-v1" in warning for warning in answer.header("warning")), answer.headers
    await api.client.call("POST", SPLITS, sound(TRAFFIC_SPLIT, "web"))
    backends = {"spec": {"backends": [{"service": "web-v3", "weight": 1}]}}
    answer = await api.dry("PATCH", f"{SPLITS}/web", backends, content_type=MERGE)
    assert any("web-v3" in warning for warning in answer.header("warning")), answer.headers
    assert not any("web-v1" in warning for warning in answer.header("warning"))
