"""Which probe keeps a pod from being ready, and what it answered, from Events of both versions."""

import json
from typing import Any

import pytest
from tests.make import objects
from tests.make.objects import Object

from headgate.plane.probe_failures import ProbeFailure, probe_failures
from headgate.resources.core.pod_metadata import PROBES

UNREADY = {"type": "ContainersReady", "status": "False"}
RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}


def status(name: str = "app", **fields: Any) -> Object:
    return {"name": name, "ready": False, "started": True, "state": RUNNING, **fields}


def web(*containers: Object, statuses: tuple[Object, ...] = (), condition: Object = UNREADY, **metadata: Any) -> Object:
    return objects.pod(
        "web-1",
        containers=containers,
        metadata={"uid": "1", **metadata},
        status={"conditions": [condition], "containerStatuses": list(statuses or (status(),))},
    )


def probed(name: str = "app", **probes: Any) -> Object:
    return objects.container(name, **{f"{kind}Probe": probe for kind, probe in probes.items()})


def event(message: str, time: str = "2026-01-01T00:00:00Z", container: str = "") -> Object:
    """Return an Event of the core group."""
    path = {"fieldPath": f"spec.containers{{{container}}}"} if container else {}
    return {"involvedObject": {"uid": "1", **path}, "message": message, "lastTimestamp": time}


def failure(pod: Object, *events: Object) -> str:
    failures = probe_failures([pod], events)
    return failures["1"].text if failures else ""


READINESS = web(probed(readiness={"httpGet": {"path": "/ready", "port": 8080}}))


@pytest.mark.parametrize(
    ("probe", "described"),
    [
        ({"httpGet": {"path": "/ready", "port": 8080}}, "GET :8080/ready"),
        ({"httpGet": {"port": "http", "scheme": "HTTPS", "host": "x"}}, "HTTPS GET x:http/"),
        ({"tcpSocket": {"port": 5432}}, "TCP :5432"),
        ({"grpc": {"port": 9000, "service": "shop"}}, "gRPC :9000, service shop"),
        ({"exec": {"command": ["cat", "/tmp/ready"]}}, "command cat /tmp/ready"),
        ({}, ""),
    ],
)
def test_a_failed_probe_is_named_with_its_target_and_its_answer(probe: Object, described: str) -> None:
    name = f"the readiness probe of container app ({described})" if probe else "the readiness probe"
    expected = f"pod web-1: {name} failed: HTTP status 404"
    assert failure(web(probed(readiness=probe)), event("Readiness probe failed: HTTP status 404")) == expected


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        ("Readiness probe failed: HTTP probe failed with statuscode: 503", "HTTP probe failed with statuscode: 503"),
        (
            'Readiness probe failed: Get "http://10.0.0.1:8080/ready": dial tcp 10.0.0.1:8080: connect: connection refused',
            'Get "http://10.0.0.1:8080/ready": dial tcp 10.0.0.1:8080: connect: connection refused',
        ),
        ("Readiness probe failed: timed out after 1 s", "timed out after 1 s"),
        ("Readiness probe failed: first line\nsecond line", "first line"),
        ("Readiness probe failed: ", "without a message"),
        ("Readiness probe errored and resulted in unknown state: rpc error", "rpc error"),
        (f"Readiness probe failed: {'x' * 5000}", "x" * 200),
    ],
)
def test_the_answer_of_a_kubelet_is_shown_in_one_line(message: str, answer: str) -> None:
    assert failure(READINESS, event(message)).endswith(f") failed: {answer}")


def test_the_last_failure_counts_in_both_versions_of_events() -> None:
    """A repetition updates the Event of the first failure, whose own time stays."""
    series = {"lastObservedTime": "2026-01-01T00:00:09.000000Z"}
    repeated = {
        "regarding": {"uid": "1"},
        "note": "Readiness probe failed: newest",
        "eventTime": "2025-12-31T00:00:00.000000Z",
        "series": series,
    }
    events = (event("Readiness probe failed: older", "2026-01-01T00:00:08Z"), repeated, event("Killing: no probe"))
    assert failure(READINESS, *events).endswith("failed: newest")
    assert failure(READINESS, *reversed(events)).endswith("failed: newest")


def test_of_several_containers_the_one_that_the_event_names_or_that_is_not_ready_counts() -> None:
    probe = {"tcpSocket": {"port": 1}}
    pod = web(
        probed("a", readiness=probe), probed("b", readiness=probe), statuses=(status("a", ready=True), status("b"))
    )
    assert "of container b" in failure(pod, event("Readiness probe failed: x"))
    assert "of container a" in failure(pod, event("Readiness probe failed: x", container="a"))


def test_a_probe_that_the_sidecar_makes_is_described_as_the_user_wrote_it() -> None:
    moved = {"app/readinessProbe": {"tcpSocket": {"port": 6379}}}
    check = {"httpGet": {"path": "/app/readiness", "port": 15021}}
    pod = web(probed(readiness=check), annotations={PROBES: json.dumps(moved)})
    assert "(TCP :6379)" in failure(pod, event("Readiness probe failed: HTTP probe failed with statuscode: 503"))
    broken = web(probed(readiness=check), annotations={PROBES: "{"})
    assert "(GET :15021/app/readiness)" in failure(broken, event("Readiness probe failed: x"))


def test_without_an_event_the_probe_of_a_running_container_is_named_without_an_answer() -> None:
    probe = {"tcpSocket": {"port": 1}}
    both = probed(readiness=probe, startup={"tcpSocket": {"port": 2}})
    assert failure(web(both)) == "pod web-1: the readiness probe of container app (TCP :1) has not succeeded"
    starting = web(both, statuses=(status(started=False),))
    assert failure(starting) == "pod web-1: the startup probe of container app (TCP :2) has not succeeded"
    assert not failure(web(both, statuses=(status(state={"waiting": {"reason": "ContainerCreating"}}),)))
    assert not failure(web(probed()))


def test_a_pod_that_is_ready_or_lacks_only_a_readiness_gate_has_no_failure() -> None:
    ready = web(condition={"type": "ContainersReady", "status": "True"})
    assert not failure(ready, event("Readiness probe failed: HTTP status 500"))
    assert not failure(web(condition={"type": "Ready", "status": "False"}), event("Readiness probe failed: x"))


@pytest.mark.parametrize(("kind", "restarts"), [("Startup", True), ("Liveness", True), ("Readiness", False)])
def test_startup_and_liveness_probes_restart_the_container(kind: str, restarts: bool) -> None:
    failures = probe_failures([READINESS], [event(f"{kind} probe failed: x")])
    assert isinstance(failures["1"], ProbeFailure)
    assert failures["1"].restarts is restarts
