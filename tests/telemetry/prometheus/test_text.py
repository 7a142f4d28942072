"""The totals for Prometheus, with a limited number of series, and their text format, which promtool checks."""

import itertools
import re
import shutil
import subprocess

import pytest

from headgate.telemetry.counters.counts import (
    CONNECTIONS,
    DENIED_CONNECTIONS,
    DENIED_REQUESTS,
    FAILED,
    RECEIVED,
    SENT,
    SUCCEEDED,
    UNREACHED,
    Counts,
    class_index,
)
from headgate.telemetry.counters.flows import NO_PEER, Flow, Peer
from headgate.telemetry.counters.histogram import BOUNDS_US, bucket_of, gathered
from headgate.telemetry.prometheus.labels import FlowLabels
from headgate.telemetry.prometheus.text import LE_US, Family, Line, classification, histogram, traffic, written
from headgate.telemetry.prometheus.totals import IDLE, OTHER, SWEEP, Totals
from headgate.telemetry.windows import Windows

PROMTOOL = shutil.which("promtool")
WEB = Flow(source=Peer(pod="default/a"), destination=Peer(pod="default/b"), service="default/web", port=80)
LINE = re.compile(r"(?P<name>\w+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")


def totals(**options):
    return Totals(FlowLabels(lambda _: None), **({"clock": lambda: 0.0, "started": 1234.5} | options))


def text_of(found):
    return "".join(written(traffic(found)))


def values(text, name, *labels):
    """Return the values of a metric by some of its labels."""
    found = {}
    for line in text.splitlines():
        match = LINE.fullmatch(line)
        if match and match["name"] == name:
            tags = dict(re.findall(r'(\w+)="([^"]*)"', match["labels"] or ""))
            found[tuple(tags.get(label, "") for label in labels)] = float(match["value"])
    return found


def test_requests_have_a_response_class_and_a_classification():
    """D22. The usual classes start at zero, because rate() misses the first value of a series."""
    found = totals()
    found.add(WEB, Counts.of({class_index(200): 3, class_index(404): 2, class_index(0): 1}))
    found.add(WEB, Counts.of({class_index(200): 4}))
    assert values(text_of(found), "headgate_requests_total", "response_class", "classification") == {
        ("2xx", "success"): 7,
        ("4xx", "success"): 2,
        ("5xx", "failure"): 0,
        ("denied", "denied"): 0,
        ("none", "failure"): 1,
    }


def test_denied_requests_and_connections_have_series_of_their_own():
    found = totals()
    found.add(WEB, Counts.of({DENIED_REQUESTS: 3, CONNECTIONS: 2, DENIED_CONNECTIONS: 1}))
    text = text_of(found)
    assert values(text, "headgate_requests_total", "response_class", "classification") == {
        ("2xx", "success"): 0,
        ("5xx", "failure"): 0,
        ("denied", "denied"): 3,
    }
    assert values(text, "headgate_tcp_connections_denied_total") == {(): 1}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("1xx", "success"),
        ("4xx", "success"),
        ("5xx", "failure"),
        ("grpc-0", "success"),
        ("grpc-14", "failure"),
        ("denied", "denied"),
    ],
)
def test_each_response_class_is_a_success_a_failure_or_a_denial(name, expected):
    assert classification(name) == expected


def test_grpc_responses_have_the_class_of_their_grpc_status():
    found = totals()
    found.add(WEB, Counts.of({class_index(200, "5"): 3, class_index(200, "14"): 2}))
    expected = {("grpc-0",): 0, ("grpc-5",): 3, ("grpc-14",): 2, ("denied",): 0}
    assert values(text_of(found), "headgate_requests_total", "response_class") == expected


def test_exposed_buckets_are_exact_because_proxies_count_by_the_same_bounds():
    assert set(LE_US) <= set(BOUNDS_US)
    latencies = [90, 100, 101, 1000, 1001, 4_000_000, 29_000_000, 31_000_000, 70_000_000]
    found = totals()
    for latency in latencies:
        found.add(WEB, Counts(gathered({bucket_of(latency): 1})))
    text = text_of(found)
    exposed = {
        bound: count for (bound,), count in values(text, "headgate_request_duration_seconds_bucket", "le").items()
    }
    # Envoy counts a latency that equals a bound in the next bucket
    expected = {f"{bound / 1e6:g}": sum(latency < bound for latency in latencies) for bound in LE_US}
    assert exposed == expected | {"+Inf": len(latencies)}
    assert values(text, "headgate_request_duration_seconds_count") == {(): len(latencies)}
    (total,) = values(text, "headgate_request_duration_seconds_sum").values()
    assert total == pytest.approx(sum(min(latency, 60_000_000) for latency in latencies) / 1e6, rel=0.1)


