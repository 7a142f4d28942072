"""The reasons in the error message of an installation whose control plane does not become ready."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, cast

import pytest

from headgate.errors import NotFound
from headgate.kubernetes.client import Client
from headgate.kubernetes.install.unready import UnreadyPods, blocked_deletions, unready_reasons

READY = [{"type": "Ready", "status": "True"}]
UNSCHEDULED = [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}]
QUOTA = [{"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: small"}]


def replica_pod(waiting: Mapping[str, str] | None = None, conditions: Sequence[Any] = (), **metadata: str) -> Any:
    containers = [{"state": {"waiting": waiting}}] if waiting else []
    return {
        "metadata": {"name": "headgate-1", **metadata},
        "status": {"containerStatuses": containers, "conditions": list(conditions)},
    }


class ClusterWithReplica:
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
        (ClusterWithReplica(replica_pod(conditions=READY)), []),
        (ClusterWithReplica(replica_pod(deletionTimestamp="2026-01-01T00:00:00Z")), []),
        (
            ClusterWithReplica(replica_pod({"reason": "ImagePullBackOff", "message": "no such image"})),
            ["pod headgate-1: ImagePullBackOff: no such image"],
        ),
        (ClusterWithReplica(replica_pod({"reason": "ContainerCreating"})), ["pod headgate-1: ContainerCreating"]),
        (ClusterWithReplica(replica_pod(conditions=UNSCHEDULED)), ["pod headgate-1: 0/1 nodes are available"]),
        (
            ClusterWithReplica(replica_pod(), log="no issuer; install it\n"),
            ["pod headgate-1: its log ends with: no issuer; install it"],
        ),
        (
            ClusterWithReplica(replica_pod({"reason": "CrashLoopBackOff"}), log="it ends"),
            ["pod headgate-1: its log ends with: it ends"],
        ),
        (ClusterWithReplica(replica_pod()), ["pod headgate-1: it is not ready"]),
        (ClusterWithReplica(conditions=QUOTA), ["deployment headgate: exceeded quota: small"]),
    ],
)
async def test_each_pod_that_is_not_ready_has_a_reason(cluster: ClusterWithReplica, reasons: list[str]) -> None:
    assert await unready_reasons(cast("Client", cluster)) == reasons


async def test_a_pod_whose_container_runs_can_be_left_out() -> None:
    """While an installation waits, its last log line is no reason for the wait."""
    running = {**replica_pod(), "status": {"containerStatuses": [{"state": {"running": {}}}]}}
    cluster = ClusterWithReplica(
        running, replica_pod({"reason": "ContainerCreating"}), log="replica headgate-1 is active now"
    )
    assert await unready_reasons(cast("Client", cluster), starting=False) == ["pod headgate-1: ContainerCreating"]
    assert len(await unready_reasons(cast("Client", cluster))) == 2


async def test_an_installation_does_not_report_the_pods_that_it_replaces() -> None:
    """After a wrong image, the pods of this image stay until the first new pod is ready."""
    waits = ({"reason": "ErrImagePull", "message": "no headgaet:1"}, {"reason": "ContainerCreating"})
    old, new = (
        replica_pod(wait, creationTimestamp=f"2026-01-0{index}T00:00:00Z") for index, wait in enumerate(waits, 1)
    )
    for index, item in enumerate((old, new)):
        item["metadata"]["labels"] = {"pod-template-hash": str(index)}
    assert await UnreadyPods(cast("Client", ClusterWithReplica(old, new))).reasons() == [
        "pod headgate-1: ContainerCreating"
    ]
    assert len(await unready_reasons(cast("Client", ClusterWithReplica(old, new)))) == 2


async def test_a_pause_between_pulls_keeps_the_cause_of_the_last_failure() -> None:
    waits = ({"reason": "ErrImagePull", "message": "not found"}, {"reason": "ImagePullBackOff", "message": "Back-off"})
    cluster = ClusterWithReplica(replica_pod(waits[0]))
    unready = UnreadyPods(cast("Client", cluster))
    first = await unready.reasons()
    cluster.pods = (replica_pod(waits[1]),)
    assert await unready.reasons() == first == ["pod headgate-1: ErrImagePull: not found"]
    cluster.pods = (replica_pod({"reason": "ContainerCreating"}),)
    assert await unready.reasons() == ["pod headgate-1: ContainerCreating"]


class ClusterWithApis:
    """A cluster with these APIServices of headgate."""

    def __init__(self, *api_services: Any) -> None:
        self._api_services = api_services

    async def get(self, _path: str, *, labelSelector: str) -> Any:  # noqa: N803 - as in the query
        assert labelSelector == "app.kubernetes.io/name=headgate"
        return {"items": self._api_services}


async def test_registered_apis_without_a_replica_are_named_with_their_effect_on_the_cluster() -> None:
    (line,) = await blocked_deletions(cast("Client", ClusterWithApis({"metadata": {}})))
    assert line.startswith("until a replica is active, Kubernetes deletes no namespace")
    assert line.endswith("kubectl delete apiservices --selector app.kubernetes.io/name=headgate")
    assert not await blocked_deletions(cast("Client", ClusterWithApis()))
