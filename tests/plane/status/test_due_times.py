"""When the steps of the status writer and delayed objects are due, with a clock that tests advance."""

import pytest
from tests.make.objects import backed_service, gateway, meshed_pod
from tests.make.values import compiled
from tests.xds.client import XdsClient

from headgate.envoy.encode import Memo, encode
from headgate.envoy.view import Node, project
from headgate.kinds import GATEWAY as GROUP
from headgate.plane.status.receipts import AckStates, Receipts
from headgate.plane.status.work_queue import (
    MAX_MEMBERSHIP_SECONDS,
    MEMBERSHIP_QUIET_SECONDS,
    PAUSE_FACTOR,
    RECONNECT_SECONDS,
    Observation,
    ReportIndex,
    StatusQueue,
    WriterStep,
)
from headgate.resources.meta import Key
from headgate.xds.fleet import Fleet

EDGE = Key(GROUP, "Gateway", "default", "edge")
QUIET, LONGEST = 0.5, 5.0


class Rig:
    """A queue whose clock stands, and a fleet whose proxies connect one by one."""

    def __init__(self) -> None:
        self.now = 100.0
        self.queue = StatusQueue([(GROUP, "Gateway")], clock=lambda: self.now)
        self.fleet = Fleet()
        found = compiled(*backed_service("web", ("", "10.1.0.1")), gateway("edge"), meshed_pod("client", "10.1.0.9"))
        self._reports, self._cache, self._mesh, self._memo = ReportIndex(found), AckStates(), found.mesh, Memo()
        self.observe()
        while self.queue.next():
            pass

    def connect(self, name: str) -> None:
        self._memo.begin_build()
        proxy = self.fleet.expect(name)
        proxy.config.set(
            encode(project(self._mesh, Node(id=name, proxy_address="127.0.0.1", proxy_port=15001)), self._memo)
        )
        XdsClient(proxy).take()
        self.observe()

    def observe(self) -> None:
        self.queue.observe(Observation(self._reports, Receipts(self.fleet.configured(), self._cache)))

    def begin_pass(self) -> bool:
        """Begin a full pass if it is due; return whether it began."""
        self.queue.begin_due_pass()
        return not self.queue.is_empty


def test_a_full_pass_waits_until_no_proxy_connects_but_only_for_a_limited_time() -> None:
    rig = Rig()
    rig.connect("one")
    assert rig.queue.next_due == pytest.approx(MEMBERSHIP_QUIET_SECONDS)
    number = 0
    while not rig.begin_pass():
        number += 1
        rig.now += MEMBERSHIP_QUIET_SECONDS / 2
        rig.connect(f"proxy-{number}")
    assert rig.now - 100.0 == pytest.approx(MAX_MEMBERSHIP_SECONDS)


def test_a_full_pass_waits_longer_for_a_proxy_that_may_reconnect() -> None:
    rig = Rig()
    rig.connect("one")
    rig.now += MEMBERSHIP_QUIET_SECONDS
    assert rig.begin_pass()
    while rig.queue.next():
        pass
    rig.fleet.proxies["one"].session = None
    rig.observe()
    assert rig.queue.next_due == pytest.approx(RECONNECT_SECONDS)


def test_a_full_pass_waits_in_proportion_to_the_work_of_the_last_pass() -> None:
    """When proxies connect one by one, the full passes take a limited share of the time, also with many objects."""
    rig = Rig()
    rig.connect("one")
    rig.now += MEMBERSHIP_QUIET_SECONDS
    assert rig.begin_pass()
    for _ in range(2):
        rig.now += 1.0
        rig.queue.spend_on_pass(0.5)
    while rig.queue.next():
        pass
    rig.connect("two")
    assert rig.queue.next_due == pytest.approx(PAUSE_FACTOR * 1.0)
    rig.now += PAUSE_FACTOR * 1.0
    assert rig.begin_pass()
    rig.queue.spend_on_pass(0.25)
    while rig.queue.next():
        pass
    rig.connect("three")
    assert rig.queue.next_due == pytest.approx(PAUSE_FACTOR * 0.25)


def test_a_step_is_due_after_a_quiet_time_at_the_latest_after_the_longest_and_not_before_the_end_of_its_rest() -> None:
    rig = Rig()
    rig.queue.debounce(WriterStep.OBSERVATION, quiet=QUIET, longest=LONGEST)
    assert rig.queue.next_due == pytest.approx(QUIET)
    assert not rig.queue.take(WriterStep.OBSERVATION)
    while rig.queue.next_due > 0:
        rig.now += QUIET / 2
        rig.queue.debounce(WriterStep.OBSERVATION, quiet=QUIET, longest=LONGEST)
    assert rig.now - 100.0 == pytest.approx(LONGEST)
    assert rig.queue.take(WriterStep.OBSERVATION)
    assert not rig.queue.take(WriterStep.OBSERVATION)
    rig.queue.rest(WriterStep.OBSERVATION, 2.0)
    rig.queue.debounce(WriterStep.OBSERVATION, quiet=QUIET, longest=LONGEST)
    rig.queue.add(WriterStep.OBSERVATION, after=0.0)  # no proxy may answer
    assert rig.queue.next_due == pytest.approx(2.0)
    rig.now += 2.0
    assert rig.queue.take(WriterStep.OBSERVATION)


def hold(rig: Rig) -> bool:
    return rig.queue.hold(EDGE, quiet=QUIET, longest=LONGEST)


def test_a_first_write_is_not_held_and_the_last_of_many_is_written_after_a_pause() -> None:
    rig = Rig()
    assert not hold(rig)
    for _ in range(4):
        rig.now += QUIET / 2
        assert hold(rig)
        assert rig.queue.next_due == pytest.approx(QUIET)
    rig.now += QUIET
    rig.queue.take_due()
    assert rig.queue.next() == (EDGE, False)
    assert not hold(rig)
    rig.now += LONGEST
    assert not hold(rig)


def test_writes_that_go_on_are_let_through_every_few_seconds() -> None:
    rig = Rig()
    written = 0
    for _ in range(160):
        written += not hold(rig)
        rig.now += LONGEST / 16
    assert written == 10
    rig.queue.forget(EDGE)
    assert not hold(rig)
