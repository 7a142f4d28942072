"""`kubectl traffic top`: the table of 004 for a TrafficMetricsList (R103, R104)."""

import json
import re
from typing import Any

import pytest
from tests.cli.traffic.responses import leg, listed, traffic_metrics

from headgate.cli.output import WrongUsage
from headgate.cli.traffic.kinds import kind_named
from headgate.cli.traffic.metrics import Metrics, parse_metrics, percent, rate
from headgate.cli.traffic.top import parse_rows, sort_rows, table
from headgate.errors import HeadgateError
from headgate.formatting import latency

PODS = listed(
    traffic_metrics("foo-6846bf6b-gjmvz", 108, window="60s"),
    traffic_metrics("bar-f84f44b5b-dk4g9", 40, 13, window="1m0s"),
    traffic_metrics("baz-69c8bb6d5b-gn5rt-longer", 91, 14, p99="2m", window="1m"),
    kind="Pod",
)


def test_top_prints_the_table_of_004():
    # R103: the header and the rows of 004, right-aligned; rps = (s+f)/window, success = s/(s+f)
    assert table(parse_rows(PODS)) == (
        "NAME                          SUCCESS      RPS   LATENCY_P99\n"
        "foo-6846bf6b-gjmvz            100.00%   1.8rps           1ms\n"
        "bar-f84f44b5b-dk4g9            75.47%   0.9rps           1ms\n"
        "baz-69c8bb6d5b-gn5rt-longer    86.67%   1.8rps           2ms\n"
    )


def test_the_wide_table_adds_percentiles_and_failures():
    assert table(parse_rows(listed(traffic_metrics("foo", 99, 1))), wide=True) == (
        "NAME   SUCCESS      RPS   LATENCY_P50   LATENCY_P90   LATENCY_P99   FAILURES\n"
        "foo     99.00%   3.3rps         0.5ms         0.8ms           1ms          1\n"
    )


def test_a_client_whose_requests_reach_no_pod_is_in_a_column_of_its_own():
    rows = parse_rows(listed(traffic_metrics("web", 30), traffic_metrics("lost", 0, counts={"unreached": 140})))
    for wide in (False, True):
        header, *lines = (line.split() for line in table(rows, wide=wide).splitlines())
        assert [line[header.index("UNREACHED")] for line in lines] == ["0", "140"]
    assert [row.name for row in sort_rows(rows, "unreached")] == ["lost", "web"]
    assert "UNREACHED" not in table(rows[:1])


STDDEV = {"name": "stddev_response_latency", "unit": "seconds", "value": "1200u"}
SUCCESS = {"name": "success_rate", "value": "990m", "interval": {"low": "949123u", "high": "999001u"}}


def uncertain(name: str, **high: str):
    """Return metrics with the standard deviation and intervals; `high` is the upper limit of the 99th percentile."""
    found = traffic_metrics(name, 99, 1, more_metrics=[STDDEV, SUCCESS])
    found["metrics"][0]["interval"] = {"low": "900u", **high}
    return found


def test_the_wide_table_has_the_standard_deviation_and_intervals_if_the_api_returns_them():
    pods = listed(uncertain("foo", high="2m"), uncertain("few"), traffic_metrics("idle", 0))
    assert table(parse_rows(pods), wide=True).splitlines()[0].split()[-6:] == [
        *("FAILURES", "LATENCY_STDDEV", "SUCCESS_99%", "P50_99%", "P90_99%", "P99_99%"),
    ]
    assert [line.split()[-5:] for line in table(parse_rows(pods), wide=True).splitlines()[1:]] == [
        ["1.2ms", "94.91-99.91%", "-", "-", "0.9ms-2ms"],
        ["1.2ms", "94.91-99.91%", "-", "-", ">0.9ms"],
        ["-", "-", "-", "-", "-"],
    ]


def test_the_narrow_table_has_no_intervals():
    assert table(parse_rows(listed(uncertain("foo")))) == table(parse_rows(listed(traffic_metrics("foo", 99, 1))))


