"""The retry budget of an XBackendTrafficPolicy in a real Envoy: it limits the retries that are active at once."""

import re
from collections.abc import Iterable, Iterator
from concurrent.futures import Future

import pytest
from msgspec import structs
from tests.envoy.rig import EnvoyRig
from tests.waiting import until
from tests.wire import Answer, Client, Request

from headgate.model.resilience import Resilience, Retry, RetryBudget
from headgate.model.routing import Route, Split

LONG = 3_600_000
BURST = 50
WAITING = Retry(retries=1, codes=(503,), conditions=(), backoff=24 * LONG, max_backoff=24 * LONG)
"""Retries that wait for hours: each retry that a budget allows stays active, and its request has no response."""
AT_ONCE = Retry(retries=3, codes=(503,), conditions=(), backoff=1, max_backoff=1)
UNAVAILABLE = "503 Service Unavailable"


@pytest.fixture(scope="module")
def counting() -> Iterator[EnvoyRig]:
    """Run an Envoy that keeps its counters of retries."""
    with EnvoyRig(bootstrap_changes={"stats_config": {}}) as rig:
        yield rig


@pytest.fixture
def rig(counting: EnvoyRig) -> EnvoyRig:
    """Return the proxy with an available backend, and none of its earlier routes."""
    counting.echo("one")
    counting.apply(counting.route("one"))
    return counting


def limited(rig: EnvoyRig, budget: RetryBudget, retry: Retry = WAITING) -> None:
    """Push a route to the backend with a budget."""
    target = structs.replace(rig.target("one"), resilience=Resilience(ejection=None, budget=budget))
    rig.apply(Route(split=Split(targets=(target,)), retry=retry))


def retries(rig: EnvoyRig) -> tuple[int, int]:
    """Return the number of responses whose retry the budget allows, and of those whose retry it does not."""
    text = rig.network.run(rig.envoy.admin.get("/stats?filter=retry")).decode()
    counters = "retry.upstream_rq_completed", "upstream_rq_retry_overflow"
    allowed, refused = (
        sum(map(int, re.findall(rf"^cluster\.outbound/.*\.{re.escape(name)}: (\d+)$", text, re.MULTILINE)))
        for name in counters
    )
    return allowed, refused


def allowed_in_a_burst(rig: EnvoyRig) -> int:
    """Send requests that fail while all of them are active; return the number of retries that the proxy allows."""
    backend = rig.echoes["one"]
    backend.status, backend.hangs = UNAVAILABLE, True
    rig.take_requests("one")
    before = retries(rig)
    clients = [Client(Request(rig.address, "/", "web.example")) for _ in range(BURST)]
    waiting = [rig.network.begin(client.ask()) for client in clients]
    until(lambda: len(backend.seen) == BURST, "all requests are active")
    backend.release()
    until(lambda: sum(retries(rig)) - sum(before) == BURST, "the proxy has decided about each retry")
    rig.network.run(_end(clients, waiting))
    allowed = retries(rig)[0]
    assert len(rig.take_requests("one")) == BURST, "no retry was sent"
    return allowed - before[0]


async def _end(clients: Iterable[Client], waiting: Iterable[Future[Answer]]) -> None:
    for request in waiting:
        request.cancel()
    for client in clients:
        client.close()


@pytest.mark.parametrize(
    ("budget", "allowed"),
    [
        (RetryBudget(percent=20, interval=LONG, minimum=1), 10),
        (RetryBudget(percent=100, interval=LONG, minimum=1), BURST),
        (RetryBudget(percent=0, interval=LONG, minimum=3), 3),
        (RetryBudget(percent=10, interval=LONG, minimum=12), 12),
    ],
)
def test_a_burst_of_failures_gets_the_retries_of_the_budget(rig: EnvoyRig, budget: RetryBudget, allowed: int) -> None:
    limited(rig, budget)
    assert allowed_in_a_burst(rig) == allowed


def test_requests_of_the_interval_count_and_not_only_the_active_ones(rig: EnvoyRig) -> None:
    limited(rig, RetryBudget(percent=20, interval=LONG, minimum=1))
    assert rig.load(300) == {"one": 300}
    assert allowed_in_a_burst(rig) == BURST


def test_retries_one_after_the_other_are_not_limited(rig: EnvoyRig) -> None:
    """The difference from the specification, which limits the rate of retries: one retry at a time is within each budget."""
    limited(rig, RetryBudget(percent=0, interval=LONG, minimum=1), AT_ONCE)
    rig.echoes["one"].status = UNAVAILABLE
    rig.take_requests("one")
    for _ in range(5):
        assert rig.ask().status == 503
    assert len(rig.take_requests("one")) == 5 * (1 + AT_ONCE.retries)
