"""Pods of an earlier start with another `--network`."""

import pytest
from tests.make.objects import pod

from headgate.resources.core.pod_metadata import PROCESS, SIDECAR
from headgate.standalone.pods.binding import FINALIZER
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
        made = pod(name, "10.80.128.4", annotations=annotations, metadata={"finalizers": [FINALIZER]})
        stored = await store.create(made)
        phase = "Succeeded" if name == "ended" else "Running"
        await store.update({**stored, "status": {"phase": phase}}, subresource="status")
    await delete_misplaced(store, networking)
    names = sorted(left["metadata"]["name"] for left in (await store.list("", "Pod")).items)
    assert names == kept
