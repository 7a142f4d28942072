"""Decoding of reports: headgate's own series are read, other series are ignored, and malformed reports are rejected."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.telemetry.proxies import START, counter, histogram, message, series_of

from headgate.envoy import pb
from headgate.errors import TelemetryError
from headgate.telemetry.counters import packed_counters
from headgate.telemetry.counters.histogram import bucket_of
from headgate.telemetry.reports.otlp import SeriesSample, read_report

PLACE = {"backend": "default/web", "cluster": "outbound/default/web/8080", "pod": "default/web-0"}


def test_counters_and_histograms_are_read_with_their_attributes():
    report = read_report(
        message(counter("mesh.requests", 7, **PLACE, code="200-"), histogram("mesh.latency", [1500, 1500, 90], **PLACE))
    )
    assert (report.node, report.start, report.time) == ("sidecar/default/client", START, START + 2)
    requests, latency = report.samples
    assert requests == SeriesSample(series_of("mesh.requests", **PLACE, code="200-"), 7)
    place = {"cluster": "outbound/default/web/8080 default/web", "pod": "default/web-0"}
    assert requests.series.pairs() == {**place, "code": "200-"}
    assert latency.series == series_of("mesh.latency", **PLACE)
    assert latency.value == 3
    assert packed_counters.by_index(latency.buckets, packed_counters.WIDE) == {0: 1, bucket_of(1500): 2}


def test_series_that_headgate_did_not_configure_are_left_out():
    other_bounds = histogram("mesh.latency", [], bounds=range(1, 170), **PLACE)
    gauge = pb.Metric(name="mesh.requests")
    gauge.gauge.data_points.append(pb.NumberDataPoint(as_int=5))
    report = read_report(
        message(counter("cluster.xds.upstream_rq", 7), other_bounds, gauge, pb.Metric(name="mesh.sent"))
    )
    assert report.samples == []


def test_a_report_without_series_is_valid():
    gauge = pb.Metric(name="server.uptime")
    gauge.gauge.data_points.append(pb.NumberDataPoint(as_int=5, time_unix_nano=int((START + 2) * 1e9)))
    assert read_report(message(gauge)) == ("sidecar/default/client", 0.0, START + 2, [])


@pytest.mark.parametrize("nodes", [(), ("sidecar/default/a", "sidecar/default/b")])
def test_a_report_must_name_exactly_one_proxy(nodes):
    with pytest.raises(TelemetryError, match=f"the report names {len(nodes)} proxies"):
        read_report(message(counter("mesh.sent", 1), nodes=nodes))


@given(st.binary(max_size=300), st.integers(0, 400), st.integers(0, 255))
def test_a_malformed_report_raises_a_telemetry_error(junk, place, byte):
    good = bytearray(message(counter("mesh.requests", 7, **PLACE), histogram("mesh.latency", [5], **PLACE)))
    good[place % len(good)] = byte
    for data in (junk, bytes(good), bytes(good[:place])):
        with contextlib.suppress(TelemetryError):
            read_report(data)
