"""Retries of HTTPRoutes (GEP-1731): what the conformance suite tests for them, in numbers of requests that a backend received."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.e2e.gateway_api.hosts import SiteBackend
from tests.e2e.gateway_api.objects import edge_gateway, edge_route, path, route_grant, rule_of
from tests.e2e.gateway_api.site import Site
from tests.wire import HANG, RESET, Address

ERRORS = (500, 502, 503, 504)


def retry(attempts: int, *codes: int, backoff: str = "10ms") -> Mapping[str, Any]:
    """Return the field `retry` of a rule."""
    return {"attempts": attempts, "backoff": backoff, **({"codes": list(codes)} if codes else {})}


def received(site: Site, address: Address, target: str, backend: SiteBackend, faults: Sequence[str]) -> tuple[int, int]:
    """Send a request whose attempts meet faults; return the status of its response, and the number of attempts."""
    backend.faults = list(faults)
    before = backend.requests
    status = site.ask(address, target).status
    return status, backend.requests - before


@pytest.mark.conformance("HTTPRouteRetry")
def test_a_response_with_a_listed_status_is_repeated_until_the_attempts_are_used_up(site: Site) -> None:
    site.apply(
        edge_gateway(),
        edge_route(
            "app",
            rule_of("v1", matches=[path("/one")], retry=retry(3, 500)),
            rule_of("v1", matches=[path("/all")], retry=retry(2, *ERRORS)),
        ),
    )
    address = site.accepted("app")
    expected = {("/one", 500, 2): (200, 3), ("/one", 500, 4): (500, 4), ("/one", 503, 2): (503, 1)}
    for status in ERRORS:
        expected |= {("/all", status, 1): (200, 2), ("/all", status, 3): (status, 3)}
    results = {
        (target, status, failures): received(site, address, target, site.backends["v1"], [f"{status} Fault"] * failures)
        for target, status, failures in expected
    }
    assert results == expected


def test_each_attempt_has_the_timeout_of_the_backend_and_all_have_that_of_the_request(site: Site) -> None:
    """HTTPRouteRetryBackendTimeout. The request's timeout ends the wait for an attempt, and the wait before the next one."""
    rules = {
        "/attempt": {"retry": retry(1, 500), "timeouts": {"backendRequest": "2s"}},
        "/used-up": {"retry": retry(1, 500), "timeouts": {"backendRequest": "1s"}},
        "/whole": {"retry": retry(10, 500), "timeouts": {"request": "1s"}},
        "/between": {"retry": retry(10, 500, backoff="60s"), "timeouts": {"request": "1s"}},
    }
    site.apply(
        edge_gateway(),
        edge_route("app", *(rule_of("v1", matches=[path(target)], **fields) for target, fields in rules.items())),
    )
    address, backend = site.accepted("app"), site.backends["v1"]
    assert received(site, address, "/attempt", backend, [HANG]) == (200, 2)
    assert received(site, address, "/used-up", backend, [HANG] * 2) == (504, 2)
    assert received(site, address, "/whole", backend, [HANG] * 2) == (504, 1)
    assert received(site, address, "/between", backend, ["500 Fault"] * 11)[0] == 504


def test_a_connection_that_ends_without_a_response_is_repeated(site: Site) -> None:
    """HTTPRouteRetryConnectionError. The backend has no sidecar, which would repeat such requests too."""
    far = site.neighbor()
    far.apply(route_grant("routes", site.namespace))
    backend = {"name": "v1", "namespace": far.namespace, "port": 8080}
    site.apply(edge_gateway(), edge_route("app", {"backendRefs": [backend], "retry": retry(3)}))
    address = site.accepted("app")
    assert received(site, address, "/", far.backends["v1"], [RESET] * 2) == (200, 3)
    assert received(site, address, "/", far.backends["v1"], [RESET] * 4) == (503, 4)
