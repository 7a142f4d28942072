"""How much of the time the status may take, by a clock that only the test advances."""

import pytest

from headgate.plane.status.writer import (
    COMING_SECONDS,
    LONGEST_COMING_SECONDS,
    LONGEST_SECONDS,
    LOOK_REST,
    PATIENCE_SECONDS,
    REST,
    SETTLE_SECONDS,
    SLICE_SECONDS,
    Pace,
)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_it_rests_longer_than_it_worked_and_a_change_after_that_only_settles() -> None:
    clock = Clock()
    pace = Pace(clock)
    assert pace.pause() == SETTLE_SECONDS
    pace.begin()
    clock.now += 2.0
    pace.end()
    assert pace.pause() == REST * 2.0
    clock.now += REST * 2.0
    assert pace.pause() == SETTLE_SECONDS


def test_a_slice_ends() -> None:
    clock = Clock()
    pace = Pace(clock)
    pace.begin()
    assert not pace.is_slice_over
    clock.now += 2 * SLICE_SECONDS
    assert pace.is_slice_over


def test_a_round_waits_by_what_all_slices_of_the_last_one_took() -> None:
    """Proxies that connect one after the other cost a share of the time, however many objects there are."""
    clock = Clock()
    pace = Pace(clock)
    assert pace.until_round() <= 0
    pace.begin_round()
    for _ in range(2):
        clock.now += 1.0
        pace.spend_on_round(0.5)
    assert pace.until_round() == LOOK_REST * 1.0
    clock.now += LOOK_REST * 1.0
    assert pace.until_round() <= 0
    pace.begin_round()
    pace.spend_on_round(0.25)
    assert pace.until_round() == LOOK_REST * 0.25


def test_a_look_waits_while_news_come_and_not_for_a_proxy_that_does_not_answer() -> None:
    clock = Clock()
    pace = Pace(clock)
    pace.notice(news=0)
    clock.now += PATIENCE_SECONDS / 2
    pace.notice(news=0)
    assert pace.patience() == PATIENCE_SECONDS / 2
    pace.notice(news=1)
    assert pace.patience() == PATIENCE_SECONDS
    clock.now += 2 * PATIENCE_SECONDS
    assert pace.patience() < 0
    pace.begin_look()
    pace.notice(news=1)
    assert pace.patience() == PATIENCE_SECONDS


def test_a_look_does_not_wait_for_ever_while_news_come() -> None:
    clock = Clock()
    pace = Pace(clock)
    for news in range(10):
        pace.notice(news)
        clock.now += PATIENCE_SECONDS / 2
    assert clock.now - 100.0 > LONGEST_SECONDS
    assert pace.patience() < 0


def test_looks_take_a_share_of_the_time_however_many_proxies_there_are() -> None:
    clock = Clock()
    pace = Pace(clock)
    for took, rest in ((0.01, LOOK_REST * 0.01), (1.0, LONGEST_SECONDS)):
        assert pace.until_look() <= 0
        pace.begin_look()
        pace.spend_on_look(took / 2)
        pace.spend_on_look(took / 2)
        assert pace.until_look() == pytest.approx(rest)
        clock.now += rest + 0.001


def test_a_round_waits_until_no_proxy_comes_or_goes_but_not_for_ever() -> None:
    clock = Clock()
    pace = Pace(clock)
    pace.coming.note()
    assert pace.until_round() == COMING_SECONDS
    while pace.until_round() > 0:
        clock.now += COMING_SECONDS / 2
        pace.coming.note()
    assert clock.now - 100.0 == LONGEST_COMING_SECONDS
    pace.begin_round()
    assert pace.until_round() <= 0
