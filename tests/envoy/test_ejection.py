"""Endpoints that fail get no requests for some time, in a real Envoy; the shares of backends stay exact."""

from collections import Counter

import pytest
from msgspec import structs
from tests.envoy.rig import Echo
from tests.waiting import until

from headgate.envoy.cluster_plan import ClusterPlan, Locality
from headgate.model.resilience import DEFAULT, Ejection, Resilience
from headgate.model.routing import Endpoint, Protocol, Route, Split
from headgate.standalone.request_counters import RequestCounters

LONG = 600_000
"""The time of an ejection in the tests, in milliseconds: an ejected endpoint does not return during a test."""
EJECTION = Ejection(time=LONG, max_time=LONG)
UNAVAILABLE, ERROR = "503 Service Unavailable", "500 Internal Server Error"


def ejecting_route(*targets, ejection=EJECTION):
    settings = Resilience(ejection=ejection)
    return Route(split=Split(targets=tuple(structs.replace(target, resilience=settings) for target in targets)))


def statuses(rig, count):
    """Return the statuses of requests that follow each other.

    Envoy's main thread ejects what a worker has counted, and on a busy machine it comes later than the next requests. So a failure is
    followed by a request to the main thread.
    """
    answered = Counter()
    for _ in range(count):
        status = rig.ask().status
        answered[status] += 1
        if status != 200:
            ejections(rig)
    return answered


def ejections(rig):
    """Return the number of endpoints that the proxy has ejected."""
    return rig.network.run(rig.envoy.admin.get("/clusters")).count(b"health_flags::/failed_outlier_check")


def unused(rig, echoes):
    """Return how many endpoints get none of some requests."""
    counts(echoes)
    statuses(rig, 3 * len(echoes))
    return counts(echoes).count(0)


def counts(echoes):
    """Return the number of requests of each backend since the last call."""
    return [len(echo.take_requests()) for echo in echoes]


@pytest.fixture
def serve(rig):
    """Return a function that serves endpoints of one Service; they are new ones, which no earlier test has ejected."""

    def apply(count, ejection=EJECTION):
        echoes = [Echo(rig.network, f"endpoint-{number}") for number in range(count)]
        rig.apply(ejecting_route(rig.target("service"), ejection=ejection), services={"service": echoes})
        return echoes

    return apply


def test_an_endpoint_is_ejected_after_consecutive_gateway_errors(rig, serve):
    failing, *healthy = serve(3)
    failing.status = UNAVAILABLE
    assert statuses(rig, 105) == {200: 100, 503: 5}
    got = counts([failing, *healthy])
    assert (got[0], sum(got[1:])) == (5, 100)


def test_the_table_of_up_names_ejected_endpoints(rig, serve):
    failing, *_ = serve(3)
    counters = RequestCounters(lambda: {"gateway": rig.envoy.admin})
    rig.network.run(counters.read())
    assert counters.ejections == ()
    failing.status = UNAVAILABLE
    statuses(rig, 30)
    rig.network.run(counters.read())
    service = f"default/web:{rig.address.port}"
    assert counters.ejections == (f"gateway has ejected 127.0.0.1:{failing.port} of {service}, which failed",)


def test_the_default_ejects_endpoints_with_gateway_errors(rig, serve):
    failing, *_ = serve(3, DEFAULT.ejection)
    failing.status = "502 Bad Gateway"
    assert statuses(rig, 30) == {200: 25, 502: 5}


def test_an_endpoint_that_refuses_connections_is_ejected(rig, serve):
    """Envoy repeats the requests, so that clients see no error; the ejection saves the attempts."""
    refusing, *healthy = serve(3)
    refusing.close()
    assert statuses(rig, 30) == {200: 30}
    assert ejections(rig) == 1
    assert sum(counts(healthy)) == 30


def test_an_endpoint_with_500s_is_ejected_only_if_the_service_counts_errors(rig, serve):
    failing, *_ = serve(3)
    failing.status = ERROR
    assert statuses(rig, 99) == {200: 66, 500: 33}
    failing, *_ = serve(3, structs.replace(EJECTION, errors=4))
    failing.status = ERROR
    assert statuses(rig, 99) == {200: 95, 500: 4}


