"""The readiness of workloads, from the objects of their pods."""

from typing import Any

import pytest
from tests.make import objects
from tests.make.objects import Object

from headgate.plane.workload_readiness import STARTING_S, PodReports, ready_pods, workload_counts
from headgate.resources.mesh_status import WorkloadCounts
from headgate.resources.meta import timestamp
from headgate.resources.pod_owners import Ref

NOW = 1_800_000_000.0
READY = {"type": "Ready", "status": "True"}
UNREADY = {"type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": "unready: [app]"}


def owned(name: str, *conditions: Object, deployment: str = "web", age: float = 60, **status: Any) -> Object:
    """Return a pod of a Deployment's ReplicaSet."""
    owner = {"kind": "ReplicaSet", "name": f"{deployment}-abc", "uid": "u", "apiVersion": "apps/v1", "controller": True}
    metadata = {"ownerReferences": [owner], "creationTimestamp": timestamp(NOW - age), "uid": name}
    labels = {"pod-template-hash": "abc"}
    return objects.pod(name, labels=labels, metadata=metadata, status={"conditions": list(conditions), **status})


def web(replicas: int, *, age: float = 60, **more: Any) -> Object:
    return objects.deployment("web", replicas=replicas, metadata={"creationTimestamp": timestamp(NOW - age)}, **more)


def container_state(**state: Any) -> list[Object]:
    return [{"name": "app", "state": state}]


def lines(counts: WorkloadCounts) -> list[str]:
    return [f"{row.object.kind} {row.object.name}: {row.text()}" for row in counts.unready]


def test_a_deployment_counts_its_ready_pods_against_its_replicas() -> None:
    counts = workload_counts([owned("a", READY), owned("b", READY)], [web(2)], now=NOW)
    assert (counts.ready, counts.wanted, counts.unready) == (2, 2, ())


def test_ready_pods_count_for_the_owner_of_their_replica_set_whatever_its_name() -> None:
    """A Deployment adopts ReplicaSets that fit its selector."""
    reference = objects.owner_reference(objects.deployment("web", metadata={"uid": "1"}), controller=True)
    adopted = objects.obj("ReplicaSet", "old-abc", metadata={"ownerReferences": [reference]}, spec={})
    pods = [owned("a", READY, deployment="old"), owned("b", UNREADY), owned("c", READY, phase="Failed")]
    counted = ready_pods(pods, [web(1), adopted])
    assert counted == {Ref("ReplicaSet", "default", "old-abc"): 1, Ref("Deployment", "default", "web"): 1}


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (
            {"containerStatuses": container_state(waiting={"reason": "CommandNotFound", "message": "no such file: x"})},
            "CommandNotFound: no such file: x",
        ),
        (
            {"initContainerStatuses": container_state(terminated={"exitCode": 3, "reason": "Error"})},
            "container app ended with exit code 3",
        ),
    ],
)
def test_a_container_that_cannot_run_is_an_error_at_once(status: Any, reason: str) -> None:
    counts = workload_counts([owned("a", UNREADY, age=0, **status)], [web(1, age=0)], now=NOW)
    assert lines(counts) == [f"Deployment web: 0 of 1 pods ready: {reason}"]


def test_a_pod_that_cannot_be_scheduled_is_an_error() -> None:
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node"}
    counts = workload_counts([owned("a", unscheduled, age=0)], [web(1)], now=NOW)
    assert lines(counts) == ["Deployment web: 0 of 1 pods ready: Unschedulable: no node"]


def test_a_pod_that_the_host_could_not_run_has_the_reason_of_the_host() -> None:
    counts = workload_counts([owned("a", age=0)], [web(1)], now=NOW, reports=PodReports({"a": "Invalid: no address"}))
    assert lines(counts) == ["Deployment web: 0 of 1 pods ready: Invalid: no address"]


def test_a_broken_pod_of_a_rollout_is_an_error_while_the_old_pods_serve() -> None:
    waiting = container_state(waiting={"reason": "CrashLoopBackOff"})
    counts = workload_counts([owned("old", READY), owned("new", UNREADY, containerStatuses=waiting)], [web(1)], now=NOW)
    assert lines(counts) == ["Deployment web: 1 of 1 pods ready: CrashLoopBackOff"]


def unhealthy(message: str, pod: str = "a") -> PodReports:
    return PodReports(events=[{"regarding": {"uid": pod}, "note": message, "eventTime": "2026-01-01T00:00:00Z"}])


def test_a_pod_whose_probe_fails_names_the_probe_and_its_answer() -> None:
    probe = {"httpGet": {"path": "/ready", "port": 8080}}
    failing = owned("a", UNREADY, {**UNREADY, "type": "ContainersReady"})
    failing["spec"]["containers"] = [objects.container("app", readinessProbe=probe)]
    reports = unhealthy("Readiness probe failed: HTTP status 404")
    assert lines(workload_counts([failing], [web(1)], now=NOW, reports=reports)) == [
        "Deployment web: 0 of 1 pods ready: pod a: the readiness probe of container app (GET :8080/ready) failed: HTTP status 404"
    ]


