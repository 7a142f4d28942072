"""The resource `revisions` of the inspect API over HTTP."""

from types import SimpleNamespace
from typing import Any

import pytest
from tests.api.inspect.inspect_fakes import FakeMesh
from tests.embedded_api import TOKEN, AsgiClient
from tests.history.objects import TIME, contents, records, website_split

from headgate.history.revisions import Log, RecordedChange, RecordedRevision
from headgate.latest import Latest
from headgate.resources.registry import TRAFFIC_SPLIT
from headgate.standalone.apiserver.app import ComputedGroups, create_app
from headgate.standalone.store.memory import MemoryStore

GROUP = "/apis/inspect.headgate.dev/v1beta1"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
KEY = TRAFFIC_SPLIT.key("default", "website")
NOW = website_split(weight=50)


class Mesh(FakeMesh):
    """A mesh with a history of two revisions; the second one changed the weights of a split."""

    def __init__(self) -> None:
        change = RecordedChange(key=KEY, content=contents(NOW)[KEY], by="helm", time=TIME)
        first = RecordedRevision(number=1, time=TIME, reason="RecordingStarted")
        second = RecordedRevision(
            number=2, time=TIME, reason="Written", changes=(change,), effect=("40% of them move",)
        )
        log = Log(0, contents(website_split()), (first, second))
        self.live_state = SimpleNamespace(history=Latest(log), feed=SimpleNamespace(records=records(NOW)))


@pytest.fixture
def client() -> AsgiClient:
    store = MemoryStore()
    return AsgiClient(create_app(store, token=TOKEN, computed=ComputedGroups(inspector=Mesh())), store)


async def get(client: AsgiClient, path: str) -> Any:
    found = await client.call("GET", f"{GROUP}/{path}")
    return found.body if found.code == 200 else (found.code, found.body["message"])


async def test_revisions_are_read_in_one_or_in_all_namespaces(client: AsgiClient) -> None:
    for prefix in ("", "namespaces/default/"):
        listed = await get(client, f"{prefix}revisions?newest=1")
        assert (listed["kind"], listed["older"], [item["revision"] for item in listed["items"]]) == (
            "RevisionList",
            1,
            [2],
        )
        one = await get(client, f"{prefix}revisions/2")
        assert (one["kind"], one["changes"][0]["by"], one["effectMessages"]) == (
            "Revision",
            "helm",
            ["40% of them move"],
        )
        fields = {"path": "spec.backends[website-v1].weight", "before": 90, "after": 50}
        assert one["changes"][0]["fields"][0] == fields
    code, message = await get(client, "namespaces/shop/revisions/2")
    assert (code, "-A shows all namespaces" in message) == (404, True)


async def test_the_restoration_has_the_object_now_and_then(client: AsgiClient) -> None:
    found = await get(client, "namespaces/default/revisions/1/restoration")
    (step,) = found["steps"]
    weights = [step[name]["spec"]["backends"][0]["weight"] for name in ("present", "wanted")]
    assert (found["kind"], step["verb"], weights) == ("RevisionRestoration", "update", [50, 90])


async def test_unknown_revisions_and_wrong_numbers_are_errors(client: AsgiClient) -> None:
    expected = (404, "revision 7 not found; the history has revisions 1 to 2")
    assert await get(client, "revisions/7") == expected
    assert await get(client, "revisions/7/restoration") == expected
    for path in ("revisions/last", "revisions?newest=-1"):
        code, message = await get(client, path)
        assert (code, "must be a whole number" in message) == (400, True)


async def test_kubectl_prints_the_writers_and_the_effect(client: AsgiClient) -> None:
    found = await client.call("GET", f"{GROUP}/revisions", accept=TABLE)
    cells = [row["cells"] for row in found.body["rows"]]
    assert [cells[0][index] for index in (0, 3, 4)] == ["1", "RecordingStarted", "-"]
    assert [cells[1][index] for index in (0, 2, 3, 4)] == ["2", "helm", "TrafficSplit/website", "40% of them move"]