def test_without_ejection_a_failing_endpoint_keeps_its_requests(rig, serve):
    failing, *_ = serve(3, None)
    failing.status = UNAVAILABLE
    assert statuses(rig, 99) == {200: 66, 503: 33}


@pytest.mark.parametrize(("count", "percent", "ejected"), [(1, 50, 0), (2, 50, 1), (3, 50, 1), (4, 50, 2), (4, 99, 3)])
def test_some_endpoints_always_stay(rig, serve, count, percent, ejected):
    """At most half of the endpoints are ejected by default, never all, and never the only one."""
    echoes = serve(count, structs.replace(EJECTION, max_percent=percent))
    for echo in echoes:
        echo.status = UNAVAILABLE
    statuses(rig, 12 * count)
    assert (unused(rig, echoes), ejections(rig)) == (ejected, ejected)


def test_an_ejected_endpoint_returns_after_its_time(rig, serve):
    failing, *_ = serve(3, structs.replace(EJECTION, time=3000))  # 30 requests take 0.5 s on a busy machine
    failing.status = UNAVAILABLE
    assert statuses(rig, 30) == {200: 25, 503: 5}
    failing.status = "200 OK"
    counts([failing])
    until(lambda: rig.ask().answered_by == failing.name, "the endpoint gets requests again")


def test_a_split_stays_exact_while_an_endpoint_of_a_backend_is_ejected(rig):
    blue, green = ([Echo(rig.network, f"{name}-{number}") for number in range(3)] for name in ("blue", "green"))
    green[0].status = UNAVAILABLE
    services = {"blue": blue, "green": green}
    rig.apply(ejecting_route(rig.target("blue", 9), rig.target("green", 1)), services=services)
    statuses(rig, 200)
    counts([*blue, *green])
    assert statuses(rig, 1000) == {200: 1000}
    got = counts(green)
    assert (got[0], sum(got), sum(counts(blue))) == (0, 100, 900)


def test_a_canary_with_one_endpoint_keeps_its_share_however_it_fails(rig):
    stable, canary = [Echo(rig.network, f"stable-{number}") for number in range(3)], Echo(rig.network, "canary")
    canary.status = UNAVAILABLE
    rig.apply(
        ejecting_route(rig.target("stable", 9), rig.target("canary", 1)),
        services={"stable": stable, "canary": [canary]},
    )
    assert statuses(rig, 200) == {200: 180, 503: 20}


@pytest.mark.parametrize(
    ("sizes", "percent"),
    [
        ((), 50),
        ((1,), 50),
        ((9,), 50),
        ((1, 9), 0),
        ((2, 2), 33),
        ((5, 2), 20),
        ((2, 9), 10),
        ((3, 3, 3), 33),
        ((2, 99), 1),
        ((2, 199), 0),
    ],
)
def test_the_smallest_of_several_backends_keeps_an_endpoint(sizes, percent):
    """The first cluster has no endpoint yet. Of 201 endpoints, 1 % are two, a whole backend."""
    localities = tuple(
        Locality(
            backend=f"default/{name}",
            weight=1,
            endpoints=tuple(Endpoint(address=f"10.1.{name}.{number}", port=80) for number in range(size)),
        )
        for name, size in enumerate(sizes)
    )
    ejection = ClusterPlan(name="web", localities=localities).settings.ejection
    assert (ejection.max_percent if ejection else 0) == percent


def test_an_endpoint_that_refuses_tcp_connections_is_ejected(rig):
    refusing, healthy = [Echo(rig.network, name) for name in ("refusing", "healthy")]
    mesh = rig.apply(ejecting_route(rig.target("service")), services={"service": [refusing, healthy]})
    tcp = tuple(structs.replace(table, protocol=Protocol.TCP) for table in mesh.tables)
    rig.push(structs.replace(mesh, tables=tcp))
    rig.ask_when_listening()
    refusing.close()
    until(lambda: rig.ask().answered_by and ejections(rig) == 1, "the endpoint is ejected")
    assert rig.ask().answered_by == "healthy"
