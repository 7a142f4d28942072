"""Dry runs against the API with admission, address assignment and the compiler's warnings."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, NamedTuple

import pytest
from tests.embedded_api import TOKEN, Answer, Client
from tests.identity.fakes import FakeIssuer, Time
from tests.sound_objects import path, sound

from headgate.admission.chain import admission_chain, object_check
from headgate.envoy.view import Node
from headgate.identity.credentials import Credentials
from headgate.plane.feed import Feed
from headgate.plane.live_state import LiveState
from headgate.plane.loop import HostProxies, Loop
from headgate.plane.write_warnings import warnings_after_write
from headgate.resources.registry import KINDS, SERVICE, TRAFFIC_SPLIT, Kind
from headgate.settings import Settings
from headgate.standalone.address_pool import AddressPool
from headgate.standalone.apiserver.app import create_app
from headgate.standalone.controllers.services import service_admission, track_cluster_ips
from headgate.standalone.store.memory import MemoryStore
from headgate.xds.fleet import Fleet

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
ROUTES = ("HTTPRoute", "GRPCRoute", "TCPRoute")
LABEL = {"metadata": {"labels": {"dry": "run"}}}
SPLITS, SERVICES = path(TRAFFIC_SPLIT), path(SERVICE)


class World(NamedTuple):
    client: Client
    addresses: AddressPool

    async def dry(self, method: str, url: str, body: Any = None, **headers: str) -> Answer:
        """Send a dry run, which must succeed and store nothing."""
        before = self.client.store.revision
        separator = "&" if "?" in url else "?"
        answer = await self.client.call(method, f"{url}{separator}dryRun=All", body, **headers)
        assert answer.code in {200, 201}, answer.body
        assert self.client.store.revision == before, "a dry run is a change that watchers see"
        return answer


@pytest.fixture
async def world() -> AsyncIterator[World]:
    addresses = AddressPool(77)
    store = MemoryStore(
        check=object_check(Settings()),
        admit=admission_chain("all", {("v1", "Service"): service_admission(addresses)}),
        kept=track_cluster_ips(addresses),
    )
    feed, fleet = Feed(store), Fleet()
    credentials = Credentials(FakeIssuer(Time()), Time().schedule())
    loop = Loop(feed.snapshot, fleet, HostProxies([Node(id="gateway")]), Settings(), credentials)
    live_state = LiveState(store, feed, loop, fleet)

    following = asyncio.create_task(feed.run())
    yield World(
        Client(create_app(store, token=TOKEN, write_warnings=partial(warnings_after_write, live_state)), store),
        addresses,
    )
    following.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await following


async def writes(world: World, kind: Kind) -> None:
    """Send a dry run of every verb for an object of a kind."""
    url, obj = path(kind), sound(kind, "web")
    created = await world.dry("POST", url, obj)
    assert created.code == 201
    assert created.body["metadata"]["uid"]
    assert "resourceVersion" not in created.body["metadata"]
    assert (await world.client.call("GET", f"{url}/web")).code == 404
    applied = await world.dry("PATCH", f"{url}/web?fieldManager=me", json.dumps(obj).encode(), content_type=APPLY)
    assert applied.code == 201

    stored = (await world.client.call("POST", url, obj)).body
    changed = {**stored, "metadata": {**stored["metadata"], "labels": {"dry": "run"}}}
    label = {"apiVersion": kind.hub, "kind": kind.kind, **LABEL}
    operations = [{"op": "add", "path": "/metadata/labels", "value": {"dry": "run"}}]
    custom = "." in kind.group and not kind.group.endswith("discovery.k8s.io")
    answers = [
        await world.dry("PUT", f"{url}/web", changed),
        await world.dry("PATCH", f"{url}/web", LABEL, content_type=MERGE),
        await world.dry("PATCH", f"{url}/web", operations, content_type=JSON_PATCH),
        await world.dry("PATCH", f"{url}/web?fieldManager=me", json.dumps(label).encode(), content_type=APPLY),
    ]
    if not custom:
        answers.append(await world.dry("PATCH", f"{url}/web", LABEL, content_type=STRATEGIC))
    assert [answer.body["metadata"]["labels"]["dry"] for answer in answers] == ["run"] * len(answers)
    await world.dry("DELETE", f"{url}/web")
    if kind.kind not in {"Namespace", "Service"}:
        await world.dry("DELETE", url)
    assert (await world.client.call("GET", f"{url}/web")).body == stored


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.kind}.{kind.group}")
async def test_a_dry_run_of_any_verb_responds_as_usual_and_stores_nothing(world: World, kind: Kind) -> None:
    await writes(world, kind)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.status], ids=lambda kind: f"{kind.kind}.{kind.group}")
async def test_a_status_is_not_stored_by_a_dry_run(world: World, kind: Kind) -> None:
    stored = (await world.client.call("POST", path(kind), sound(kind, "web"))).body
    status: Any = {"status": {"parents": []} if kind.kind in ROUTES else {"conditions": []}}
    answer = await world.dry("PATCH", f"{path(kind)}/web/status", status, content_type=MERGE)
    assert status["status"].items() <= answer.body["status"].items()
    assert (await world.dry("PUT", f"{path(kind)}/web/status", {**stored, **status})).body["status"] == status["status"]


async def test_a_scale_is_not_stored_by_a_dry_run(world: World) -> None:
    kind = next(kind for kind in KINDS if kind.kind == "Deployment")
    deployments = path(kind)
    await world.client.call("POST", deployments, sound(kind, "web"))
    scale = {"spec": {"replicas": 3}}
    assert (await world.dry("PATCH", f"{deployments}/web/scale", scale, content_type=MERGE)).body["spec"] == scale[
        "spec"
    ]
    assert (await world.dry("PUT", f"{deployments}/web/scale", scale)).body["spec"] == scale["spec"]


async def test_a_dry_run_reserves_no_address(world: World) -> None:
    answer = await world.dry("POST", SERVICES, sound(SERVICE, "web"))
    address = answer.body["spec"]["clusterIP"]
    assert world.addresses.covers(address, "services")
    other = sound(SERVICE, "other")
    other["spec"] = {**other["spec"], "clusterIP": address}
    assert (await world.client.call("POST", SERVICES, other)).body["spec"]["clusterIP"] == address


async def test_the_warnings_of_a_dry_run_are_about_the_new_object(world: World) -> None:
    await world.client.call("POST", SERVICES, sound(SERVICE, "web"))
    answer = await world.dry("POST", SPLITS, sound(TRAFFIC_SPLIT, "web"))
    assert any("web-v1" in warning for warning in answer.header("warning")), answer.headers
    await world.client.call("POST", SPLITS, sound(TRAFFIC_SPLIT, "web"))
    backends = {"spec": {"backends": [{"service": "web-v3", "weight": 1}]}}
    answer = await world.dry("PATCH", f"{SPLITS}/web", backends, content_type=MERGE)
    assert any("web-v3" in warning for warning in answer.header("warning")), answer.headers
    assert not any("web-v1" in warning for warning in answer.header("warning"))
