"""TLS modes, the root certificate, pods and the control plane change at once under load."""

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Callable

import pytest
from tests.chaos.load import TimedLoad
from tests.chaos.machine import AUTHORITY, PODS, TLS_CONFIGS, Up, ready
from tests.make.objects import tls_config

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]
Received = Callable[[], Counter[str]]
DISTURBANCES = 6  # before each kill
KILLS = 2
ANSWERS = 20
"""The answers for which a test waits while the control plane is down."""


async def disturb(up: Up, rng: random.Random, number: int) -> None:
    """Change the TLS mode of some pods, and request a rotation or delete a pod."""
    present = {item["metadata"]["name"] for item in (await up.api.get(TLS_CONFIGS))["items"]}
    version = rng.choice(("v1", "v2"))
    if version in present:
        await up.api.delete(f"{TLS_CONFIGS}/{version}")
    else:
        await up.api.create(TLS_CONFIGS, tls_config(version, {"version": version}))
    if number % 3 == 0:
        await up.api.patch(AUTHORITY, {"metadata": {"annotations": {"headgate.dev/rotate-ca": f"number {number}"}}})
    names = await ready(up)
    if number % 3 == 1 and len(names) > 3:
        await up.api.delete(f"{PODS}/{rng.choice(names)}")
    await asyncio.sleep(rng.uniform(0, 0.3))  # the next disturbance begins before this one is complete


async def test_no_request_is_lost_while_tls_modes_roots_and_pods_change_at_once(
    up: Up, load: TimedLoad, received: Received
) -> None:
    """R74, R77: no call fails in any step of the migration and of the rotation."""
    rng, numbers = random.Random(7), itertools.count()
    await up.weights(v1=50, v2=50, v3=0)
    for _ in range(KILLS):
        for _ in range(DISTURBANCES):
            await disturb(up, rng, next(numbers))
        await up.kill()
        await load.reached(len(load.answers) + ANSWERS)
        await up.start()
    await load.stop()
    assert load.failed == []
    assert received() == load.backends
    assert set(load.backends) >= {"website-v1", "website-v2"}
