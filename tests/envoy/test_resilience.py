"""Retries, timeouts and limits that a Service or a rule sets, in a real Envoy; attempts are counted at the backends."""

import pytest
from msgspec import structs
from tests.waiting import until
from tests.wire import Request, ask_once

from headgate.model.requests import Timeouts
from headgate.model.resilience import Limits, Resilience, Retry, ServiceTimeouts
from headgate.model.routing import Route, Split

UNAVAILABLE, ERROR = "503 Service Unavailable", "500 Internal Server Error"
QUICK = {"backoff": 1, "max_backoff": 2, "budget": 100}
"""Fields of retries that follow each other without a wait, and without a limit."""
NOT_EJECTING = Resilience(ejection=None)


@pytest.fixture
def web(rig):
    """Return a function that sets what `default/web` does, whose only backend is the server `one`."""

    def apply(settings=NOT_EJECTING, **fields):
        target = structs.replace(rig.target("one"), resilience=settings)
        rig.apply(Route(split=Split(targets=(target,)), **fields))
        return rig.echo("one")

    return apply


def ask(rig, method="GET", **headers):
    """Send a request; return the status of its response."""
    length = {"content-length": "0"} if method == "POST" else {}
    request = Request(rig.address, "/", "web.example", {**length, **headers}, method=method)
    return rig.network.run(ask_once(request)).status


@pytest.mark.parametrize(
    ("retry", "exchange", "attempts"),
    [
        (None, (UNAVAILABLE, "GET"), 1),
        (Retry(**QUICK), (UNAVAILABLE, "GET"), 1),
        (Retry(codes=(503,), **QUICK), (UNAVAILABLE, "GET"), 3),
        (Retry(codes=(503,), retries=5, **QUICK), (UNAVAILABLE, "GET"), 6),
        (Retry(codes=(502, 504), **QUICK), (UNAVAILABLE, "GET"), 1),
        (Retry(codes=(503,), **QUICK), (UNAVAILABLE, "POST"), 3),
        (Retry(codes=(418,), **QUICK), ("418 I'm a teapot", "POST"), 3),
        (Retry(conditions=("gateway-error", "reset"), **QUICK), (UNAVAILABLE, "PUT"), 3),
        (Retry(conditions=("gateway-error", "reset"), **QUICK), (UNAVAILABLE, "POST"), 1),
        (Retry(conditions=("gateway-error", "reset"), **QUICK), (ERROR, "GET"), 1),
        (Retry(conditions=("5xx", "reset"), **QUICK), (ERROR, "GET"), 3),
        (Retry(conditions=("5xx", "reset"), **QUICK), (ERROR, "POST"), 1),
    ],
)
def test_responses_are_repeated_by_their_policy_only(rig, web, retry, exchange, attempts):
    """A POST is repeated only if the policy names its status."""
    status, method = exchange
    backend = web(retry=retry)
    backend.status = status
    assert ask(rig, method) == int(status.split()[0])
    assert len(backend.take_requests()) == attempts


@pytest.mark.parametrize(
    ("word", "status", "attempts"), [("unavailable", 14, 3), ("unavailable", 13, 1), ("internal", 13, 3)]
)
def test_grpc_calls_are_repeated_by_the_status_of_grpc(rig, web, word, status, attempts):
    backend = web(retry=Retry(grpc=(word,), **QUICK))
    backend.status = f"200 OK\r\ncontent-type: application/grpc\r\ngrpc-status: {status}"
    assert ask(rig, "POST", **{"content-type": "application/grpc"}) == 200
    assert len(backend.take_requests()) == attempts


@pytest.mark.parametrize(
    ("retry", "method", "attempts"),
    [
        (None, "GET", 1),
        (Retry(**QUICK), "GET", 3),
        (Retry(**QUICK), "POST", 1),
        (Retry(conditions=(), **QUICK), "GET", 1),
    ],
)
def test_an_attempt_that_times_out_is_repeated_if_it_is_idempotent(rig, web, retry, method, attempts):
    backend = web(retry=retry, timeouts=Timeouts(backend=100))
    backend.hangs = True
    assert ask(rig, method) == 504
    assert len(backend.take_requests()) == attempts


def test_the_timeout_of_a_request_includes_its_attempts(rig, web):
    backend = web(retry=Retry(retries=10, **QUICK), timeouts=Timeouts(request=250, backend=100))
    backend.hangs = True
    assert ask(rig) == 504
    assert len(backend.take_requests()) == 3


def test_a_budget_limits_the_retries_of_many_requests(rig, web):
    """The budget allows ten retries at a time, whatever the number of requests."""
    retry = Retry(codes=(503,), retries=1, backoff=200, max_backoff=200, budget=1)
    backend = web(structs.replace(NOT_EJECTING, retry=retry), retry=retry)
    backend.status = UNAVAILABLE
    assert sum(rig.load(60, connections=60).values()) == 60
    retried = len(backend.take_requests()) - 60
    assert 10 <= retried < 30


@pytest.mark.parametrize(("limits", "held"), [(Limits(requests=1), 1), (Limits(connections=1, pending=1), 2)])
def test_requests_beyond_the_limits_of_a_service_are_refused_at_once(rig, web, limits, held):
    backend = web(structs.replace(NOT_EJECTING, limits=limits))
    backend.hangs = True

    def send(count):
        return [rig.network.begin(ask_once(Request(rig.address, "/", "web.example"))) for _ in range(count)]

    sent = send(1)
    until(backend.take_requests, "the server has a request")  # while its connection opens, it counts as pending
    sent += send(5)
    until(lambda: sum(work.done() for work in sent) == 6 - held, "the proxy answers the other requests")
    assert {work.result().status for work in sent if work.done()} == {503}
    assert not backend.take_requests()
    for work in sent:
        work.cancel()


def test_without_limits_requests_wait_for_the_server(rig, web):
    web()
    assert rig.load(2000, connections=200) == {"one": 2000}


def test_a_service_sets_the_idle_time_of_connections_to_it(rig, web):
    idle = ServiceTimeouts(idle=200)
    web(structs.replace(NOT_EJECTING, timeouts=idle))
    assert ask(rig) == 200
    until(lambda: not connections(rig), "the proxy closes the idle connection")


def connections(rig):
    """Return the number of open connections to the server `one`."""
    text = rig.network.run(rig.envoy.admin.get("/clusters")).decode()
    return sum(int(line.rpartition("::")[2]) for line in text.splitlines() if "web" in line and "::cx_active::" in line)
