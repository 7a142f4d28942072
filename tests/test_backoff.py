"""The pauses between repeated attempts."""

import ast
import asyncio
import contextlib
import textwrap
from collections.abc import AsyncGenerator, Iterator, Sequence
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
    "cli/rendered_files.py": "a change ends a pause",
    "cli/restart.py": "a response that shows progress is a reason to wait, too",
    "cli/wait.py": "each watch begins with a list, so it never ends without a value",
    "identity/credentials.py": "the pause is a time at which a certificate is due, which other tasks change",
    "kubernetes/client.py": "the server sets the pause (Retry-After)",
    "kubernetes/install/installer.py": "waits until objects are gone, which is no failure",
    "kubernetes/retries.py": "a change ends a pause",
    "standalone/network/portal.py": "a connection that can't be accepted is reported, and the next one may be",
    "standalone/pods/health.py": "a probe that fails is a result",
    "standalone/pods/runtime.py": "an attempt reports its failures itself, by their kinds",
    "standalone/pods/sidecars.py": "each fault is a state of the pod",
    "standalone/proxies/envoy_process.py": "a renewal that worked has a pause too",
    "standalone/supervisor.py": "a change, an exit or the end of headgate ends a pause",
}
"""Modules with a loop that repeats failed attempts by itself, each with the reason."""
WAITS = {"sleep", "next_pause", "pause_after", "call_later"}
"""The calls by which an attempt is made later."""


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes in a loop or a function, without those of functions in it."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            yield from own_nodes(child)


def called(node: ast.AST) -> str:
    """Return the name of what a call calls; empty for other nodes."""
    function = node.func if isinstance(node, ast.Call) else None
    return str(getattr(function, "attr", getattr(function, "id", "")))


def is_failure(caught: ast.expr | None) -> bool:
    """Return whether exceptions of a type are failures. A TimeoutError is the end of a wait."""
    return not (isinstance(caught, ast.Name) and caught.id == "TimeoutError")


def attempts(loop: ast.AST) -> Iterator[tuple[Sequence[ast.stmt], Sequence[ast.stmt]]]:
    """Yield the statements of each attempt that may fail in a loop, and those after a failure."""
    for node in own_nodes(loop):
        if isinstance(node, ast.Try):
            for handler in node.handlers:
                if is_failure(handler.type):
                    yield (*node.body, *node.orelse), handler.body
        elif isinstance(node, ast.With | ast.AsyncWith):
            calls = [item.context_expr for item in node.items if called(item.context_expr) == "suppress"]
            if any(is_failure(caught) for call in calls if isinstance(call, ast.Call) for caught in call.args):
                yield node.body, ()


def repeats_until_success(loop: ast.AST) -> bool:
    """Return whether a loop waits after a failure, and not after a success, which ends the loop or has another pause."""
    waits = any(called(node) in WAITS for node in own_nodes(loop))
    has_backoff = any(called(node) in {"next_pause", "pause_after"} for node in own_nodes(loop))
    for body, failed in attempts(loop):
        after_failure = [node for part in failed for node in (part, *own_nodes(part))]
        ends = any(isinstance(node, ast.Return | ast.Break) for part in body for node in (part, *own_nodes(part)))
        again = any(called(node) in WAITS or isinstance(node, ast.Continue) for node in after_failure)
        if waits and (ends or again):
            return True
    return has_backoff


def calls_itself_later(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a function waits and calls itself, or schedules itself after a failure."""
    nodes = list(own_nodes(function))
    own = [node for node in nodes if isinstance(node, ast.Name | ast.Attribute) and refers_to(node, function.name)]
    waits = {called(node) for node in nodes} & WAITS
    return bool(own and waits) and (any(attempts(function)) or "sleep" in waits)


def refers_to(node: ast.Name | ast.Attribute, name: str) -> bool:
    """Return whether an expression is a function of a module, or a method of the same object, of this name."""
    if isinstance(node, ast.Name):
        return node.id == name
    return node.attr == name and isinstance(node.value, ast.Name) and node.value.id == "self"


def repeats(source: str) -> bool:
    """Return whether a module repeats failed attempts in a loop, or by a function that calls itself later."""
    if not any(name in source for name in WAITS):  # parsing all modules would take seconds
        return False
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.While | ast.For | ast.AsyncFor) and repeats_until_success(node):
            return True
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and calls_itself_later(node):
            return True
    return False


@pytest.mark.parametrize(
    "body",
    [
        "while True:\n    try:\n        return await read()\n    except OSError:\n        await asyncio.sleep(1)",
        "while True:\n    try:\n        await read()\n        break\n    except OSError:\n        pass\n    await asyncio.sleep(1)",
        "while True:\n    with suppress(OSError):\n        return await read()\n    time.sleep(1)",
        "for _ in range(9):\n    try:\n        return read()\n    except OSError:\n        time.sleep(1)",
        "async for event in events:\n    try:\n        await read()\n    except Gone:\n        continue\n    await sleep(1)",
        "while not await attempt():\n    await asyncio.sleep(backoff.next_pause())",
        "try:\n    self.work()\nexcept OSError:\n    loop.call_later(1, self.work)",
        "try:\n    return await read()\nexcept OSError:\n    await asyncio.sleep(1)\n    return await self.work()",
    ],
)
def test_a_repetition_is_seen_in_every_form(body: str) -> None:
    assert repeats("async def work(self):\n" + textwrap.indent(body, "    "))


@pytest.mark.parametrize(
    "body",
    [
        "while True:\n    await asyncio.sleep(60)\n    try:\n        await read()\n    except OSError:\n        log()",
        "while True:\n    with suppress(TimeoutError):\n        return await changed.wait()\n    await asyncio.sleep(1)",
        "while not await is_ready():\n    await asyncio.sleep(1)",
        "loop.call_later(1, self.work)",
    ],
)
def test_a_period_and_a_wait_are_no_repetitions_of_failures(body: str) -> None:
    assert not repeats("async def work(self):\n" + textwrap.indent(body, "    "))


def test_failed_attempts_are_repeated_by_one_function_unless_a_reason_says_why_not() -> None:
    source = Path("src/headgate")
    files = [path for path in source.rglob("*.py") if path.name != "backoff.py"]
    own = {path.relative_to(source).as_posix() for path in files if repeats(path.read_text())}
    assert own == LOOPS.keys()
