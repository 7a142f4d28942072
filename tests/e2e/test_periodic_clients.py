"""A client whose requests repeat in step with the shares decides no rollout wrongly: each cycle has a new order (R108)."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.e2e.running_mesh import RunningMesh
from tests.e2e.versions import ANALYSIS, Versions
from tests.make.rollouts import message_of
from tests.wire import Client, Request

OK, BAD = "/ok", "/bad"


class Periodic(Versions):
    """Two versions, and a client with one connection that sends each of the requests in turn."""

    async def _converse(self, requests: list[Request]) -> None:
        client = Client(requests[0])
        try:
            while not self.stopping:
                for request in requests:
                    client.change(request)
                    assert (await client.ask()).status in {200, 500}
        finally:
            client.close()

    @contextmanager
    def load(self, period: int) -> Iterator[None]:
        """Send requests during the `with` block; the last one of `period` requests is for the bad path."""
        self.stopping = False
        request = self.mesh.request("web", 8080, namespace=self.namespace)
        paths = [OK] * (period - 1) + [BAD]
        work = self.mesh.network.begin(self._converse([request._replace(target=path) for path in paths]))
        try:
            yield
        finally:
            self.stopping = True
            work.result()


@pytest.fixture
def versions(mesh: RunningMesh, namespace: str) -> Periodic:
    return Periodic(mesh, namespace)


@pytest.mark.parametrize(("percent", "period"), [(50, 2), (10, 10)])
def test_two_equal_versions_that_fail_the_same_path_are_not_rolled_back(
    versions: Periodic, percent: int, period: int
) -> None:
    """`percent` is the canary's share. The two periods are in step with it."""
    versions.current.failing = versions.next.failing = BAD
    versions.begin({**ANALYSIS, "steps": [], "errorProbability": "0.01%"}, percent)
    with versions.load(period):
        versions.ended("Promoted")


def test_a_canary_that_always_fails_one_path_is_rolled_back(versions: Periodic) -> None:
    versions.next.failing = BAD
    versions.begin({**ANALYSIS, "steps": [], "success": {"margin": "1%"}, "errorProbability": "0.01%"}, percent=10)
    with versions.load(period=10):
        status = versions.ended("RolledBack")
    assert "more requests fail than at web-current" in message_of(status)
