"""Routes and splits that match or change headers of traces have a finding while traces are on."""

from tests.make.objects import backed_service, http_route_group, route, rule, service_parent, split
from tests.make.values import compiled, findings

from headgate.compiler.reasons import Reason

TRACES = {"otlp_traces": "127.0.0.1:4317"}
WEB = backed_service("web", ("web-1", "10.0.0.1"))
BY_ID = (
    http_route_group("by-id", {"own": {"headers": [{"X-Request-ID": "a.*"}]}}),
    split("web", {"web-2": 1}, matches=["by-id"]),
)


def changed(name: str) -> dict[str, object]:
    """Return the filter that sets a request header."""
    return {"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": name, "value": "x"}]}}


def test_a_split_by_the_id_of_requests_has_a_finding_while_traces_are_on() -> None:
    objects = (*WEB, *backed_service("web-2", ("web-2", "10.0.0.2")), *BY_ID)
    (finding,) = findings(compiled(*objects, **TRACES), Reason.TRACE_HEADER)
    assert (finding.about.kind, finding.field) == ("TrafficSplit", "spec.matches[0].name")
    assert "x-request-id" in finding.message
    assert not findings(compiled(*objects), Reason.TRACE_HEADER)


def test_a_route_may_change_the_id_of_requests_but_no_header_of_traces() -> None:
    rules = [rule({"web": 1}, filters=[changed(name)]) for name in ("x-request-id", "Tracestate", "b3")]
    result = compiled(*WEB, route("web", *rules, parents=[service_parent("web")]), **TRACES)
    assert [item.field for item in findings(result, Reason.TRACE_HEADER)] == ["spec.rules[1]"]
