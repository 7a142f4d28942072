"""A mirror's copies are compared with the requests of its rules (002, D22)."""

import asyncio
from collections.abc import Mapping

from tests import virtual_time
from tests.plane.size_histograms import histogram
from tests.telemetry.proxies import series_of

from headgate.compiler.report import Compiled, Report, StatusCondition
from headgate.kinds import GATEWAY
from headgate.latest import Latest
from headgate.model.host_names import by_host
from headgate.model.routing import GatewayPort, HostRoutes, Mesh, Mirror, PortRef, Route, RouteTable, Split, Target
from headgate.plane.mirror_comparison import (
    PERIOD_S,
    PUBLISH_S,
    MirrorComparer,
    MirrorComparison,
    after,
    sides,
    subjects,
    verdicts,
)
from headgate.resources.meta import Key
from headgate.telemetry.counters.counts import Counts, class_index
from headgate.telemetry.counters.histogram import bucket_of, gathered
from headgate.telemetry.mirror_increments import MirrorIncrements, Rule, SideCounts

NEXT = PortRef("default/next", 80)
ROUTE = Key(GATEWAY, "HTTPRoute", "default", "route")
RULE: Rule = (ROUTE, "0")
COPIES = series_of("mesh.latency", cluster="mirror/default/next/80", pod="default/next-1:80 ", code="200-")
REQUESTS = series_of("mesh.latency", cluster="gateway/default/edge/80/HTTPRoute/default/route/0", code="200-")


def mirroring_route(number: str = "0", percent: int = 50) -> Route:
    mirror = Mirror(ref=NEXT, targets=(Target(ref=NEXT, weight=1),), numerator=percent, denominator=100)
    return Route(split=Split(targets=()), name=number, origin=ROUTE, mirrors=(mirror,))


def mesh(*of_gateway: Route, of_service: tuple[Route, ...] = ()) -> Mesh:
    hosts = by_host(HostRoutes(host="*", routes=of_gateway))
    port = GatewayPort(gateway="default/edge", address="127.0.0.1", port=80, hosts=hosts)
    table = RouteTable(ref=PortRef("default/web", 80), routes=of_service)
    return Mesh(domain="cluster.local", gateways=(port,), tables=(table,))


def counts(number: int, *, failed: int = 0, slow: int = 0, size: int = 0) -> SideCounts:
    """Return the counts of some requests; each response has `size` bytes, if it is not 0."""
    latency = gathered({bucket_of(10_000): number - slow, bucket_of(900_000): slow})
    found = Counts.of({class_index(200): number - failed, class_index(503): failed}, latency)
    return SideCounts(found, histogram([size] * number) if size else 0)


def compared(blocks: int, copies: SideCounts, requests: SideCounts, *rules: Route) -> StatusCondition:
    """Return the condition after some blocks of the same counts."""
    wanted = subjects(mesh(*(rules or (mirroring_route(),))))
    known: Mapping[PortRef, MirrorComparison] = {}
    for number in range(blocks):
        known = after(known, wanted, {NEXT: copies, RULE: requests}, 1000 + number)
    (found,) = verdicts(known)[ROUTE]
    return found


def test_copies_that_fail_more_often_are_named_with_the_numbers_of_both_sides() -> None:
    found = compared(20, counts(50, failed=2), counts(100))
    assert (found.type, found.status, found.reason) == ("headgate.dev/CopiesWorse", True, "MoreFailures")
    assert found.message == (
        "copies to default/next:80 fail 4% (99% interval 1.92% to 7.14%; 2xx 960, 5xx 40; p95 10 to 11 ms); "
        "requests fail 0% (99% interval 0% to 0.61%; 2xx 2000; p95 10 to 11 ms); since 1970-01-01T00:16:40Z"
    )


def test_failures_of_both_sides_alike_are_no_evidence_against_the_copies() -> None:
    found = compared(50, counts(50, failed=5), counts(100, failed=10))
    assert (found.status, found.reason) == (None, "NotProven")


def test_copies_with_a_longer_tail_are_slower() -> None:
    found = compared(50, counts(50, slow=6), counts(100))
    assert (found.status, found.reason) == (True, "Slower")
    assert not compared(50, counts(50, slow=6), counts(100, slow=12)).status


def test_copies_with_other_sizes_are_named_with_the_medians_of_both_sides() -> None:
    found = compared(50, counts(50, size=1_200), counts(100, size=12_000))
    assert (found.status, found.reason) == (True, "SmallerResponses")
    copies, requests = found.message.split("; requests ")
    assert "p95 10 to 11 ms; median size 1kB to 1.5kB)" in copies
    assert "median size 10kB to 15kB); the responses to copies are smaller; since " in requests
    assert compared(50, counts(50, size=120_000), counts(100, size=12_000)).reason == "LargerResponses"
    assert not compared(50, counts(50, size=12_000), counts(100, size=12_000)).status


