"""The reasons in the error message of an installation whose control plane does not become ready."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, cast

import pytest

from headgate.errors import NotFound
from headgate.kubernetes.client import Client
from headgate.kubernetes.install.unready import UnreadyPods, unready_reasons

READY = [{"type": "Ready", "status": "True"}]
UNSCHEDULED = [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}]
QUOTA = [{"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: small"}]


def pod(waiting: Mapping[str, str] | None = None, conditions: Sequence[Any] = (), **metadata: str) -> Any:
    containers = [{"state": {"waiting": waiting}}] if waiting else []
    return {
        "metadata": {"name": "headgate-1", **metadata},
        "status": {"containerStatuses": containers, "conditions": list(conditions)},
    }


class FakeClient:
    """A cluster with a pod of the control plane, whose log has one line unless it is empty."""

    def __init__(self, *pods: Any, conditions: Sequence[Any] = (), log: str = "") -> None:
        self.pods, self._conditions, self._log = pods, conditions, log

    async def get(self, path: str, **_query: str) -> Any:
        return {"items": self.pods} if path.endswith("/pods") else {"status": {"conditions": self._conditions}}

    async def stream(self, _path: str, **_query: str) -> AsyncGenerator[bytes]:
        if not self._log:
            raise NotFound("the container has not started")
        yield self._log.encode()


@pytest.mark.parametrize(
    ("cluster", "reasons"),
    [
        (FakeClient(pod(conditions=READY)), []),
        (FakeClient(pod(deletionTimestamp="2026-01-01T00:00:00Z")), []),
        (
            FakeClient(pod({"reason": "ImagePullBackOff", "message": "no such image"})),
            ["pod headgate-1: ImagePullBackOff: no such image"],
        ),
        (FakeClient(pod({"reason": "ContainerCreating"})), ["pod headgate-1: ContainerCreating"]),
        (FakeClient(pod(conditions=UNSCHEDULED)), ["pod headgate-1: 0/1 nodes are available"]),
        (
            FakeClient(pod(), log="no issuer; install it\n"),
            ["pod headgate-1: its log ends with: no issuer; install it"],
        ),
        (
            FakeClient(pod({"reason": "CrashLoopBackOff"}), log="it ends"),
            ["pod headgate-1: its log ends with: it ends"],
        ),
        (FakeClient(pod()), ["pod headgate-1: it is not ready"]),
        (FakeClient(conditions=QUOTA), ["deployment headgate: exceeded quota: small"]),
    ],
)
async def test_each_pod_that_is_not_ready_has_a_reason(cluster: FakeClient, reasons: list[str]) -> None:
    assert await unready_reasons(cast("Client", cluster)) == reasons


async def test_a_pod_whose_container_runs_can_be_left_out() -> None:
    """While an installation waits, its last log line is no reason for the wait."""
    running = {**pod(), "status": {"containerStatuses": [{"state": {"running": {}}}]}}
    cluster = FakeClient(running, pod({"reason": "ContainerCreating"}), log="replica headgate-1 is active now")
    assert await unready_reasons(cast("Client", cluster), starting=False) == ["pod headgate-1: ContainerCreating"]
    assert len(await unready_reasons(cast("Client", cluster))) == 2


async def test_an_installation_does_not_report_the_pods_that_it_replaces() -> None:
    """After a wrong image, the pods of this image stay until the first new pod is ready."""
    waits = ({"reason": "ErrImagePull", "message": "no headgaet:1"}, {"reason": "ContainerCreating"})
    old, new = (pod(wait, creationTimestamp=f"2026-01-0{index}T00:00:00Z") for index, wait in enumerate(waits, 1))
    for index, item in enumerate((old, new)):
        item["metadata"]["labels"] = {"pod-template-hash": str(index)}
    assert await UnreadyPods(cast("Client", FakeClient(old, new))).reasons() == ["pod headgate-1: ContainerCreating"]
    assert len(await unready_reasons(cast("Client", FakeClient(old, new)))) == 2


async def test_a_pause_between_pulls_keeps_the_cause_of_the_last_failure() -> None:
    waits = ({"reason": "ErrImagePull", "message": "not found"}, {"reason": "ImagePullBackOff", "message": "Back-off"})
    cluster = FakeClient(pod(waits[0]))
    unready = UnreadyPods(cast("Client", cluster))
    first = await unready.reasons()
    cluster.pods = (pod(waits[1]),)
    assert await unready.reasons() == first == ["pod headgate-1: ErrImagePull: not found"]
    cluster.pods = (pod({"reason": "ContainerCreating"}),)
    assert await unready.reasons() == ["pod headgate-1: ContainerCreating"]
