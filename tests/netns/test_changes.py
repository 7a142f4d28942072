"""Configuration changes under traffic through a transparent sidecar: no request is lost, and changes apply at once."""

import asyncio
from collections import Counter
from contextlib import closing

import pytest
from tests.make.objects import split
from tests.netns.objects import WEB, mirror, served
from tests.netns.traffic import PATIENCE_S, answered, ask, connect
from tests.wire import Address

NEW = Address("10.96.0.30", 80)
CONNECTIONS = 4


class Flow:
    """Continuous requests of a pod to a Service over keep-alive connections.

    `counts` has the number of responses by backend or status; `opened` is the number of connections so far.
    """

    def __init__(self, lab, pod, where):
        self.counts = Counter()
        self.opened = 0
        self._lab = lab
        self._pod = pod
        self._where = where
        self._left = False

    def __enter__(self):
        self._work = [self._lab.network.begin(self._flow()) for _ in range(CONNECTIONS)]
        self.goes_on()
        return self

    def __exit__(self, *_):
        self._left = True
        for work in self._work:
            work.result(PATIENCE_S)

    async def _flow(self):
        while not self._left:
            reader, writer = await connect(self._pod, self._where)
            self.opened += 1
            with closing(writer):
                while not (self._left or reader.at_eof()):
                    answer = await answered(reader, writer, "GET", "/")
                    self.counts[answer.body if answer.status == 200 else answer.status] += 1
                    if answer.status == 0 or answer.headers.get("connection") == "close":
                        break
                    await asyncio.sleep(0)

    def goes_on(self, more=50):
        """Wait until `more` further requests have been answered."""
        wanted = self.counts.total() + more
        self.until(lambda: self.counts.total() >= wanted)

    def until(self, condition):
        """Wait until a condition holds."""

        async def wait():
            async with asyncio.timeout(PATIENCE_S):
                while not condition():
                    await asyncio.sleep(0.01)

        self._lab.run(wait())


@pytest.fixture
def client(lab):
    return lab.members["client"]


def test_no_request_is_lost_while_services_splits_and_mirrors_change(lab, services, client):
    new = served("new", NEW, [lab.members["two"]], 8080)
    lab.serve(*services)
    with Flow(lab, client, WEB) as flow:
        for _ in range(3):
            lab.serve(*services, *new)
            assert lab.run(ask(client, NEW)).body == "two"
            lab.serve(*services, *new, split("new", {"one": 1}, name="canary"))
            assert lab.run(ask(client, NEW)).body == "one"
            for change in (
                split("web", {"one": 1}, name="canary"),
                split("web", {"two": 1}, name="canary"),
                mirror("copies", "web", 80, "one"),
            ):
                lab.serve(*services, *new, change)
                flow.goes_on()
            lab.serve(*services)
    assert set(flow.counts) == {"one", "two"}