def test_mirrored_requests_are_counted_only_in_headgate_copies_total():
    """D22."""
    found = totals()
    found.add(Flow(source=WEB.source, destination=WEB.destination, copy=True), Counts.of({SUCCEEDED: 5, FAILED: 2}))
    text = text_of(found)
    assert values(text, "headgate_copies_total", "classification") == {("success",): 5, ("failure",): 2}
    assert "headgate_requests_total" not in text
    assert "tcp" not in text


def test_connections_and_bytes_have_their_own_series():
    found = totals()
    found.add(WEB, Counts.of({CONNECTIONS: 2, SENT: 1 << 48, RECEIVED: 7}))
    found.add(Flow(source=WEB.source, destination=NO_PEER, service="default/web", port=80), Counts.of({UNREACHED: 3}))
    text = text_of(found)
    assert values(text, "headgate_tcp_connections_opened_total", "destination_workload") == {("b",): 2}
    assert values(text, "headgate_tcp_connections_failed_total", "destination_workload") == {("",): 3}
    assert values(text, "headgate_tcp_sent_bytes_total") == {(): 1 << 48}
    assert values(text, "headgate_tcp_received_bytes_total") == {(): 7}


def test_traffic_beyond_the_limit_of_series_counts_as_other():
    now = itertools.count(step=1)
    found = totals(most=5, clock=lambda: float(next(now)))
    for number in range(20):
        found.add(
            Flow(source=Peer(pod=f"default/{number}"), destination=WEB.destination), Counts.of({class_index(200): 1})
        )
    rows = {total.labels: total.counts for total in found.rows()}
    assert len(rows) == 6
    assert rows[OTHER] == Counts.of({class_index(200): 15})


def test_idle_series_make_room_for_new_series():
    now = 0.0
    found = totals(most=1, clock=lambda: now)
    found.add(WEB, Counts.of({class_index(200): 1}))
    now += IDLE + SWEEP
    found.add(Flow(source=Peer(pod="default/new"), destination=WEB.destination), Counts.of({class_index(200): 1}))
    (total,) = found.rows()
    assert dict(total.labels)["source_workload"] == "new"


def test_windows_pass_their_counts_and_notes_to_totals():
    windows, found = Windows(), totals(by_pod=True)
    windows.add(WEB, Counts.of({class_index(200): 1}))
    windows.count_in(found)
    windows.add(WEB, Counts.of({class_index(200): 2}))
    windows.note("late", 3)
    text = text_of(found)
    assert values(text, "headgate_requests_total", "response_class")["2xx",] == 2
    assert values(text, "headgate_traffic_incomplete_total", "what") == {("late",): 3}
    assert values(text, "headgate_traffic_start_time_seconds", "by") == {("pod",): 1234.5}


@pytest.mark.skipif(not PROMTOOL, reason="promtool is not installed (Debian: prometheus)")
def test_promtool_accepts_the_text():
    """Names have the right suffixes, histograms are complete, special characters are escaped."""
    found = totals()
    found.add(
        Flow(source=Peer(pod='default/a"\\\n'), destination=WEB.destination),
        Counts.of({class_index(200): 1}, gathered({40: 1})),
    )
    found.add(Flow(source=WEB.source, destination=WEB.destination, copy=True), Counts.of({SUCCEEDED: 5}))
    found.add(WEB, Counts.of({CONNECTIONS: 2, SENT: 1, RECEIVED: 7, UNREACHED: 1}))
    found.note("some")
    odd = Family("headgate_odd", "gauge", "a \\ and\na line", [Line(0.1)])
    seconds = Family("headgate_a_seconds", "histogram", "b", histogram((0.1, 1.0), (1, 2, 3), 4.5))
    text = "".join(written([*traffic(found), odd, seconds]))
    done = subprocess.run(
        [PROMTOOL, "check", "metrics"], input=text, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
