"""Messages about the gateway's Envoy."""

import asyncio

from headgate.latest import Latest
from headgate.standalone.gateway import EnvoyChange, exits
from headgate.standalone.proxies.envoy_process import EnvoyState

DOWN = EnvoyChange(
    "the gateway's Envoy ended with 1; requests through it fail until headgate has restarted it", runs=False
)


async def test_an_exit_is_reported_and_so_is_the_restart() -> None:
    state = Latest(EnvoyState(pid=7))
    changes = exits(state)
    for restarts in (1, 2):
        next_change = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0)
        state.set(EnvoyState(restarts=restarts, failure="Envoy ended with 1"))
        assert await next_change == DOWN
        state.set(EnvoyState(pid=8, restarts=restarts, failure="Envoy ended with 1"))
        assert await anext(changes) == EnvoyChange("the gateway's Envoy runs again (process 8)", runs=True)


async def test_the_restart_is_reported_if_both_changes_are_seen_at_once() -> None:
    state = Latest(EnvoyState(pid=7))
    changes = exits(state)
    next_change = asyncio.ensure_future(anext(changes))
    await asyncio.sleep(0)
    state.set(EnvoyState(pid=8, restarts=1, failure="Envoy ended with 1"))
    assert [await next_change, (await anext(changes)).runs] == [DOWN, True]
