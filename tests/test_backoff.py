"""The pauses between repeated attempts."""

from itertools import islice

import pytest

from headgate import backoff
from headgate.backoff import FIRST_S, LONGEST_S, pauses, until_done


def test_pauses_double_up_to_the_longest_and_half_of_each_is_random() -> None:
    for number, pause in enumerate(islice(pauses(), 20)):
        longest = min(FIRST_S * 2**number, LONGEST_S)
        assert longest / 2 <= pause <= longest
    assert len({next(pauses()) for _ in range(20)}) > 1


async def test_an_attempt_is_repeated_until_it_succeeds(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(backoff, "FIRST_S", 0.0)
    errors = [ConnectionError("down"), ConnectionError("still down")]

    async def attempt() -> str:
        if errors:
            raise errors.pop(0)
        return "answer"

    assert await until_done(attempt, "the list can't be read", on=ConnectionError) == "answer"
    assert [record.message for record in caplog.records] == [
        f"the list can't be read, next attempt in 0.0 s: {reason}" for reason in ("down", "still down")
    ]


async def test_other_errors_end_the_attempts() -> None:
    async def attempt() -> None:
        raise ValueError("never right")

    with pytest.raises(ValueError, match="never right"):
        await until_done(attempt, "it can't be read", on=ConnectionError)
