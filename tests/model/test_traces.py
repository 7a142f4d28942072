"""The trace of a request, by the headers of its client: W3C trace context and B3."""

import pytest

from headgate.model.traces import TraceContext, trace_context

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize(
    ("headers", "sampled"),
    [
        ({"Traceparent": PARENT}, True),
        ({"traceparent": f"00-{TRACE}-{SPAN}-02"}, False),
        ({"traceparent": f"01-{TRACE}-{SPAN}-03"}, True),
        ({"b3": f"{TRACE}-{SPAN}-1"}, True),
        ({"b3": f"{TRACE}-{SPAN}-d-05e3ac9a4f6e3b90"}, True),
        ({"b3": f"{TRACE}-{SPAN}-0"}, False),
        ({"b3": f"{TRACE}-{SPAN}"}, False),
        ({"X-B3-TraceId": TRACE, "X-B3-SpanId": SPAN, "X-B3-Sampled": "1"}, True),
        ({"X-B3-TraceId": TRACE, "X-B3-SpanId": SPAN, "X-B3-Flags": "1"}, True),
        ({"X-B3-TraceId": TRACE, "X-B3-SpanId": SPAN}, False),
        ({"traceparent": "x", "b3": f"{TRACE}-{SPAN}-1"}, True),
        ({"traceparent": f"00-{TRACE}-{SPAN}-00", "b3": f"{'1' * 32}-{SPAN}-1"}, False),
    ],
    ids=str,
)
def test_the_trace_and_the_decision_are_those_of_the_client(headers, sampled):
    assert trace_context(headers.items()) == TraceContext(TRACE, sampled)


def test_a_trace_id_of_64_bits_gets_zeros_in_front():
    assert trace_context([("b3", f"{TRACE[:16]}-{SPAN}-1")]) == TraceContext("0" * 16 + TRACE[:16], is_sampled=True)


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("traceparent", "")],
        [("traceparent", f"{PARENT}-more")],
        [("traceparent", f"ff{PARENT[2:]}")],
        [("traceparent", PARENT.upper())],
        [("traceparent", f"00-{'0' * 32}-{SPAN}-01")],
        [("traceparent", f"00-{TRACE}-{'0' * 16}-01")],
        [("traceparent", PARENT), ("traceparent", PARENT)],
        [("b3", "1")],
        [("b3", f"{'0' * 32}-{SPAN}-1")],
        [("b3", f"{TRACE}-{'0' * 16}-1")],
        [("x-b3-traceid", TRACE)],
    ],
    ids=str,
)
def test_other_headers_are_no_trace(headers):
    assert trace_context(headers) is None