def test_rules_with_the_same_fraction_are_compared_together_and_with_different_ones_not_at_all() -> None:
    alike = compared(20, counts(50, failed=5), counts(100), mirroring_route("0"), mirroring_route("1"))
    assert alike.status
    assert "2 rules send these copies" in alike.message
    different = compared(20, counts(50, failed=5), counts(100), mirroring_route("0"), mirroring_route("1", percent=10))
    assert not different.status
    assert "with different fractions, so there is no verdict" in different.message


def test_without_copies_or_without_requests_there_is_no_verdict() -> None:
    wanted = subjects(mesh(mirroring_route()))
    assert verdicts(after({}, wanted, {NEXT: SideCounts(), RULE: counts(100)}, 0)) == {}
    assert verdicts(after({}, wanted, {NEXT: counts(100), RULE: SideCounts()}, 0)) == {}


def test_a_comparison_begins_again_after_a_period_and_when_its_rules_change() -> None:
    wanted = subjects(mesh(mirroring_route()))
    known = after({}, wanted, {NEXT: counts(50, failed=9), RULE: counts(100)}, 0)
    assert after(known, wanted, {}, PERIOD_S - 1)[NEXT].copies.failure == 9
    assert after(known, wanted, {}, PERIOD_S)[NEXT].copies.failure == 0
    assert after(known, subjects(mesh(mirroring_route(percent=9))), {}, 1)[NEXT].copies.failure == 0


def test_a_rule_of_several_parents_is_counted_at_all_of_them() -> None:
    found = subjects(mesh(mirroring_route(), of_service=(mirroring_route(),)))
    assert found[NEXT].rules == (RULE,)
    increments = MirrorIncrements()
    increments.follow(sides(found))
    for cluster in (
        "route/default/web/80/HTTPRoute/default/route/0",
        "outbound/default/web/80/route/default/web/80/HTTPRoute/default/route/0/default/v1/80",
        "gateway/default/edge/80/HTTPRoute/default/route/0/via/default/split/80",
        "gateway/default/edge/80/HTTPRoute/default/route/1",
        "outbound/default/web/80",
    ):
        increments.add(series_of("mesh.latency", cluster=cluster, code="200-"), counts(1).counts)
        increments.add_sizes(cluster.removeprefix("outbound/default/web/80/"), histogram([100]))
    found_counts = increments.take()[RULE]
    assert (found_counts.counts.success, found_counts.sizes) == (3, histogram([100] * 3))
    assert increments.take()[RULE] == SideCounts()


def test_only_counts_of_followed_sides_are_kept() -> None:
    increments = MirrorIncrements()
    increments.add(COPIES, counts(5).counts)
    increments.follow([NEXT])
    increments.add(COPIES, counts(3).counts)
    increments.add(REQUESTS, counts(7).counts)
    increments.follow([NEXT, RULE])
    increments.add(REQUESTS, counts(2).counts)
    assert {side: found.counts.success for side, found in increments.take().items()} == {NEXT: 3, RULE: 2}


def test_verdicts_change_only_with_new_counts_and_end_with_the_mirror() -> None:
    async def scenario() -> None:
        compiled: Latest[Compiled | None] = Latest(None)
        increments = MirrorIncrements()
        comparer = MirrorComparer(compiled, increments, clock=asyncio.get_running_loop().time)
        task = asyncio.create_task(comparer.run())
        await asyncio.sleep(1)
        compiled.set(Compiled(revision=1, mesh=mesh(mirroring_route()), report=Report(seen={})))
        await asyncio.sleep(1)
        increments.add(COPIES, counts(50, failed=9).counts)
        increments.add(REQUESTS, counts(100).counts)
        changed = comparer.verdicts.next_change()
        await asyncio.sleep(PUBLISH_S)
        assert changed.is_set()
        assert comparer.verdicts.get()[ROUTE][0].status
        changed = comparer.verdicts.next_change()
        await asyncio.sleep(10 * PUBLISH_S)
        assert not changed.is_set()
        compiled.set(Compiled(revision=2, mesh=mesh(), report=Report(seen={})))
        await asyncio.sleep(2 * PUBLISH_S)
        assert comparer.verdicts.get() == {}
        task.cancel()

    virtual_time.run(scenario())
