"""Following objects: the pauses between the attempts to list and watch, in virtual time."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from itertools import pairwise
from typing import Any

import pytest
from tests import virtual_time

from headgate.backoff import FIRST_S, LONGEST_S
from headgate.errors import Gone, NotFound, StoreError, Unavailable
from headgate.objects.ports import Change, Listing, follow
from headgate.resources.meta import Key, Object

KEY = Key("", "Pod", "default", "web")


class Server:
    """A store whose lists and watches fail in a given order. `listed` has the times of the lists.

    A list raises its error. A watch waits for a few seconds, reports some changes, and raises its error.
    """

    def __init__(self, *, lists: Sequence[StoreError | None] = (), watches: Sequence[Any] = ()) -> None:
        self.listed: list[float] = []
        self._lists = list(lists)
        self._watches = list(watches)

    async def get(self, key: Key) -> Object:
        raise NotFound(str(key))

    async def list(self, _group: str, _kind: str, _namespace: str = "") -> Listing:
        self.listed.append(asyncio.get_running_loop().time())
        if self._lists and (error := self._lists.pop(0)):
            raise error
        return Listing((), "1")

    async def watch(self, _group: str, _kind: str, _namespace: str = "", *, since: str) -> AsyncGenerator[Change]:
        seconds, changes, error = self._watches.pop(0) if self._watches else (0, 0, Gone(since))
        await asyncio.sleep(seconds)
        for _ in range(changes):
            yield Change("ADDED", KEY, {"metadata": {"resourceVersion": "2"}})
        raise error


def pauses(server: Server, count: int) -> list[float]:
    """Follow the objects of a server until the list after `count` pauses; return the times between its lists."""

    async def scenario() -> None:
        async for _ in follow(server, "", "Pod"):
            if len(server.listed) > count:
                return

    virtual_time.run(scenario())
    return [after - before for before, after in pairwise(server.listed)]


def test_a_watch_that_expires_once_is_repeated_soon() -> None:
    (pause,) = pauses(Server(), 1)
    assert FIRST_S / 2 <= pause <= FIRST_S


def test_pauses_grow_while_each_watch_expires_at_once() -> None:
    found = pauses(Server(), 10)
    for number, pause in enumerate(found):
        longest = min(FIRST_S * 2**number, LONGEST_S)
        assert longest / 2 <= pause <= longest
    assert found[-1] >= LONGEST_S / 2


def test_pauses_grow_while_no_list_is_answered() -> None:
    found = pauses(Server(lists=[Unavailable("down")] * 10), 10)
    for number, pause in enumerate(found):
        longest = min(FIRST_S * 2**number, LONGEST_S)
        assert longest / 2 <= pause <= longest


@pytest.mark.parametrize(("seconds", "changes"), [(0, 1), (2 * LONGEST_S, 0)])
def test_pauses_start_again_after_a_change_and_after_a_long_watch(seconds: float, changes: int) -> None:
    short = (0, 0, Gone("expired"))
    server = Server(watches=[*[short] * 6, (seconds, changes, Gone("expired"))])
    *_, last, again = pauses(server, 7)
    assert last > 2 * FIRST_S
    assert FIRST_S / 2 <= again - seconds <= FIRST_S


def test_followers_of_a_server_that_expires_all_watches_list_at_different_times() -> None:
    assert len({pauses(Server(), 1)[0] for _ in range(20)}) > 1
