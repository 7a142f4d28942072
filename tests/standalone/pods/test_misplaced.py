"""Pods of an earlier start with another `--network`."""

import pytest
from tests.make.objects import pod

from headgate.objects.events import EventRecorder
from headgate.resources.core.pod_metadata import PROCESS, SIDECAR, STOP_PROCESS
from headgate.resources.registry import POD
from headgate.standalone.pods.misplaced import delete_misplaced
from headgate.standalone.store.memory import MemoryStore


@pytest.mark.parametrize(
    ("networking", "kept"),
    [("host", ["ended", "explicit", "external", "plain"]), ("pod", ["ended", "external", "plain", "transparent"])],
)
async def test_pods_whose_sidecar_does_not_fit_their_network_are_deleted(networking, kept) -> None:
    store = MemoryStore()
    for name, annotations in {
        "transparent": {SIDECAR: "transparent"},
        "explicit": {SIDECAR: "explicit"},
        "external": {SIDECAR: "explicit", PROCESS: "external"},
        "ended": {SIDECAR: "explicit"},
        "plain": {},
    }.items():
        made = pod(name, "10.80.128.4", annotations=annotations, metadata={"finalizers": [STOP_PROCESS]})
        stored = await store.create(made)
        phase = "Succeeded" if name == "ended" else "Running"
        await store.update({**stored, "status": {"phase": phase}}, subresource="status")
    await delete_misplaced(store, EventRecorder(store, "headgate"), networking)
    names = sorted(left["metadata"]["name"] for left in (await store.list("", "Pod")).items)
    assert names == kept


async def test_a_pod_that_no_controller_creates_again_is_named_and_keeps_further_finalizers(caplog) -> None:
    store = MemoryStore()
    annotations = {SIDECAR: "explicit"}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "1", "controller": True}
    await store.create(pod("owned", "127.80.128.4", annotations=annotations, metadata={"ownerReferences": [owner]}))
    finalizers = [STOP_PROCESS, "example.org/backup"]
    await store.create(pod("alone", "127.80.128.5", annotations=annotations, metadata={"finalizers": finalizers}))
    await delete_misplaced(store, EventRecorder(store, "headgate"), "pod")
    (message,) = caplog.messages
    assert message.startswith("pod default/alone: its sidecar does not fit --network pod")
    (event,) = (await store.list("", "Event")).items
    assert (event["involvedObject"]["name"], event["reason"]) == ("alone", "NetworkChanged")
    (left,) = (await store.list("", "Pod")).items
    assert left["metadata"]["finalizers"] == ["example.org/backup"]
    assert left["metadata"]["deletionTimestamp"]


@pytest.mark.parametrize(
    ("networking", "is_new_node", "kept"),
    [
        ("pod", True, ["near"]),
        ("pod", False, ["in-node", "near", "on-machine"]),
        ("host", False, ["near", "on-machine"]),
    ],
)
async def test_a_program_of_headgate_run_in_a_network_that_is_gone_loses_its_pod(
    networking, is_new_node, kept, caplog
) -> None:
    """`headgate run` then ends the program; else its pod would stay Ready."""
    store = MemoryStore()
    for name, address, annotations in (
        ("in-node", "10.80.128.4", {SIDECAR: "explicit", PROCESS: "external"}),
        ("on-machine", "127.80.128.4", {SIDECAR: "explicit", PROCESS: "external"}),
        ("near", "127.80.128.5", {}),
    ):
        await store.create(pod(name, address, annotations=annotations, metadata={"finalizers": [STOP_PROCESS]}))
        stored = await store.get(POD.key("default", name))
        await store.update({**stored, "status": {"phase": "Running", "podIP": address}}, subresource="status")
    await delete_misplaced(store, EventRecorder(store, "headgate"), networking, is_new_node=is_new_node)
    assert sorted(left["metadata"]["name"] for left in (await store.list("", "Pod")).items) == kept
    assert all("run it again (headgate run)" in message for message in caplog.messages)
    assert len(caplog.messages) == 3 - len(kept)
