"""The history on a cluster: in small Secrets, with the permissions of an installation, and kept by the next replica."""

from typing import Any

import pytest
from tests.cluster.api_server import MERGE, KubeApiServer
from tests.cluster.control_planes import RunningReplica, eventually, running
from tests.cluster.installation import SYSTEM
from tests.make.objects import split

from headgate.history.segments import SEGMENT_BYTES

SPLITS = "/apis/split.smi-spec.io/v1alpha4/namespaces/shop/trafficsplits"
SECRETS = f"{SYSTEM}/secrets"
REVISIONS = "/apis/inspect.headgate.dev/v1beta1/namespaces/shop/revisions"


def weights(old: int, new: int) -> dict[str, Any]:
    return {"spec": split("web", {"old": old, "new": new})["spec"]}


async def names_of_changes(plane: RunningReplica) -> list[list[str]]:
    """Return the changed objects of each revision in the namespace."""
    items = (await plane.get(REVISIONS))["items"]
    return [[f"{change['object']['name']} by {change['by']}" for change in item["changes"]] for item in items]


async def test_the_next_replica_has_the_history_and_what_no_replica_recorded(
    cluster: KubeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.namespace("shop")
    cluster.make(SPLITS, split("web", {"old": 100, "new": 0}, namespace="shop"))
    async with running(cluster, monkeypatch) as plane:
        await await_changes(plane, [[]])  # from now on, changes are recorded
        patch(cluster, "first", weights(50, 50))
        await await_changes(plane, [["web by first"]])
        await eventually(lambda: has_secret(cluster, "headgate-state-history-0"))
    patch(cluster, "second", weights(0, 100))
    async with running(cluster, monkeypatch) as plane:
        await eventually(plane.served)
        await await_changes(plane, [["web by first"], ["web by second"]])
        missed = await plane.get(f"{REVISIONS}/3")
        assert missed["reason"] == "NotRecorded"
        (step,) = (await plane.get(f"{REVISIONS}/1/restoration"))["steps"]
        assert step["wanted"]["spec"] == weights(100, 0)["spec"]
        assert await plane.has_all_permissions()
    assert not [line for line in plane.log if "history" in line]


def patch(cluster: KubeApiServer, manager: str, change: Any) -> None:
    status, answer = cluster.call("PATCH", f"{SPLITS}/web?fieldManager={manager}", change, content_type=MERGE)
    assert status == 200, answer


async def await_changes(plane: RunningReplica, wanted: list[list[str]]) -> None:
    """Wait until the newest revisions have these changes."""
    last: list[list[list[str]]] = []

    async def recorded() -> bool:
        last[:] = [await names_of_changes(plane)]
        return last[0][-len(wanted) :] == wanted

    await eventually(recorded, of=lambda: last)


def has_secret(cluster: KubeApiServer, name: str) -> bool:
    status, found = cluster.call("GET", f"{SECRETS}/{name}")
    return status == 200 and 0 < len(found["data"]["state"]) < 2 * SEGMENT_BYTES
