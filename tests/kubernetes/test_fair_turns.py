"""Turns of tasks: how many run at a time, the order of clients, and canceled tasks."""

import asyncio

import pytest

from headgate.kubernetes.fair_turns import FairTurns, TooManyWaiting


class Tasks:
    """Tasks that take a turn each, and hold it until they may end."""

    def __init__(self, at_a_time, waiting_per_client):
        self.turns = FairTurns(at_a_time, waiting_per_client)
        self.running = []
        self._ends = {}
        self._tasks = {}

    async def begin(self, client, name):
        """Start a task; return when it has its turn, or waits for it."""
        self._ends[name] = asyncio.Event()
        self._tasks[name] = asyncio.create_task(self._run(client, name))
        await settled()

    async def end(self, name):
        self._ends[name].set()
        await self._tasks[name]
        await settled()

    async def cancel(self, *names):
        for name in names:
            self._tasks[name].cancel()
        await settled()

    async def _run(self, client, name):
        async with self.turns.turn(client):
            self.running.append(name)
            await self._ends[name].wait()


async def settled():
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_client_with_many_tasks_delays_another_one_by_one_turn():
    tasks = Tasks(1, 100)
    for number in range(50):
        await tasks.begin("flood", f"f{number}")
    await tasks.begin("proxy", "p")
    await tasks.end("f0")
    await tasks.end("f1")
    assert tasks.running == ["f0", "f1", "p"]


async def test_clients_get_their_turns_in_rotation():
    tasks = Tasks(1, 100)
    for name in ("a1", "a2", "a3", "b1", "b2", "c1"):
        await tasks.begin(name[0], name)
    for name in ("a1", "a2", "b1", "c1", "a3"):
        await tasks.end(name)
    assert tasks.running == ["a1", "a2", "b1", "c1", "a3", "b2"]


async def test_as_many_tasks_run_as_allowed_and_one_client_can_not_queue_more_than_its_share():
    tasks = Tasks(2, 2)
    for name in ("a1", "a2", "a3", "a4"):
        await tasks.begin("a", name)
    assert tasks.running == ["a1", "a2"]
    with pytest.raises(TooManyWaiting, match="2 requests of a wait for their turn"):
        async with tasks.turns.turn("a"):
            pass
    await tasks.begin("b", "b1")
    await tasks.end("a1")
    await tasks.end("a2")
    assert tasks.running == ["a1", "a2", "a3", "b1"]


async def test_a_canceled_task_leaves_its_turn_to_the_next_one():
    tasks = Tasks(1, 10)
    for name in ("a1", "a2", "b1"):
        await tasks.begin(name[0], name)
    await tasks.cancel("a2")
    await tasks.end("a1")
    assert tasks.running == ["a1", "b1"]
    await tasks.cancel("b1")
    await tasks.begin("c", "c1")
    assert tasks.running == ["a1", "b1", "c1"]


async def test_a_task_that_is_canceled_in_the_moment_of_its_turn_passes_it_on():
    tasks = Tasks(1, 10)
    for name in ("a1", "b1", "c1", "d1"):
        await tasks.begin(name[0], name)
    tasks._ends["a1"].set()
    await asyncio.sleep(0)  # a1 ends and gives its turn to b1, which has not run since
    await tasks.cancel("b1", "c1")
    await tasks.end("d1")
    await tasks.begin("e", "e1")
    assert tasks.running == ["a1", "d1", "e1"]
