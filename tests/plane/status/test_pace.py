"""The pauses with which the status writer limits its share of the CPU, with a clock that tests advance."""

import pytest

from headgate.plane.status.pace import (
    ANSWER_QUIET_SECONDS,
    COUNT_QUIET_SECONDS,
    MAX_COUNT_SECONDS,
    MAX_MEMBERSHIP_SECONDS,
    MAX_WAIT_SECONDS,
    MEMBERSHIP_QUIET_SECONDS,
    OBSERVATION_PAUSE_FACTOR,
    PAUSE_FACTOR,
    SETTLE_SECONDS,
    SLICE_SECONDS,
    CountDelay,
    Pace,
)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_pause_after_a_slice_is_a_multiple_of_its_work_without_the_time_in_which_it_waits() -> None:
    clock, work = Clock(), Clock()
    pace = Pace(clock, work)
    assert pace.pause() == SETTLE_SECONDS
    pace.begin()
    clock.now += 60.0
    work.now += 2.0
    pace.end()
    assert pace.pause() == PAUSE_FACTOR * 2.0
    clock.now += PAUSE_FACTOR * 2.0
    assert pace.pause() == SETTLE_SECONDS


def test_a_slice_ends_after_its_fixed_length() -> None:
    clock = Clock()
    pace = Pace(clock)
    pace.begin()
    assert not pace.is_slice_over
    clock.now += 2 * SLICE_SECONDS
    assert pace.is_slice_over


def test_a_full_pass_waits_in_proportion_to_the_work_of_the_last_pass() -> None:
    """When proxies connect one by one, the full passes take a limited share of the time, also with many objects."""
    clock = Clock()
    pace = Pace(clock)
    assert pace.until_pass() <= 0
    pace.begin_pass()
    for _ in range(2):
        clock.now += 1.0
        pace.spend_on_pass(0.5)
    assert pace.until_pass() == OBSERVATION_PAUSE_FACTOR * 1.0
    clock.now += OBSERVATION_PAUSE_FACTOR * 1.0
    assert pace.until_pass() <= 0
    pace.begin_pass()
    pace.spend_on_pass(0.25)
    assert pace.until_pass() == OBSERVATION_PAUSE_FACTOR * 0.25


def test_an_observation_waits_while_proxies_answer_but_not_for_a_silent_proxy() -> None:
    clock = Clock()
    pace = Pace(clock)
    pace.note_change(changes=0)
    clock.now += ANSWER_QUIET_SECONDS / 2
    pace.note_change(changes=0)
    assert pace.answer_wait() == ANSWER_QUIET_SECONDS / 2
    pace.note_change(changes=1)
    assert pace.answer_wait() == ANSWER_QUIET_SECONDS
    clock.now += 2 * ANSWER_QUIET_SECONDS
    assert pace.answer_wait() < 0
    pace.begin_observation()
    pace.note_change(changes=1)
    assert pace.answer_wait() == ANSWER_QUIET_SECONDS


def test_answers_of_proxies_delay_an_observation_only_for_a_limited_time() -> None:
    clock = Clock()
    pace = Pace(clock)
    for changes in range(10):
        pace.note_change(changes)
        clock.now += ANSWER_QUIET_SECONDS / 2
    assert clock.now - 100.0 > MAX_WAIT_SECONDS
    assert pace.answer_wait() < 0


def test_observations_take_a_limited_share_of_the_time() -> None:
    clock = Clock()
    pace = Pace(clock)
    for took, pause in ((0.01, OBSERVATION_PAUSE_FACTOR * 0.01), (1.0, MAX_WAIT_SECONDS)):
        assert pace.until_observation() <= 0
        pace.begin_observation()
        pace.spend_on_observation(took / 2)
        pace.spend_on_observation(took / 2)
        assert pace.until_observation() == pytest.approx(pause)
        clock.now += pause + 0.001


def test_connecting_proxies_delay_a_full_pass_only_for_a_limited_time() -> None:
    clock = Clock()
    pace = Pace(clock)
    pace.membership.note()
    assert pace.until_pass() == MEMBERSHIP_QUIET_SECONDS
    while pace.until_pass() > 0:
        clock.now += MEMBERSHIP_QUIET_SECONDS / 2
        pace.membership.note()
    assert clock.now - 100.0 == MAX_MEMBERSHIP_SECONDS
    pace.begin_pass()
    assert pace.until_pass() <= 0


def test_a_first_change_of_counts_is_written_at_once_and_the_last_of_many_after_a_pause() -> None:
    clock = Clock()
    delay = CountDelay(clock)
    assert delay.left("1 route") <= 0
    for number in range(2, 6):
        clock.now += COUNT_QUIET_SECONDS / 2
        assert delay.left(f"{number} routes") == pytest.approx(COUNT_QUIET_SECONDS)
    clock.now += COUNT_QUIET_SECONDS / 2
    assert delay.left("5 routes") == pytest.approx(COUNT_QUIET_SECONDS / 2)
    clock.now += COUNT_QUIET_SECONDS
    assert delay.left("5 routes") <= 0
    clock.now += MAX_COUNT_SECONDS
    assert delay.left("6 routes") <= 0


def test_counts_that_keep_changing_are_written_every_few_seconds() -> None:
    clock = Clock()
    delay = CountDelay(clock)
    written = 0
    for number in range(100):
        written += delay.left(f"{number} routes") <= 0
        clock.now += MAX_COUNT_SECONDS / 10
    assert written in (9, 10, 11)
