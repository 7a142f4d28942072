"""Each request counts at most once when reports are lost, proxies evict series, and proxies or headgate restart."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.telemetry.proxies import ABSENCES, START, ReportingProxy, series_of

from headgate.envoy import stats_sink
from headgate.telemetry.counters import packed_counters
from headgate.telemetry.counters.histogram import gathered
from headgate.telemetry.reports.cumulative_to_delta import FORGET, GAP, MOST_SERIES, CumulativeToDelta, DeltaCheckpoint
from headgate.telemetry.reports.otlp import ProxyReport, SeriesSample

SERIES = series_of("mesh.latency", pod="a")


def total(growth, *reports):
    return sum(item.value for report in reports for item in growth.take(report, report.time).grown)


def fresh():
    return CumulativeToDelta(ABSENCES, START)


def restarted(growth):
    """Return a copy of `growth` as a restarted headgate restores it from disk."""
    found = CumulativeToDelta(ABSENCES, START + 1e9)
    kept = msgspec.msgpack.decode(msgspec.msgpack.encode(growth.checkpoint()), type=DeltaCheckpoint)
    found.restore(kept, START)
    return found


def histogram(time, **counts):
    buckets = packed_counters.zeros(4, packed_counters.WIDE)
    for number in range(4):
        buckets[number] = counts.get(f"b{number}", 0)
    return ProxyReport("n", START, START + time, [SeriesSample(SERIES, sum(buckets), packed_counters.pack(buckets))])


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("count"), st.sampled_from("abc"), st.integers(1, 5)),
        st.tuples(st.sampled_from(["flush", "repeat", "restart proxy", "restart headgate"])),
        st.tuples(st.just("idle"), st.integers(1, 14)),
    ),
    max_size=60,
)


@given(ACTIONS)
def test_requests_in_timely_reports_count_exactly_once(actions):
    """The actions include evictions, repeated reports, and restarts of proxies and headgate right after a report."""
    growth, proxy, true, counted = fresh(), ReportingProxy(), 0, 0
    reports = []

    def flush():
        nonlocal counted
        reports.append(proxy.flush())
        counted += total(growth, reports[-1])

    for what, *more in [*actions, ("flush",)]:
        if what == "count":
            proxy.count(*more)
            true += more[1]
        elif what == "repeat" and reports:
            counted += total(growth, *reports[-3:])
        elif what == "restart proxy":
            flush()
            proxy = ReportingProxy(start=proxy.now + 1)
        elif what == "restart headgate":
            flush()
            growth = restarted(growth)
        for _ in range(more[0] if what == "idle" else what == "flush"):
            flush()
    assert counted == true


@given(ACTIONS, st.lists(st.booleans(), min_size=1, max_size=40))
def test_no_request_counts_twice_whichever_reports_are_lost(actions, arrives):
    growth, proxy, true, counted, number = fresh(), ReportingProxy(), 0, 0, 0
    for what, *more in actions:
        if what == "count":
            proxy.count(*more)
            true += more[1]
        elif what == "restart proxy":
            proxy = ReportingProxy(start=proxy.now + 1)
        elif what == "restart headgate":
            growth = restarted(growth)
        for _ in range(more[0] if what == "idle" else what == "flush"):
            report, number = proxy.flush(), number + 1
            if arrives[number % len(arrives)]:
                counted += total(growth, report)
    assert counted <= true


@pytest.mark.parametrize("age", range(5))
@pytest.mark.parametrize("idle", range(16))
@pytest.mark.parametrize("more", [3, 5, 7])
def test_only_the_growth_of_a_series_counts_after_an_idle_time(age, idle, more):
    """After a short idle time a series continues from its old value; after a long idle time it starts from zero."""
    growth, proxy = fresh(), ReportingProxy(number=age)
    proxy.count("a", 5)
    proxy.count("b")
    counted = total(growth, proxy.flush())
    for _ in range(idle):
        proxy.count("b")
        counted += total(growth, proxy.flush())
    proxy.count("a", more)
    assert counted + total(growth, proxy.flush()) == 5 + 1 + idle + more


@pytest.mark.parametrize("lost", range(3, 16))
@pytest.mark.parametrize("age", range(5))
def test_old_counts_of_an_idle_series_do_not_count_again_after_a_gap(lost, age):
    growth, proxy = fresh(), ReportingProxy(number=age)
    proxy.count("a", 5)
    counted = total(growth, proxy.flush())
    for number in range(lost):
        if number == 2:
            proxy.count("a", 1)
        proxy.flush()
    proxy.count("a", 7)
    assert counted + total(growth, proxy.flush()) <= 13


def test_the_next_report_includes_the_counts_of_lost_reports():
    growth, proxy = fresh(), ReportingProxy()
    proxy.count("a", 3)
    counted = total(growth, proxy.flush())
    for _ in range(4):
        proxy.count("a", 10)
        proxy.flush()
    proxy.count("a", 10)
    assert counted + total(growth, proxy.flush()) == 53


def test_a_report_that_arrives_after_a_newer_report_adds_nothing():
    growth, proxy = fresh(), ReportingProxy()
    proxy.count("a", 3)
    old = proxy.flush()
    proxy.count("a", 4)
    assert total(growth, proxy.flush(), old) == 7


def test_the_last_report_of_a_process_counts_after_the_first_report_of_the_next_process():
    growth, old = fresh(), ReportingProxy()
    old.count("a", 3)
    counted = total(growth, old.flush())
    old.count("a", 2)
    last = old.flush()
    new = ReportingProxy(start=last.time)
    new.count("a", 5)
    assert counted + total(growth, new.flush(), last, new.flush()) == 10


def test_counters_that_were_reset_start_from_zero():
    growth, proxy = fresh(), ReportingProxy()
    proxy.count("a", 7)
    counted = total(growth, proxy.flush())
    proxy.reset()
    proxy.count("a", 2)
    assert counted + total(growth, proxy.flush()) == 9


def test_a_histogram_with_a_smaller_bucket_was_reset_even_if_its_total_grew():
    growth = fresh()
    assert total(growth, histogram(2, b0=3, b1=1)) == 4
    (grown,) = growth.take(histogram(4, b0=3, b1=2), START + 4).grown
    assert (grown.value, grown.buckets) == (1, gathered({1: 1}))
    (grown,) = growth.take(histogram(60, b0=1, b2=9), START + 60).grown
    assert (grown.value, grown.buckets) == (10, gathered({0: 1, 2: 9}))


def test_the_first_values_of_a_proxy_older_than_headgate_do_not_count():
    """A gap in the data must not look like a burst of requests."""
    growth, proxy = fresh(), ReportingProxy(start=START - 1000, number=600)
    proxy.count("a", 100_000)
    taken = growth.take(first := proxy.flush(), first.time)
    assert (taken.unknown, taken.grown) == (True, ())
    proxy.count("a", 2)
    assert total(growth, proxy.flush()) == 2


def test_the_first_values_of_a_forgotten_proxy_do_not_count_again():
    growth, proxy = fresh(), ReportingProxy()
    proxy.count("a", 100)
    assert total(growth, proxy.flush()) == 100
    growth.forget(START + FORGET + 10)
    back = ReportingProxy(number=int(FORGET) + 10)
    back.count("a", 103)
    assert total(growth, back.flush()) == 0
    back.count("a", 2)
    assert total(growth, back.flush()) == 2


def test_a_report_after_a_gap_is_reported_as_late():
    growth, proxy = fresh(), ReportingProxy()
    proxy.count("a")
    report = proxy.flush()
    assert growth.take(report, report.time).late == 0
    for _ in range(10):
        report = proxy.flush()
    proxy.count("a", 5)
    report = proxy.flush()
    assert growth.take(report, report.time).late == 22 > GAP


def test_reports_without_series_show_that_a_series_was_evicted():
    """A proxy without traffic sends reports without series."""
    growth, proxy = fresh(), ReportingProxy()
    proxy.count("a", 2)
    counted = total(growth, proxy.flush())
    for _ in range(20):
        report = proxy.flush()
        growth.take(report if report.samples else report._replace(start=0.0), report.time)
    proxy.count("a", 5)
    assert counted + total(growth, proxy.flush()) == 7


@pytest.mark.parametrize("seconds", [stats_sink.LOCAL_SECONDS, stats_sink.CLUSTER_SECONDS])
@pytest.mark.parametrize("idle", [1, 110, 125, 235, 245, 295, 305, 595, 605])
def test_counts_are_exact_after_any_idle_time_at_any_report_interval(seconds, idle):
    """An idle series continues from its old value, or restarts from zero once Envoy has evicted it."""
    number = stats_sink.reports_per_eviction(seconds)
    growth, proxy = CumulativeToDelta(number, START), ReportingProxy(reports_per_eviction=number)
    proxy.count("a", 2)
    counted = total(growth, proxy.flush())
    for _ in range(idle):
        counted += total(growth, proxy.flush())
    proxy.count("a", 5)
    assert counted + total(growth, proxy.flush()) == 7


def test_a_clock_that_is_set_back_interrupts_counting_only_briefly():
    growth, proxy = fresh(), ReportingProxy()
    proxy.count("a", 2)
    counted = total(growth, proxy.flush())
    for _ in range(5):
        proxy.count("a")
        report = proxy.flush()
        counted += total(growth, report._replace(time=report.time - 1000))
    assert counted == 7


def test_the_number_of_series_of_a_proxy_is_limited():
    growth = fresh()
    many = [SeriesSample(series_of("mesh.sent", pod=str(number)), 1) for number in range(MOST_SERIES + 5)]
    taken = growth.take(ProxyReport("n", START, START + 2, many), START)
    assert taken.full
    assert len(taken.grown) == MOST_SERIES
