"""Every request counts once: what proxies, reports and headgate itself may do to cumulative values."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.telemetry.proxies import ABSENCES, START, Proxy, series_of

from headgate.envoy import stats_sink
from headgate.telemetry.counters import packed_counters
from headgate.telemetry.counters.histogram import gathered
from headgate.telemetry.reports.cumulative_to_delta import FORGET, GAP, MOST_SERIES, CumulativeToDelta, DeltaCheckpoint
from headgate.telemetry.reports.otlp import Report, Sample

SERIES = series_of("mesh.latency", pod="a")


def total(growth, *reports):
    return sum(item.value for report in reports for item in growth.take(report, report.time).grown)


def fresh():
    return CumulativeToDelta(ABSENCES, START)


def restarted(growth):
    """What the next headgate knows, by way of the disk."""
    found = CumulativeToDelta(ABSENCES, START + 1e9)
    kept = msgspec.msgpack.decode(msgspec.msgpack.encode(growth.checkpoint()), type=DeltaCheckpoint)
    found.restore(kept, START)
    return found


def histogram(time, **counts):
    buckets = packed_counters.zeros(4, packed_counters.WIDE)
    for number in range(4):
        buckets[number] = counts.get(f"b{number}", 0)
    return Report("n", START, START + time, [Sample(SERIES, sum(buckets), packed_counters.pack(buckets))])


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("count"), st.sampled_from("abc"), st.integers(1, 5)),
        st.tuples(st.sampled_from(["flush", "repeat", "restart proxy", "restart headgate"])),
        st.tuples(st.just("idle"), st.integers(1, 14)),
    ),
    max_size=60,
)


@given(ACTIONS)
def test_what_is_heard_in_time_counts_exactly_once(actions):
    """With evictions, repeated reports, proxies and headgates that are restarted right after a report."""
    growth, proxy, true, counted = fresh(), Proxy(), 0, 0
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
            proxy = Proxy(start=proxy.now + 1)
        elif what == "restart headgate":
            flush()
            growth = restarted(growth)
        for _ in range(more[0] if what == "idle" else what == "flush"):
            flush()
    assert counted == true


@given(ACTIONS, st.lists(st.booleans(), min_size=1, max_size=40))
def test_nothing_counts_twice_whatever_is_lost(actions, arrives):
    growth, proxy, true, counted, number = fresh(), Proxy(), 0, 0, 0
    for what, *more in actions:
        if what == "count":
            proxy.count(*more)
            true += more[1]
        elif what == "restart proxy":
            proxy = Proxy(start=proxy.now + 1)
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
def test_an_idle_series_that_comes_back_counts_exactly_what_is_new(age, idle, more):
    """For some seconds it goes on where it was, after that it begins anew; a report looks the same either way."""
    growth, proxy = fresh(), Proxy(number=age)
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
def test_an_idle_series_that_comes_back_after_silence_never_counts_what_was_before(lost, age):
    growth, proxy = fresh(), Proxy(number=age)
    proxy.count("a", 5)
    counted = total(growth, proxy.flush())
    for number in range(lost):
        if number == 2:
            proxy.count("a", 1)
        proxy.flush()
    proxy.count("a", 7)
    assert counted + total(growth, proxy.flush()) <= 13


def test_reports_that_are_lost_are_made_up_for_by_the_next_one():
    growth, proxy = fresh(), Proxy()
    proxy.count("a", 3)
    counted = total(growth, proxy.flush())
    for _ in range(4):
        proxy.count("a", 10)
        proxy.flush()
    proxy.count("a", 10)
    assert counted + total(growth, proxy.flush()) == 53


def test_what_was_overtaken_by_a_newer_report_adds_nothing():
    growth, proxy = fresh(), Proxy()
    proxy.count("a", 3)
    old = proxy.flush()
    proxy.count("a", 4)
    assert total(growth, proxy.flush(), old) == 7


def test_the_last_report_of_a_process_may_come_after_the_first_of_the_next():
    growth, old = fresh(), Proxy()
    old.count("a", 3)
    counted = total(growth, old.flush())
    old.count("a", 2)
    last = old.flush()
    new = Proxy(start=last.time)
    new.count("a", 5)
    assert counted + total(growth, new.flush(), last, new.flush()) == 10


def test_counters_that_are_reset_begin_anew():
    growth, proxy = fresh(), Proxy()
    proxy.count("a", 7)
    counted = total(growth, proxy.flush())
    proxy.reset()
    proxy.count("a", 2)
    assert counted + total(growth, proxy.flush()) == 9


def test_a_histogram_whose_total_grew_but_whose_bucket_shrank_began_anew():
    growth = fresh()
    assert total(growth, histogram(2, b0=3, b1=1)) == 4
    (grown,) = growth.take(histogram(4, b0=3, b1=2), START + 4).grown
    assert (grown.value, grown.buckets) == (1, gathered({1: 1}))
    (grown,) = growth.take(histogram(60, b0=1, b2=9), START + 60).grown
    assert (grown.value, grown.buckets) == (10, gathered({0: 1, 2: 9}))


def test_a_proxy_that_ran_for_long_before_headgate_did_is_listened_to_from_then_on():
    """A gap in what is known must not look like a burst of requests."""
    growth, proxy = fresh(), Proxy(start=START - 1000, number=600)
    proxy.count("a", 100_000)
    taken = growth.take(first := proxy.flush(), first.time)
    assert (taken.unknown, taken.grown) == (True, ())
    proxy.count("a", 2)
    assert total(growth, proxy.flush()) == 2


def test_a_proxy_that_was_silent_for_long_and_forgotten_is_not_counted_anew():
    growth, proxy = fresh(), Proxy()
    proxy.count("a", 100)
    assert total(growth, proxy.flush()) == 100
    growth.forget(START + FORGET + 10)
    back = Proxy(number=int(FORGET) + 10)
    back.count("a", 103)
    assert total(growth, back.flush()) == 0
    back.count("a", 2)
    assert total(growth, back.flush()) == 2


def test_a_report_says_when_it_is_late():
    growth, proxy = fresh(), Proxy()
    proxy.count("a")
    report = proxy.flush()
    assert growth.take(report, report.time).late == 0
    for _ in range(10):
        report = proxy.flush()
    proxy.count("a", 5)
    report = proxy.flush()
    assert growth.take(report, report.time).late == 22 > GAP


def test_signs_of_life_are_enough_to_know_that_a_series_was_evicted():
    """A proxy without traffic reports no series: only that it is there."""
    growth, proxy = fresh(), Proxy()
    proxy.count("a", 2)
    counted = total(growth, proxy.flush())
    for _ in range(20):
        report = proxy.flush()
        growth.take(report if report.samples else report._replace(start=0.0), report.time)
    proxy.count("a", 5)
    assert counted + total(growth, proxy.flush()) == 7


@pytest.mark.parametrize("seconds", [stats_sink.LOCAL_SECONDS, stats_sink.CLUSTER_SECONDS])
@pytest.mark.parametrize("idle", [1, 110, 125, 235, 245, 295, 305, 595, 605])
def test_proxies_that_report_more_and_less_often_count_exactly_after_any_rest(seconds, idle):
    """A series that rests is dropped by the second sweep, or goes on: either way what comes next counts once."""
    number = stats_sink.reports_per_eviction(seconds)
    growth, proxy = CumulativeToDelta(number, START), Proxy(reports_per_eviction=number)
    proxy.count("a", 2)
    counted = total(growth, proxy.flush())
    for _ in range(idle):
        counted += total(growth, proxy.flush())
    proxy.count("a", 5)
    assert counted + total(growth, proxy.flush()) == 7


def test_a_clock_that_is_set_back_stops_the_counting_for_a_moment_only():
    growth, proxy = fresh(), Proxy()
    proxy.count("a", 2)
    counted = total(growth, proxy.flush())
    for _ in range(5):
        proxy.count("a")
        report = proxy.flush()
        counted += total(growth, report._replace(time=report.time - 1000))
    assert counted == 7


def test_a_proxy_can_not_fill_the_memory_with_names():
    growth = fresh()
    many = [Sample(series_of("mesh.sent", pod=str(number)), 1) for number in range(MOST_SERIES + 5)]
    taken = growth.take(Report("n", START, START + 2, many), START)
    assert taken.full
    assert len(taken.grown) == MOST_SERIES
