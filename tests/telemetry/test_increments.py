"""Increments have each request to a followed Service at most once, also after a restart from an old checkpoint."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.telemetry.proxies import ABSENCES, FLUSH, START, ReportingProxy, counter, histogram, message

from headgate.envoy.stats_sink import REPORT_TIMEOUT_SECONDS
from headgate.telemetry.counters.histogram import BOUNDS_US, count_above
from headgate.telemetry.receiver import Checkpoint, Receiver
from headgate.telemetry.reports.cumulative_to_delta import COMPLETE, FORGET
from headgate.telemetry.reports.otlp import read_report
from headgate.telemetry.windows import Windows

WEB, V1, V2 = "default/web", "default/web-v1", "default/web-v2"
CLUSTER = "outbound/default/web/8080"
AT_ONCE, LATER = FLUSH, FLUSH + REPORT_TIMEOUT_SECONDS  # seconds after a restart


class Headgate:
    """A receiver that follows the Service `default/web`; its clock shows the time of the latest report."""

    def __init__(self, saved=None, began=START - LATER, **options):
        self.now = began
        self.receiver = Receiver(Windows(), ABSENCES, clock=lambda: self.now, **options)
        self.receiver.restore(saved)
        self.receiver.increments.follow(WEB)

    def receive(self, report):
        self.now = max(self.now, report.time)
        self.receiver.take(report)

    def take(self, *reports):
        """Receive reports of simulated proxies; return the number of new connections."""
        for report in reports:
            self.receive(report)
        return sum(counts.connections for counts in self.receiver.increments.take(WEB).values())

    async def saved(self):
        return msgspec.msgpack.decode(msgspec.msgpack.encode(await self.receiver.checkpoint()), type=Checkpoint)


def restarted(saved, proxy, **options):
    """Return a headgate that starts after the last report of `proxy`."""
    return Headgate(saved, proxy.now, **options)


def requests(backend, latencies, code="200-"):
    return histogram("mesh.latency", latencies, cluster=CLUSTER, pod="default/a", backend=backend, code=code)


def test_requests_count_by_backend_with_results_and_latencies():
    headgate = Headgate()
    headgate.receive(read_report(message(requests(V2, [90] * 9))))
    more = (
        requests(V1, [90, 90, 2500]),
        requests(V1, [90], code="503-"),
        requests(V1, [90], code="403-t"),
        counter("mesh.flagged", 2, cluster=CLUSTER, pod="default/a", backend=V1, code="0UC"),
        requests(V2, [90] * 9),
    )
    headgate.receive(read_report(message(*more, nodes=("sidecar/default/other",))))
    taken = headgate.receiver.increments.take(WEB)
    found = {backend: (counts.success, counts.failure, counts.denied) for backend, counts in taken.items()}
    assert found == {V1: (3, 3, 1), V2: (18, 0, 0)}
    assert count_above(taken[V1].latency, BOUNDS_US.index(2400)) == 1
    assert headgate.receiver.increments.take(WEB) == {}


def test_requests_that_a_route_passes_to_the_split_of_the_service_count_once():
    headgate = Headgate()
    rules = ("gateway/default/edge/80/HTTPRoute/default/site/0", "route/default/web/8080/HTTPRoute/default/web/0")
    report = message(
        *(
            histogram("mesh.latency", [90], cluster=rule, pod="default/a", code="200-", backend=f"{V1} {WEB}")
            for rule in rules
        ),
        histogram("mesh.latency", [90], cluster=rules[0], pod="default/a", code="200-", backend=V2),
        histogram("mesh.latency", [90], cluster=rules[0], pod="default/a", code="200-", backend=f"{V2} default/other"),
    )
    headgate.receive(read_report(report))
    taken = headgate.receiver.increments.take(WEB)
    assert {backend: counts.success for backend, counts in taken.items()} == {V1: 2}


def test_copies_by_a_split_are_apart_from_those_of_rules():
    headgate = Headgate()
    headgate.receiver.increments.follow(WEB, copies=True)
    clusters = (f"mirror/{V2}/8080", f"mirror/{V2}/8080/by/{WEB}", f"mirror/{V2}/8080/by/default/other")
    report = message(
        *(
            histogram("mesh.latency", [90] * number, cluster=cluster, pod="default/a", code="200-")
            for number, cluster in enumerate(clusters, 1)
        )
    )
    headgate.receive(read_report(report))
    taken = headgate.receiver.increments.take(WEB, copies=True)
    assert {backend: counts.success for backend, counts in taken.items()} == {V2: 2}
    assert headgate.receiver.increments.take(WEB) == {}


def test_mirrored_copies_other_services_and_requests_without_a_backend_are_left_out():
    headgate = Headgate()
    report = message(
        histogram("mesh.latency", [90], cluster="mirror/default/web/8080", pod="default/a", code="200-"),
        counter("mesh.flagged", 4, cluster=CLUSTER, code="503UH"),
        histogram("mesh.latency", [90], cluster="outbound/default/other/8080", pod="default/a", code="200-"),
    )
    assert headgate.take(read_report(report)) == 0
    assert headgate.receiver.increments.take(WEB) == {}


def test_a_service_counts_only_while_it_is_followed():
    headgate, proxy = Headgate(), ReportingProxy()
    increments = headgate.receiver.increments
    proxy.count("a", 3)
    headgate.receive(proxy.flush())
    increments.follow(WEB)  # a Service that is followed already keeps its counts
    assert headgate.take() == 3
    proxy.count("a", 4)
    headgate.receive(proxy.flush())
    increments.drop(WEB)
    assert headgate.take() == 0
    proxy.count("a", 5)
    assert headgate.take(proxy.flush()) == 0
    increments.follow(WEB)
    assert headgate.take() == 0
    proxy.count("a", 6)
    assert headgate.take(proxy.flush()) == 6


@pytest.mark.parametrize("has_checkpoint", [True, False])
async def test_after_a_restart_only_requests_after_the_first_report_of_each_process_count(has_checkpoint):
    """The first report has requests that the earlier headgate reported after its last checkpoint."""
    headgate, proxy = Headgate(), ReportingProxy()
    proxy.count("a", 10)
    assert headgate.take(proxy.flush()) == 10
    saved = await headgate.saved()
    proxy.count("a", 20)
    proxy.count("b", 29)
    proxy.count("c", 1)
    assert headgate.take(proxy.flush()) == 50
    again = restarted(saved if has_checkpoint else None, proxy)
    proxy.count("a", 1)
    assert again.take(proxy.flush()) == 0
    proxy.count("a", 2)
    proxy.count("b", 3)
    assert again.take(proxy.flush()) == 5


@pytest.mark.parametrize(("started", "counted"), [(AT_ONCE, 0), (LATER + 0.1, 5)])
async def test_the_first_report_of_a_process_counts_if_it_started_after_the_restart_for_certain(started, counted):
    """A report may be on its way for ten seconds, and its proxy's clock may differ from headgate's."""
    clock_ahead = 3600
    headgate, old = Headgate(), ReportingProxy()
    headgate.take(old.flush())
    again = restarted(await headgate.saved(), old)
    new = ReportingProxy("sidecar/default/new", start=old.now + clock_ahead + started)
    new.count("a", 5)
    report = new.flush()
    again.now = report.time - clock_ahead
    again.receiver.take(report)
    assert again.take() == counted
    new.count("a", 7)
    again.receiver.take(new.flush())
    assert again.take() == 7


@pytest.mark.parametrize("has_checkpoint", [True, False])
async def test_on_one_machine_all_requests_of_a_process_that_started_after_headgate_count(has_checkpoint):
    """Its clock is headgate's, so that its age is known at once. An older process may be one of an earlier headgate."""
    headgate, old = Headgate(), ReportingProxy()
    headgate.take(old.flush())
    again = restarted(await headgate.saved() if has_checkpoint else None, old, shares_clock=True)
    old.count("a", 4)
    assert again.take(old.flush()) == 0
    new = ReportingProxy("sidecar/default/new", start=old.now + 0.1)
    new.count("a", 5)
    assert again.take(new.flush()) == 5
    new.count("b", 7)
    assert again.take(new.flush()) == 7


