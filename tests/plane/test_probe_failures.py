"""Which probe keeps a pod from being ready, and what it answered, from Events of both versions."""

import json
from typing import Any

import pytest
from tests.make import objects
from tests.make.objects import Object

from headgate.plane.probe_failures import ProbeFailure, probe_failures
from headgate.resources.core.pod_metadata import PROBES, SIDECAR
from headgate.resources.meta import epoch_seconds

UNREADY = {"type": "ContainersReady", "status": "False"}
RUNNING = {"running": {"startedAt": "2025-12-31T00:00:00Z"}}
NOW = epoch_seconds("2026-01-01T00:01:00Z")


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
    """Return the text for users with a permission for the pod."""
    failures = probe_failures([pod], events, NOW)
    return failures["1"].details if failures else ""


def public(pod: Object, *events: Object) -> str:
    """Return the text for all users."""
    failures = probe_failures([pod], events, NOW)
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
        ("Readiness probe failed: \nsecond line", "second line"),
        ("Readiness probe failed: \x1b[31mred\x07", " [31mred "),
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


TCP: Object = {"tcpSocket": {"port": 1}}


def test_an_event_about_a_container_that_is_ready_now_blames_no_probe() -> None:
    """An Event stays for an hour."""
    both = probed("a", readiness=TCP), probed("b", readiness=TCP)
    pod = web(*both, statuses=(status("a", ready=True), status("b")))
    assert "of container b" in failure(pod, event("Readiness probe failed: x"))
    stale = event("Readiness probe failed: newer", "2026-01-01T00:00:09Z", container="a")
    assert failure(pod, stale) == "pod web-1: the readiness probe of container b (TCP :1) has not succeeded"
    current = event("Readiness probe failed: older", container="b")
    assert failure(pod, stale, current).endswith("container b (TCP :1) failed: older")
    crashed = web(both[0], probed("b"), statuses=(status("a", ready=True), status("b", state={"waiting": {}})))
    assert not failure(crashed, stale, event("Readiness probe failed: x"))


def test_an_event_of_an_earlier_run_or_about_a_finished_startup_blames_no_probe() -> None:
    pod = web(probed(readiness=TCP, startup=TCP))
    assert "has not succeeded" in failure(pod, event("Readiness probe failed: x", "2025-12-30T00:00:00Z"))
    assert "the readiness probe" in failure(pod, event("Startup probe failed: x"))


def test_an_event_from_another_namespace_or_from_the_future_is_ignored() -> None:
    """A user who may write Events of one namespace must not put texts into the status of another."""
    written = event("Readiness probe failed: run this")
    for forged in (
        {**written, "metadata": {"namespace": "evil"}},
        {**written, "lastTimestamp": "2999-01-01T00:00:00Z"},
    ):
        assert "run this" not in failure(READINESS, forged)


def moved_to(text: str, mode: str = "transparent") -> str:
    """Return the failure of a pod whose annotation with the original probes has a text."""
    check = {"httpGet": {"path": "/app/readiness", "port": 15021}}
    pod = web(probed(readiness=check), annotations={PROBES: text, SIDECAR: mode})
    return failure(pod, event("Readiness probe failed: HTTP probe failed with statuscode: 503"))


def test_a_probe_that_the_sidecar_makes_is_described_as_the_user_wrote_it() -> None:
    moved = json.dumps({"app/readinessProbe": TCP})
    assert "(TCP :1)" in moved_to(moved)
    assert "(GET :15021/app/readiness)" in moved_to(moved, "explicit")


@pytest.mark.parametrize(
    "text", ["{", "[" * 100_000, "[]", "null", '{"app/readinessProbe": "x"}', '{"app/readinessProbe": []}']
)
def test_an_annotation_that_has_no_probe_is_ignored(text: str) -> None:
    assert "(GET :15021/app/readiness)" in moved_to(text)


@pytest.mark.parametrize("action", [{"httpGet": "x"}, {"grpc": 1}, {"exec": {"command": 5}}, {"exec": {"command": {}}}])
def test_a_probe_of_an_annotation_without_a_valid_action_has_none(action: Object) -> None:
    assert "(without an action)" in moved_to(json.dumps({"app/readinessProbe": action}))


def test_all_users_see_that_a_command_failed_but_not_which_one_nor_its_output() -> None:
    pod = web(probed(readiness={"exec": {"command": ["mysqladmin", "ping", "-pHUNTER2"]}}))
    failed = event("Readiness probe failed: secret output")
    assert public(pod, failed) == "pod web-1: the readiness probe of container app (a command) failed"
    assert failure(pod, failed).endswith("(command mysqladmin ping -pHUNTER2) failed: secret output")
    assert public(pod) == "pod web-1: the readiness probe of container app (a command) has not succeeded"
    assert public(web(), failed) == "pod web-1: the readiness probe failed"


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ("HTTP probe failed with statuscode: 503", "HTTP probe failed with statuscode: 503"),
        ('Get "http://10.0.0.1/?token=x": refused', 'Get "http://10.0.0.1/": refused'),
        ('Get "http://10.0.0.1/": malformed HTTP response "secret"', 'Get "http://10.0.0.1/": malformed HTTP response'),
    ],
)
def test_all_users_see_http_probes_without_queries_and_without_content(answer: str, shown: str) -> None:
    pod = web(probed(readiness={"httpGet": {"path": "/ready?token=x", "port": 80}}))
    name = "pod web-1: the readiness probe of container app (GET :80/ready)"
    assert public(pod, event(f"Readiness probe failed: {answer}")) == f"{name} failed: {shown}"
    assert "token=x" in failure(pod, event(f"Readiness probe failed: {answer}"))


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
    failures = probe_failures([READINESS], [event(f"{kind} probe failed: x")], NOW)
    assert isinstance(failures["1"], ProbeFailure)
    assert failures["1"].restarts is restarts
