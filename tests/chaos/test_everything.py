"""Everything at once: weights change, pods are replaced, and the control plane is killed, all under load."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable

import pytest
from tests.chaos.load import TimedLoad
from tests.chaos.machine import PODS, Up, ready

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]
Received = Callable[[], Counter[str]]
DISTURBANCES = 8  # before each kill
KILLS = 2
ANSWERS = 20
"""The answers for which a test waits while the control plane is down."""
LIVE = ("v1", "v2")


async def disturb(up: Up, rng: random.Random) -> None:
    """Change the weights of v1 and v2, and delete a pod if more than three are ready."""
    first = rng.randint(1, 99)
    await up.weights(v1=first, v2=100 - first, v3=0)
    names = await ready(up)
    if len(names) > len(LIVE) + 1:
        await up.api.delete(f"{PODS}/{rng.choice(names)}")
    await asyncio.sleep(rng.uniform(0, 0.1))  # the next disturbance begins before this one is complete


async def test_no_request_is_lost_while_weights_pods_and_the_control_plane_change_at_once(
    up: Up, load: TimedLoad, received: Received
) -> None:
    rng = random.Random(11)
    for _ in range(KILLS):
        for _ in range(DISTURBANCES):
            await disturb(up, rng)
        await up.kill()
        await load.reached(len(load.answers) + ANSWERS)
        await up.start()
    await up.wait_until_active()
    await load.stop()
    assert load.failed == []
    assert received() == load.backends
    assert set(load.backends) == {"website-v1", "website-v2"}