def test_a_crash_loop_by_a_liveness_probe_names_the_probe() -> None:
    waiting = {"containerStatuses": container_state(waiting={"reason": "CrashLoopBackOff", "message": "back-off 10s"})}
    crashing = owned("a", UNREADY, {**UNREADY, "type": "ContainersReady"}, **waiting)
    for message, ending in (
        ("Liveness probe failed: timed out after 1 s", "; pod a: the liveness probe failed"),
        ("Readiness probe failed: connection refused", ""),
    ):
        (line,) = lines(workload_counts([crashing], [web(1)], now=NOW, reports=unhealthy(message)))
        assert line == f"Deployment web: 0 of 1 pods ready: CrashLoopBackOff: back-off 10s{ending}"


def test_a_starting_pod_is_an_error_only_after_a_while() -> None:
    def counts(age: float) -> WorkloadCounts:
        return workload_counts([owned("a", UNREADY, age=age)], [web(1)], now=NOW)

    assert lines(counts(STARTING_S)) == []
    assert lines(counts(STARTING_S + 1)) == ["Deployment web: 0 of 1 pods ready: ContainersNotReady: unready: [app]"]


def test_a_deployment_without_pods_says_why_none_is_created() -> None:
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota"}
    counts = workload_counts([], [web(2, status={"conditions": [failure]})], now=NOW)
    assert lines(counts) == ["Deployment web: 0 of 2 pods ready: FailedCreate: exceeded quota"]
    assert lines(workload_counts([], [web(2)], now=NOW))[0].startswith(
        "Deployment web: 0 of 2 pods ready: a pod is missing"
    )
    assert lines(workload_counts([], [web(0)], now=NOW)) == []


def of_job(name: str, **status: Any) -> Object:
    """Return a pod of the Job `sums`."""
    owner = {"kind": "Job", "name": "sums", "uid": "j", "apiVersion": "batch/v1", "controller": True}
    metadata = {"ownerReferences": [owner], "creationTimestamp": timestamp(NOW - 60), "uid": name}
    return objects.pod(name, metadata=metadata, status={"conditions": [UNREADY], **status})


def test_pods_of_a_job_may_fail_and_a_job_that_has_failed_needs_attention() -> None:
    crashed = container_state(waiting={"reason": "CrashLoopBackOff"})
    pods = [of_job("a", phase="Failed"), of_job("b", containerStatuses=crashed)]
    job = objects.obj("Job", "sums", version="batch/v1")
    assert lines(workload_counts(pods, [job], now=NOW)) == []
    failed = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "too many"}
    counts = workload_counts([], [{**job, "status": {"conditions": [failed]}}], now=NOW)
    assert lines(counts) == ["Job sums: the Job has failed: BackoffLimitExceeded: too many"]


def test_a_pod_of_a_job_that_can_not_start_is_an_error() -> None:
    missing = container_state(waiting={"reason": "RunContainerError", "message": "no such file: x"})
    counts = workload_counts([of_job("a", containerStatuses=missing)], [], now=NOW)
    assert lines(counts) == ["Job sums: 0 of 1 pods ready: RunContainerError: no such file: x"]


def test_a_stateful_set_counts_its_replicas_and_a_daemon_set_its_nodes() -> None:
    stored = [
        objects.obj("StatefulSet", "db", version="apps/v1", spec={"replicas": 2}),
        objects.obj("DaemonSet", "agent", version="apps/v1", status={"desiredNumberScheduled": 1}),
    ]
    assert [(row.object.name, row.wanted) for row in workload_counts([], stored, now=NOW).unready] == [
        ("agent", 1),
        ("db", 2),
    ]


def test_pods_that_have_ended_or_are_being_deleted_do_not_count() -> None:
    ended = objects.pod("job", status={"phase": "Failed"})
    leaving = objects.pod("leaving", metadata={"deletionTimestamp": timestamp(NOW)})
    assert workload_counts([ended, leaving], [], now=NOW) == WorkloadCounts()


def test_a_pod_without_a_controller_counts_for_itself() -> None:
    counts = workload_counts([objects.pod("alone")], [], now=NOW)
    assert lines(counts) == ["Pod alone: 0 of 1 pods ready: it has not started"]


def test_on_a_cluster_only_workloads_with_a_sidecar_count() -> None:
    meshed = owned("a", READY)
    meshed["metadata"]["annotations"] = objects.headgate_keys(sidecar_mode="transparent")
    pods = [meshed, owned("b", UNREADY), owned("c", UNREADY, deployment="other")]
    other = objects.deployment("other", replicas=1)
    counts = workload_counts(pods, [web(2), other], now=NOW, only_meshed=True)
    assert (counts.ready, counts.wanted) == (1, 2)
    assert lines(counts) == ["Deployment web: 1 of 2 pods ready: ContainersNotReady: unready: [app]"]