def test_a_pod_without_traffic_shows_dashes():
    # Without requests, the API returns latencies of 0; the table hides them, because they would be misleading.
    assert table(parse_rows(listed(traffic_metrics("idle", 0, p99="0")))) == (
        "NAME   SUCCESS   RPS   LATENCY_P99\nidle         -     -             -\n"
    )


def test_the_namespace_is_the_first_column():
    pods = listed(traffic_metrics("foo", 30, namespace="a"), traffic_metrics("foo", 60, namespace="b"))
    assert table(parse_rows(pods), namespaces=True) == (
        "NAMESPACE   NAME   SUCCESS      RPS   LATENCY_P99\n"
        "a           foo    100.00%   1.0rps           1ms\n"
        "b           foo    100.00%   2.0rps           1ms\n"
    )


def test_backends_of_a_split_show_weights_and_latencies_in_milliseconds():
    # D20: the released API has milliseconds where 004 has seconds.
    splits = listed(leg("canary", "web", "web-v1", 80, 80), leg("canary", "web", "web-v2", 20, 19, failure=1))
    assert table(parse_rows(splits)) == (
        "NAME     BACKEND   WEIGHT   SUCCESS      RPS   LATENCY_P99\n"
        "canary   web-v1        80   100.00%   2.7rps         1.5ms\n"
        "canary   web-v2        20    95.00%   0.7rps         1.5ms\n"
    )


def test_connections_and_failed_connections_are_columns_when_there_are_any():
    # R98: connections are not requests, so FAILURES stays empty.
    extra = [{"name": "connection_count", "value": "54"}, {"name": "connection_failure_count", "value": "2"}]
    text = table(parse_rows(listed(traffic_metrics("db", 0, more_metrics=extra), traffic_metrics("foo", 3))), wide=True)
    assert [line.split()[-3:] for line in text.splitlines()] == [
        ["FAILURES", "CONNECTIONS", "CONN_FAILURES"],
        ["-", "54", "2"],
        ["0", "0", "0"],
    ]


DENIED = listed(
    traffic_metrics("shop", 30, mesh=(3, 3), counts={"denied": 60}),
    traffic_metrics("bank", 0, mesh=(1, 1), counts={"connection": 5, "connection_denied": 2}),
    traffic_metrics("calm", 3, 1, mesh=(2, 2)),
    traffic_metrics("idle", 0, mesh=(0, 0)),
)


def test_denials_are_a_column_when_there_are_any():
    # R68, R103: denials have a column after those of 004, and are not part of a rate.
    assert table(parse_rows(DENIED)) == (
        "NAME   SUCCESS      RPS   LATENCY_P99   DENIED\n"
        "shop   100.00%   1.0rps           1ms       60\n"
        "bank         -        -             -        2\n"
        "calm    75.00%   0.1rps           1ms        0\n"
        "idle         -        -             -        -\n"
    )
    assert [line.name for line in sort_rows(parse_rows(DENIED), "denied")][:2] == ["shop", "bank"]


def test_the_meshed_column_is_shown_in_wide_tables_and_when_some_pods_have_no_sidecar():
    header, *rows = table(parse_rows(DENIED), wide=True).splitlines()
    assert header.split()[-3:] == ["DENIED", "CONNECTIONS", "MESHED"]
    assert [row.split()[-1] for row in rows] == ["3/3", "1/1", "2/2", "-"]
    gaps = parse_rows(
        listed(
            traffic_metrics("a", 3, mesh=(2, 2)),
            traffic_metrics("b", 3, mesh=(3, 1)),
            traffic_metrics("c", 3, mesh=(1, 0)),
        )
    )
    assert table(gaps).splitlines()[0].split()[-1] == "MESHED"
    assert [line.split()[-1] for line in table(gaps).splitlines()[1:]] == ["2/2", "1/3", "0/1"]
    assert [line.name for line in sort_rows(gaps, "meshed")] == ["c", "b", "a"]
    assert "MESHED" not in table(
        parse_rows(listed(traffic_metrics("a", 3, mesh=(2, 0))))
    )  # without any sidecar the column is hidden


