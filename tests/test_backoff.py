"""The pauses between repeated attempts."""

import ast
import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from tests import virtual_time

from headgate.backoff import FIRST_S, LONGEST_S, Backoff, exact, restarted, until_done


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


async def test_the_caller_may_report_a_failure_and_end_the_attempts() -> None:
    reported: list[tuple[str, float]] = []

    async def attempt() -> None:
        raise ConnectionError(f"down {len(reported)}")

    async def wait_after(error: Exception, seconds: float) -> None:
        reported.append((str(error), seconds))
        if len(reported) == 2:
            raise error

    with pytest.raises(ConnectionError, match="down 1"):
        await until_done(attempt, wait_after, on=ConnectionError, backoff=Backoff(first_s=1.0, draw=exact))
    assert reported == [("down 0", 1.0), ("down 1", 2.0)]


def test_a_stream_begins_again_at_once_when_it_ends_and_after_a_pause_when_it_fails() -> None:
    ends: list[Exception | None] = [None, ConnectionError("down"), ConnectionError("down"), ValueError("never right")]

    async def stream() -> AsyncGenerator[float]:
        yield asyncio.get_running_loop().time()
        if error := ends.pop(0):
            raise error

    async def scenario() -> list[float]:
        began, times = asyncio.get_running_loop().time(), []
        values = restarted(stream, "", on=ConnectionError, backoff=Backoff(first_s=1.0, draw=exact))
        with contextlib.suppress(ValueError):
            async for time in values:
                times.append(time - began)  # noqa: PERF401 - the error ends the loop
        return times

    assert virtual_time.run(scenario()) == [0, 0, 1, 3]


def test_a_stream_that_ends_at_once_without_a_value_begins_again_after_growing_pauses() -> None:
    began: list[float] = []

    async def stream() -> AsyncGenerator[float]:
        began.append(asyncio.get_running_loop().time())
        if len(began) > 3:
            yield 0.0

    async def scenario() -> None:
        values = restarted(stream, "", on=ConnectionError, backoff=Backoff(first_s=1.0, draw=exact))
        await anext(values)

    virtual_time.run(scenario())
    assert began == [0, 1, 3, 7]


LOOPS = {
    "cli/nginx_gateway.py": "the program of a container has no event loop",
    "cli/proxy_calls.py": "the program of a container has no event loop",
    "kubernetes/retries.py": "a change ends a pause",
    "standalone/proxies/envoy_process.py": "a renewal that worked has a pause too",
}
"""Modules with a loop that repeats failed attempts by itself, each with the reason."""


def repeats(source: str) -> bool:
    """Return whether a loop of a module catches an exception and waits as long as a backoff says."""
    return any(
        any(isinstance(inner, ast.ExceptHandler) for inner in ast.walk(loop))
        and any(getattr(inner, "attr", "") in ("next_pause", "pause_after") for inner in ast.walk(loop))
        for loop in ast.walk(ast.parse(source))
        if isinstance(loop, ast.While)
    )


def test_failed_attempts_are_repeated_by_one_function_unless_a_reason_says_why_not() -> None:
    source = Path("src/headgate")
    files = [path for path in source.rglob("*.py") if path.name != "backoff.py"]
    own = {path.relative_to(source).as_posix() for path in files if repeats(path.read_text())}
    assert own == LOOPS.keys()
