"""Weights change under load: no request is lost or sent to weight 0, and shares are exact (R20 to R27)."""

import random
import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import pytest
from tests.chaos.load import Target, TimedAnswer, TimedLoad, ask
from tests.chaos.machine import Up

Received = Callable[[], Counter[str]]
CHANGES = 30
REQUESTS = 600
VERSIONS = ("v1", "v2", "v3")


class Change(NamedTuple):
    """A change to weights: when it was written and last acknowledged, and the backends that get requests."""

    written: float
    active_since: float
    live: frozenset[str]


def misrouted(answers: list[TimedAnswer], changes: list[Change]) -> list[TimedAnswer]:
    """Return the answers of backends that had weight 0 during the whole request."""
    wrong = []
    for answer in answers:
        before = [change for change in changes if change.active_since <= answer.sent][-1:]
        during = [
            change for change in changes if change.written <= answer.answered and change.active_since > answer.sent
        ]
        if not any(answer.backend in change.live for change in (*before, *during)):
            wrong.append(answer)
    return wrong


def draw(rng: random.Random) -> dict[str, int]:
    """Return random weights, one or two of which are 0."""
    live = rng.sample(VERSIONS, rng.choice([1, 2]))
    return {version: rng.randint(1, 1000) if version in live else 0 for version in VERSIONS}


def live(weights: dict[str, int]) -> frozenset[str]:
    return frozenset(f"website-{version}" for version, weight in weights.items() if weight)


def test_misrouted_returns_the_answers_of_backends_with_weight_0() -> None:
    changes = [Change(0, 0, frozenset({"a"})), Change(10, 11, frozenset({"b"})), Change(20, 21, frozenset({"c"}))]
    target = Target("", "", "")

    def seen(sent: float, answered: float, backend: str) -> bool:
        return misrouted([TimedAnswer(sent, answered, 200, backend, target)], changes) == []

    assert [seen(5, 6, name) for name in "abc"] == [True, False, False]
    assert [seen(10.1, 10.2, name) for name in "abc"] == [
        True,
        True,
        False,
    ]  # the request was in flight during the change
    assert [seen(12, 13, name) for name in "abc"] == [False, True, False]
    assert [seen(9, 20.5, name) for name in "abc"] == [True, True, True]


@pytest.mark.e2e
@pytest.mark.asyncio(loop_scope="module")
async def test_no_request_is_lost_or_misrouted_during_30_changes_of_weights(
    up: Up, load: TimedLoad, received: Received
) -> None:
    rng = random.Random(7)
    changes = [Change(0, 0, live({"v1": 100}))]
    while len(changes) <= CHANGES:
        weights = draw(rng)
        written = time.monotonic()
        await up.wait_until_active(await up.weights(**weights))
        changes.append(Change(written, time.monotonic(), live(weights)))
        await load.reached(REQUESTS * len(changes) // CHANGES)
    await load.stop()
    assert load.failed == []
    assert misrouted(load.answers, changes) == []
    assert received() == load.backends


@pytest.mark.e2e
@pytest.mark.asyncio(loop_scope="module")
async def test_shares_are_exact_after_each_change(up: Up, targets: list[Target]) -> None:
    rng = random.Random(8)
    for _ in range(5):
        first = rng.randint(0, 100)
        await up.wait_until_active(await up.weights(v1=first, v2=100 - first, v3=0))
        seen = await ask(rng.choice(targets[:2]), 100)
        assert seen["website-v1"] + seen["website-v2"] == 100
        assert abs(seen["website-v1"] - first) <= 1
