"""Which traces proxies begin, and that no request depends on the collector (docs/tasks/traces.md)."""

import http.client
import json
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.e2e import identity_rig as rig
from tests.e2e.manifests import HTTP_PORT, program_deployment, service_manifest
from tests.e2e.running_mesh import RunningMesh
from tests.e2e.span_collector import SpanCollector, span_collector
from tests.waiting import until
from tests.wire import Request

from headgate.resources.trace_sampling import TRACE_SAMPLING

REQUESTS = 400


def server(name: str) -> str:
    """Return a Service and its Deployment, which answers with the headers that it got."""
    return f"{service_manifest(name, HTTP_PORT, selector={'app': name})}\n---\n{program_deployment(name, 'traced.py')}"


@pytest.fixture(scope="module")
def mesh_and_spans(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningMesh, SpanCollector]]:
    root = tmp_path_factory.mktemp("mesh")
    files = {"web.yaml": server("web"), "copy.yaml": server("copy")}
    with (
        span_collector() as (address, found),
        RunningMesh(root, "--otlp-traces", address, "--trace-sampling", "0", manifests=files) as mesh,
    ):
        mesh.settle()
        yield mesh, found


def sampled(mesh: RunningMesh, request: Request, count: int) -> int:
    """Send requests on one connection, which must stay open; return how many a proxy sampled."""
    found = 0
    with closing(http.client.HTTPConnection(*request.address, timeout=60)) as connection:
        connection.connect()
        opened = connection.sock
        for _ in range(count):
            found += is_sampled(ask(connection, request))
        assert connection.sock is opened
    return found


def ask(connection: http.client.HTTPConnection, request: Request) -> Mapping[str, str]:
    """Send a request; return the headers that the application got."""
    connection.request("GET", request.target, headers={"host": request.host, **request.headers})
    answer = connection.getresponse()
    assert answer.status == 200
    (headers,) = json.loads(answer.read())
    return dict(headers)


def is_sampled(headers: Mapping[str, str]) -> bool:
    """Return whether the trace of a request is sampled, by the headers that its application got."""
    return headers["traceparent"].endswith("-01")


def annotate(mesh: RunningMesh, what: str, percentage: str | None) -> None:
    """Set the sampling share of a namespace or a pod, or remove it."""
    mesh.patch(what, {"metadata": {"annotations": {TRACE_SAMPLING: percentage}}})


def share_of(mesh: RunningMesh, pod: Any) -> int:
    """Return the share in the runtime layer of a pod's sidecar, in ten-thousandths."""
    runtime = json.loads(rig.ask_admin(mesh, rig.sidecar_admin_socket(mesh, pod), "/runtime"))
    text = runtime["entries"]["tracing.random_sampling"]["final_value"]
    return int(text.partition("number_value: ")[2].partition("\n")[0])


@contextmanager
def sampled_pod(mesh: RunningMesh) -> Iterator[Any]:
    """Yield the pod of `web`, whose sidecar samples all traces during the `with` block, and none after it.

    The share of a next test could otherwise seem to be active while the sidecar still has this one.
    """
    pod = rig.only_pod(mesh, "web")
    own = f"pod/{pod['metadata']['name']}"
    annotate(mesh, own, "100")
    until(lambda: share_of(mesh, pod) == 10_000)
    try:
        yield pod
    finally:
        annotate(mesh, own, None)
        until(lambda: share_of(mesh, pod) == 0)


def test_a_changed_share_holds_at_once_and_closes_no_connection(
    mesh_and_spans: tuple[RunningMesh, SpanCollector],
) -> None:
    """The number of sampled requests is within three standard deviations."""
    mesh, _ = mesh_and_spans
    pod = rig.only_pod(mesh, "web")
    own = f"pod/{pod['metadata']['name']}"
    request = Request(rig.pod_address(pod), "/", "web")
    steps = [("namespace/default", "100"), (own, "50"), (own, "0"), (own, None), ("namespace/default", None)]
    expected = [1, 0.5, 0, 1, 0]
    with closing(http.client.HTTPConnection(*request.address, timeout=60)) as connection:
        connection.connect()
        opened = connection.sock
        for (what, percentage), share in zip(steps, expected, strict=True):
            annotate(mesh, what, percentage)
            until(lambda share=share: share_of(mesh, pod) == share * 10_000)
            found = sum(is_sampled(ask(connection, request)) for _ in range(REQUESTS))
            assert abs(found - share * REQUESTS) <= 3 * math.sqrt(REQUESTS * share * (1 - share)), what
        assert connection.sock is opened


def test_a_try_begins_no_sampled_trace(mesh_and_spans: tuple[RunningMesh, SpanCollector]) -> None:
    mesh, spans = mesh_and_spans
    trace = "0af7651916cd43dd8448eb211c80319c"
    with sampled_pod(mesh) as pod:
        begun = time.time_ns()  # a proxy may still have the spans of earlier requests
        tried = mesh.headgate("try", "web:8080", "--number", "5")
        assert tried.returncode == 0, tried
        # The spans of a proxy arrive in their order.
        parent = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
        sampled(mesh, Request(rig.pod_address(pod), "/", "web", parent), 1)
        until(lambda: spans.of_trace(trace))
    assert {span.trace for span in spans.spans if span.start >= begun} == {trace}


def test_no_request_waits_for_a_collector_that_does_not_answer(
    mesh_and_spans: tuple[RunningMesh, SpanCollector],
) -> None:
    mesh, spans = mesh_and_spans
    with sampled_pod(mesh) as pod:
        spans.released.clear()
        unanswered = spans.messages
        try:
            request = Request(rig.pod_address(pod), "/", "web")
            assert sampled(mesh, request, REQUESTS) == REQUESTS
            until(lambda: spans.messages > unanswered)
        finally:
            spans.released.set()


def test_no_request_waits_for_a_collector_that_does_not_listen(tmp_path: Path) -> None:
    options = ("--otlp-traces", "127.0.0.1:9", "--trace-sampling", "100")
    with RunningMesh(tmp_path, *options, manifests={"web.yaml": server("web")}) as mesh:
        mesh.settle()
        assert sampled(mesh, mesh.request("web", 8080), REQUESTS) == REQUESTS


def test_a_share_that_is_no_percentage_is_refused(mesh_and_spans: tuple[RunningMesh, SpanCollector]) -> None:
    mesh, _ = mesh_and_spans
    refused = mesh.try_kubectl("annotate", "namespace", "default", f"{TRACE_SAMPLING}=half")
    assert refused.returncode != 0
    assert (
        "must be a percentage from 0 to 100 with at most two decimals, such as 1 or 0.25, not 'half'" in refused.stderr
    )