async def test_a_series_that_was_idle_at_the_restart_does_not_count_again():
    """Envoy leaves an idle series out of reports, and continues it from its old value."""
    headgate, proxy = Headgate(), ReportingProxy()
    proxy.count("a")
    headgate.take(proxy.flush())
    saved = await headgate.saved()
    proxy.count("a", 20)
    proxy.count("b", 30)
    assert headgate.take(proxy.flush()) == 50
    for _ in range(3):
        headgate.take(proxy.flush())  # the last report before Envoy leaves out idle series
    again = restarted(saved, proxy)
    for _ in range(COMPLETE):
        proxy.count("c")
        again.take(proxy.flush())
    proxy.count("a", 2)
    proxy.count("b", 3)
    assert again.take(proxy.flush()) == 0
    proxy.count("a", 4)
    proxy.count("b", 5)
    assert again.take(proxy.flush()) == 9


async def test_single_failures_count_soon_after_a_restart():
    """Rare failures begin new series; without them, the evidence after a restart would be too good."""
    headgate, proxy = Headgate(), ReportingProxy()
    proxy.count("success", 10)
    headgate.take(proxy.flush())
    again = restarted(await headgate.saved(), proxy)
    for _ in range(COMPLETE):
        proxy.count("success", 10)
        again.take(proxy.flush())
    proxy.count("success", 10)
    proxy.count("failure")
    assert again.take(proxy.flush()) == 11


def test_a_proxy_that_returns_after_an_hour_counts_only_new_requests():
    headgate, proxy = Headgate(), ReportingProxy()
    proxy.count("a", 5)
    headgate.take(proxy.flush())
    headgate.now += FORGET + 700
    headgate.receiver.take(ReportingProxy("sidecar/default/other", headgate.now).flush())  # forgets the silent proxy
    late = ReportingProxy(start=START, number=int((FORGET + 800) / FLUSH))
    late.count("a", 5)
    late.count("b", 5)
    assert headgate.take(late.flush()) == 0
    late.count("a", 2)
    assert headgate.take(late.flush()) == 2


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("count"), st.sampled_from("abc"), st.integers(1, 5)),
        st.tuples(st.sampled_from(["flush", "save", "restart proxy", "restart headgate"])),
        st.tuples(st.just("idle"), st.integers(1, 14)),
    ),
    max_size=60,
)


@given(actions=ACTIONS, arrives=st.lists(st.booleans(), min_size=1, max_size=40), away=st.integers(0, 12))
async def test_no_request_counts_twice_over_restarts_from_old_checkpoints(actions, arrives, away):
    """Reports are lost, series are evicted, and headgate restarts from a checkpoint that may be very old."""
    headgate, proxy, true, counted, number, saved = Headgate(), ReportingProxy(), 0, 0, 0, None
    for what, *more in actions:
        if what == "count":
            proxy.count(*more)
            true += more[1]
        elif what == "save":
            saved = await headgate.saved()
        elif what == "restart proxy":
            proxy = ReportingProxy(start=proxy.now + 1)
        elif what == "restart headgate":
            for _ in range(away):
                proxy.flush()
            headgate = restarted(saved, proxy)
        for _ in range(more[0] if what == "idle" else what == "flush"):
            report, number = proxy.flush(), number + 1
            if arrives[number % len(arrives)]:
                counted += headgate.take(report)
        assert counted <= true
