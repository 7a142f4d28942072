"""Traces through real Envoys: one tree over a Gateway and two sidecars, joined with the client's trace (docs/tasks/traces.md)."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pytest
from tests.e2e.gateway_api.objects import edge_route, gateway_address, gateway_for_hosts, rule_to
from tests.e2e.manifests import HTTP_PORT, program_deployment, service_manifest, split_manifest
from tests.e2e.running_mesh import RunningMesh
from tests.e2e.span_collector import CLIENT, SERVER, ReceivedSpan, SpanCollector, span_collector
from tests.e2e.test_tap import first, tapping
from tests.waiting import until
from tests.wire import Address, Request

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SECRET = "hunter2"
COPY = {"type": "RequestMirror", "requestMirror": {"backendRef": {"name": "back", "port": 8080}}}
MIRRORED = rule_to("front", path="/mirrored", filters=[COPY])
EDIT = dict.fromkeys(("traceparent", "tracestate", "x-request-id"), "edited")
EDITED = rule_to(
    "front",
    path="/edited",
    filters=[
        {
            "type": "RequestHeaderModifier",
            "requestHeaderModifier": {"set": [{"name": name, "value": value} for name, value in EDIT.items()]},
        }
    ],
)


class Traced(NamedTuple):
    """A mesh in which a Gateway leads to the pod `front`, which calls `back`; the Service `back` is split."""

    mesh: RunningMesh
    collector: SpanCollector

    def call(self, headers: Mapping[str, str], address: Address | None = None, path: str = "/") -> Sequence[Any]:
        """Send a request, by default to the Gateway; return the headers that each pod got."""
        to = address or gateway_address(self.mesh, "default")
        answer = self.mesh.ask(Request(to, path, "shop.example", headers))
        assert answer.status == 200, answer
        return list(json.loads(answer.body))

    def tree(self, trace: str, count: int) -> Sequence[ReceivedSpan]:
        """Wait until a trace has `count` spans; return them, each after its parent."""

        def arrived() -> Sequence[ReceivedSpan]:
            found = self.collector.of_trace(trace)
            assert len(found) >= count, found
            return found

        found = until(arrived)
        assert not self.collector.mistakes
        return found


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traced]:
    files = {
        "front.yaml": f"{service_manifest('front', HTTP_PORT, selector={'app': 'front'})}\n---\n"
        + program_deployment("front", "traced.py", NEXT="back"),
        "back.yaml": f"{service_manifest('back', HTTP_PORT)}\n---\n{split_manifest('back', 'back', {'back-v1': 1})}",
        "back-v1.yaml": f"{service_manifest('back-v1', HTTP_PORT, selector={'app': 'back-v1'})}\n---\n"
        + program_deployment("back-v1", "traced.py"),
        "edge.yaml": f"{gateway_for_hosts()}\n---\n{edge_route('route', rule_to('front'), MIRRORED, EDITED, hosts=['shop.example'])}",
    }
    root = tmp_path_factory.mktemp("mesh")
    with (
        span_collector() as (address, found),
        RunningMesh(root, "--otlp-traces", address, "--trace-sampling", "0", manifests=files) as mesh,
    ):
        mesh.settle()
        yield Traced(mesh, found)


def trace_id(number: int) -> str:
    """Return a trace ID for one test, so that traces of tests are not mixed."""
    return f"{number:032x}"


def test_a_trace_over_a_gateway_and_two_sidecars_is_one_tree(traced: Traced) -> None:
    trace = trace_id(1)
    got = traced.call({"traceparent": f"00-{trace}-{SPAN}-01", "tracestate": "shop=1"})
    spans = traced.tree(trace, 8)
    assert [(span.service, span.kind) for span in spans] == [
        (service, kind) for service in ("headgate-gateway", "front", "front", "back-v1") for kind in (SERVER, CLIENT)
    ]
    assert [span.parent for span in spans] == [SPAN, *(span.id for span in spans[:-1])]
    assert {span.state for span in spans} == {"shop=1"}
    assert [headers["traceparent"] for headers in got] == [f"00-{trace}-{spans[at].id}-01" for at in (3, 7)]


def test_proxies_overwrite_what_a_route_writes_into_headers_of_traces_and_leave_its_request_id(traced: Traced) -> None:
    """The finding `TraceHeader` says so."""
    trace = trace_id(12)
    front, _ = traced.call({"traceparent": f"00-{trace}-{SPAN}-01", "tracestate": "shop=1"}, path="/edited")
    assert front["traceparent"].startswith(f"00-{trace}-")
    assert (front["tracestate"], front["x-request-id"]) == ("shop=1", "edited")


def test_spans_name_the_objects_and_no_query(traced: Traced) -> None:
    trace = trace_id(2)
    secrets = {"authorization": f"Bearer {SECRET}", "cookie": f"session={SECRET}", "user-agent": "curl"}
    traced.call({"traceparent": f"00-{trace}-{SPAN}-01", **secrets}, path=f"/cart?token={SECRET}")
    edge, called = traced.tree(trace, 8)[0], traced.tree(trace, 8)[5]
    assert SECRET not in str(traced.collector.spans)
    assert edge.name == "GET gateway/default/edge/18080/HTTPRoute/default/route/0"
    expected = {
        "http.request.method": "GET",
        "http.response.status_code": 200,
        "url.scheme": "http",
        "url.path": "/cart",
        "user_agent.original": "curl",
        "http.url": "http://shop.example/cart",
        "headgate.route": "HTTPRoute default/route",
        "headgate.rule": "0",
        "headgate.backend": "default/front",
    }
    assert edge.attributes.items() >= expected.items()
    routed = {
        "upstream_cluster.name": "outbound/default/back/8080",
        "headgate.route": "TrafficSplit default/back",
        "headgate.backend": "default/back-v1",
    }
    assert called.attributes.items() >= routed.items()
    assert called.attributes["headgate.pod"].startswith("default/back-v1-")
    assert called.resource.items() >= {"service.namespace": "default", "k8s.namespace.name": "default"}.items()
    assert called.resource["k8s.pod.name"].startswith("front-")


@pytest.mark.parametrize(
    ("headers", "sampled"),
    [
        ({"traceparent": f"00-{TRACE}-{SPAN}-00"}, False),
        ({"b3": f"{TRACE}-{SPAN}-1"}, True),
        ({"b3": f"{TRACE}-{SPAN}-d-05e3ac9a4f6e3b90"}, True),
        ({"b3": f"{TRACE}-{SPAN}-0"}, False),
        ({"b3": f"{TRACE}-{SPAN}"}, False),
        ({"x-b3-traceid": TRACE, "x-b3-spanid": SPAN, "x-b3-sampled": "1"}, True),
        ({"x-b3-traceid": TRACE, "x-b3-spanid": SPAN, "x-b3-sampled": "0"}, False),
        ({"x-b3-traceid": TRACE, "x-b3-spanid": SPAN, "x-b3-flags": "1"}, True),
    ],
    ids=str,
)
def test_a_proxy_continues_the_trace_and_the_decision_of_its_client(
    traced: Traced, headers: Mapping[str, str], *, sampled: bool
) -> None:
    for number, got in enumerate(traced.call(headers)):
        version, trace, parent, flags = got["traceparent"].split("-")
        assert (version, trace, flags) == ("00", TRACE, "01" if sampled else "00"), number
        assert parent != SPAN


def test_a_b3_trace_id_of_64_bits_is_continued(traced: Traced) -> None:
    (got, _) = traced.call({"b3": f"{TRACE[:16]}-{SPAN}-1"})
    assert got["traceparent"].startswith(f"00-{'0' * 16}{TRACE[:16]}-")


@pytest.mark.parametrize(
    "malformed",
    [
        {"traceparent": "x"},
        {"traceparent": f"00-{TRACE}-{SPAN}-1"},
        {"traceparent": f"00-{TRACE}-{SPAN}-01-more"},
        {"traceparent": f"ff-{TRACE}-{SPAN}-01"},
        {"traceparent": f"00-{TRACE.upper()}-{SPAN}-01"},
        {"traceparent": f"00-{'0' * 32}-{SPAN}-01"},
        {"traceparent": f"00-{TRACE}-{'0' * 16}-01"},
        {"traceparent": f"00-{TRACE[:-1]}g-{SPAN}-01"},
        {"b3": f"{TRACE}{TRACE}-{SPAN}-1"},
        {"b3": f"{'0' * 32}-{SPAN}-1"},
        {"x-b3-traceid": TRACE, "x-b3-sampled": "0"},
    ],
    ids=str,
)
def test_a_malformed_trace_begins_a_new_one_without_its_state(traced: Traced, malformed: Mapping[str, str]) -> None:
    (got, _) = traced.call({**malformed, "tracestate": "shop=1"})
    version, trace, _, flags = got["traceparent"].split("-")
    assert (version, flags, got["tracestate"]) == ("00", "00", "")
    assert trace != TRACE


def test_a_valid_traceparent_wins_over_b3(traced: Traced) -> None:
    (got, _) = traced.call({"traceparent": f"00-{TRACE}-{SPAN}-00", "b3": f"{trace_id(9)}-{SPAN}-1"})
    assert got["traceparent"].startswith(f"00-{TRACE}-")


@pytest.mark.parametrize("decision", [{"b3": "1"}, {"b3": "d"}, {"x-b3-sampled": "1"}], ids=str)
def test_a_b3_decision_without_a_trace_is_honored(traced: Traced, decision: Mapping[str, str]) -> None:
    assert {got["traceparent"][-2:] for got in traced.call(decision)} == {"01"}


def test_an_application_gets_the_request_id_of_the_client_or_none(traced: Traced) -> None:
    own = {"x-request-id": "order-7", "x-client-trace-id": "mine"}
    for headers in (own, {}):
        (got, _) = traced.call(headers)
        assert {name: got[name] for name in own if name in got} == headers
        assert not [name for name in got if name.startswith("x-headgate")]


def test_a_tap_shows_the_trace_of_each_request(traced: Traced) -> None:
    trace = trace_id(5)
    headers = {"traceparent": f"00-{trace}-{SPAN}-00"}
    request = Request(gateway_address(traced.mesh, "default"), "/", "shop.example", headers)
    with tapping(traced.mesh, "deployment/back-v1") as events, traced.mesh.load(request):
        event = first(events, lambda event: event["side"] == "Server")
    assert event["traceId"] == trace


def test_a_copy_has_a_span_in_the_trace_of_its_request(traced: Traced) -> None:
    trace = trace_id(6)
    traced.call({"traceparent": f"00-{trace}-{SPAN}-01"}, path="/mirrored")
    spans = traced.tree(trace, 11)
    (copy,) = [span for span in spans if span.name == "mirror"]
    assert (copy.kind, copy.parent, copy.service) == (CLIENT, spans[0].id, "headgate-gateway")
    assert [span.service for span in spans if span.parent == copy.id] == ["back-v1"]
