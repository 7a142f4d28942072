"""The sizes of responses to requests and to copies, from a real Envoy's reports to the verdict about a mirror (002, D22)."""

import time
from collections.abc import Iterator

import pytest
from tests.envoy.counting import ReportingRig
from tests.waiting import until
from tests.wire import listens

from headgate.kinds import GATEWAY
from headgate.model.routing import Mirror, Target
from headgate.plane.mirror_comparison import Comparisons, after, sides, subjects, verdicts
from headgate.resources.meta import Key
from headgate.telemetry.receiver import Receiver
from headgate.telemetry.reports.otlp import read_report
from headgate.telemetry.windows import Windows

ROUTE = Key(GATEWAY, "HTTPRoute", "default", "shop.example")  # Envoy's own attribute would end at the dot
SIZES = "mesh.response_sizes"
LARGE = "x" * 12_000


@pytest.fixture
def rig() -> Iterator[ReportingRig]:
    with ReportingRig() as rig:
        for name in ("one", "two", "apart"):
            rig.echo(name)
        yield rig


def test_copies_with_an_empty_body_are_smaller_than_the_responses_to_requests(rig: ReportingRig) -> None:
    rig.echoes["one"].body, rig.echoes["two"].body = LARGE, ""
    mirror = Mirror(ref=rig.ref("two"), targets=(Target(ref=rig.ref("two"), weight=1),), numerator=1, denominator=1)
    wanted = subjects(rig.apply(rig.route("one", origin=ROUTE, name="0", mirrors=(mirror,))))
    until(lambda: listens(rig.address), "the listener")

    clock = [0.0]  # the receiver began long before the proxy, so it knows all that the proxy counted
    receiver = Receiver(Windows(), 1000, clock=lambda: clock[0])
    clock[0] = time.time()
    receiver.mirrors.follow(sides(wanted))
    known: Comparisons = {}
    for number in (1, 2):
        rig.load(150)
        until(lambda number=number: rig.reports.total(SIZES) == 300 * number)
        receiver.take(read_report(rig.reports.all[-1].message.SerializeToString()))
        known = after(known, wanted, receiver.mirrors.take(), number)
    (found,) = verdicts(known)[ROUTE]
    assert (found.status, found.reason) == (True, "SmallerResponses")
    copies, requests = found.message.split("; requests ")
    assert "median size 0B to 1B" in copies
    assert "median size 10kB to 15kB" in requests
    assert "the responses to copies are smaller" in requests


def test_only_rules_with_a_mirror_count_sizes(rig: ReportingRig) -> None:
    rig.apply(rig.route("apart"))
    until(lambda: listens(rig.address), "the listener")
    rig.load(10)
    until(lambda: rig.reports.total("mesh.latency") == 10)
    assert rig.reports.total(SIZES) == 0
