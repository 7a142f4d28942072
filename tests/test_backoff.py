"""The pauses between repeated attempts."""

import asyncio

import pytest
from tests import virtual_time

from headgate.backoff import FIRST_S, LONGEST_S, Backoff, exact, until_done


def test_pauses_double_up_to_the_longest_and_half_of_each_is_random() -> None:
    backoff = Backoff()
    for number in range(20):
        longest = min(FIRST_S * 2**number, LONGEST_S)
        assert longest / 2 <= backoff.next_pause() <= longest
    assert len({Backoff().next_pause() for _ in range(20)}) > 1


def test_pauses_without_a_random_part_are_those_that_were_set_also_after_a_reset() -> None:
    backoff = Backoff(first_s=1.0, longest_s=30.0, draw=exact)
    for _ in range(2):
        assert [backoff.next_pause() for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
        backoff.reset()
    assert Backoff(first_s=2.0, longest_s=1.0, draw=exact).next_pause() == 1.0


def test_pauses_begin_again_only_after_an_attempt_that_lasted_long_enough() -> None:
    async def scenario() -> list[float]:
        backoff, pauses = Backoff(first_s=1.0, steady_s=30.0, draw=exact), []
        for seconds in (0, 29, 31, 0):
            backoff.begin()
            await asyncio.sleep(seconds)
            pauses.append(backoff.next_pause())
        return pauses

    assert virtual_time.run(scenario()) == [1, 2, 1, 2]


async def test_an_attempt_is_repeated_until_it_succeeds(caplog: pytest.LogCaptureFixture) -> None:
    errors = [ConnectionError("down"), ConnectionError("still down")]

    async def attempt() -> str:
        if errors:
            raise errors.pop(0)
        return "answer"

    backoff = Backoff(first_s=0.0)
    assert await until_done(attempt, "the list can't be read", on=ConnectionError, backoff=backoff) == "answer"
    assert [record.message for record in caplog.records] == [
        f"the list can't be read, next attempt in 0.0 s: {reason}" for reason in ("down", "still down")
    ]


async def test_other_errors_end_the_attempts() -> None:
    async def attempt() -> None:
        raise ValueError("never right")

    with pytest.raises(ValueError, match="never right"):
        await until_done(attempt, "it can't be read", on=ConnectionError)