def test_only_failures_and_denials_are_colored():
    shown = table(parse_rows(DENIED), colors=True)
    assert re.findall(r"\x1b\[(\d+)m *([^\x1b ]*)\x1b\[0m", shown) == [("33", "60"), ("33", "2"), ("31", "75.00%")]
    assert re.sub(r"\x1b\[\d+m", "", shown) == table(parse_rows(DENIED))


def test_copies_are_a_column_when_there_are_any():
    # D22: copies are not part of success or failure.
    copied = traffic_metrics("shadow", 0, more_metrics=[{"name": "copy_count", "value": "7"}])
    text = table(parse_rows(listed(copied, traffic_metrics("foo", 3))), wide=True)
    assert [line.split()[-1] for line in text.splitlines()] == ["COPIES", "7", "0"]
    assert text.splitlines()[1].split()[1] == "-"


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("name", ["a", "b", "c", "idle"]),
        ("rps", ["c", "b", "a", "idle"]),
        ("success", ["b", "a", "c", "idle"]),  # the lowest success rate first
        ("p99", ["a", "b", "c", "idle"]),
        ("latency_p99", ["a", "b", "c", "idle"]),
        ("failures", ["b", "a", "c", "idle"]),
        ("latency_stddev", ["c", "a", "b", "idle"]),
        ("stddev", ["c", "a", "b", "idle"]),
        ("", ["idle", "c", "a", "b"]),
    ],
)
def test_rows_are_sorted_by_a_column_with_the_worst_first(by: str, names: list[str]):
    pods = listed(
        traffic_metrics("idle", 0),
        traffic_metrics("c", 90, more_metrics=[STDDEV]),
        traffic_metrics("a", 10, p99="5m"),
        traffic_metrics("b", 30, 10, p99="2m"),
    )
    assert [line.name for line in sort_rows(parse_rows(pods), by)] == names


def test_the_error_about_an_unknown_sort_column_names_the_column():
    with pytest.raises(WrongUsage, match=r"no column 'speed'.*name, .*rps"):
        sort_rows([], "speed")


@pytest.mark.parametrize(
    ("success", "failure", "text"),
    [(100, 0, "100.00%"), (99999, 1, "99.99%"), (0, 5, "0.00%"), (0, 0, "-"), (13, 2, "86.67%")],
)
def test_success_is_100_percent_only_when_nothing_failed(success: int, failure: int, text: str):
    assert percent(Metrics(success=success, failure=failure)) == text


@pytest.mark.parametrize(("requests", "text"), [(54, "1.8rps"), (1, "0.033rps"), (0, "-"), (36000, "1200.0rps")])
def test_a_low_rate_is_not_rounded_to_zero(requests: int, text: str):
    assert rate(Metrics(success=requests, window=30)) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((0.001, "1ms"), (0.0105, "10.5ms"), (0.00042, "0.42ms"), (0.9997, "1s"), (1.234, "1.23s")),
        *((60.0, "60s"), (1250.0, "1250s"), (0.0, "0ms"), (None, "-")),
    ],
)
def test_latencies_have_three_significant_digits(value: float | None, text: str):
    assert latency(value) == text


def test_a_latency_of_10m_seconds_is_10_milliseconds():
    # R84
    assert parse_metrics(traffic_metrics("foo", 1, p99="10m")).p99 == 0.01


def test_the_error_about_an_invalid_metric_names_the_metric():
    broken: Any = json.loads(json.dumps(traffic_metrics("foo", 1)).replace('"1m"', '"fast"'))
    with pytest.raises(HeadgateError, match=r"p99_response_latency.*'fast' seconds"):
        parse_metrics(broken)


@pytest.mark.parametrize(
    ("name", "plural"),
    [
        ("po", "pods"), ("Pod", "pods"), ("deploy", "deployments"), ("svc", "services"), ("ns", "namespaces"),
        ("no", "nodes"), ("rs", "replicasets"), ("sts", "statefulsets"), ("ds", "daemonsets"), ("jobs", "jobs"),
        ("rc", "replicationcontrollers"), ("ts", "trafficsplits"),
    ],
)  # fmt: skip
def test_kinds_have_the_short_names_of_kubectl(name: str, plural: str):
    # R82: the ten kinds of 004, and TrafficSplits.
    assert kind_named(name).plural == plural
