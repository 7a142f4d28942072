"""The lines of `kubectl traffic tap`: a failure at the client leads to the proxy that has its flag."""

from typing import Any

import pytest

from headgate.cli.traffic.tap import format_event

ROUTE = "route: the Service itself (no route)"
LEAD = f"{ROUTE}; sent by the server or its proxy: `kubectl traffic tap pod/web-1 -n shop` shows the flag"


def peer(**fields: Any) -> dict[str, Any]:
    return {"pod": "", "service": "", "port": 0, "identity": "", "address": ""} | fields


def event(status: int, *flags: str, details: str = "via_upstream", **fields: Any) -> dict[str, Any]:
    """Return the event of a request from a client's proxy to the pod shop/web-1."""
    return {
        "startTime": "2026-01-01T00:00:00.250Z",
        "side": "Client",
        "request": {"method": "GET", "authority": "web:8080", "path": "/", "headers": {}},
        "response": {"status": status, "flags": list(flags), "details": details, "grpcStatus": ""},
        "source": peer(pod="shop/buyer-1"),
        "destination": peer(pod="shop/web-1", port=8080),
        "latencyMicroseconds": 1500,
        "secured": True,
        "route": None,
        "access": None,
    } | fields


@pytest.mark.parametrize("failed", [event(503), event(503, "URX"), event(504)])
def test_a_failure_that_a_server_behind_a_proxy_sent_leads_to_the_flag(failed: dict[str, Any]) -> None:
    assert format_event(failed, "shop").endswith(LEAD)


@pytest.mark.parametrize(
    ("other", "ending"),
    [
        (event(200), ROUTE),
        (event(404), ROUTE),
        (event(503, "UH", details="no_healthy_upstream", destination=peer(service="shop/web", port=8080)), ROUTE),
        (event(503, secured=False), ROUTE),
        (event(403, access={"allowed": False, "object": None, "rule": ""}), "denied by the access rules of the server"),
        (event(401, "UAEX", details="ext_authz_denied"), "denied by the authorization server (ExternalAuth)"),
        (
            event(403, "UAEX", details="ext_authz_denied", access={"allowed": False, "object": None, "rule": ""}),
            "denied by the access rules of the authorization server",
        ),
        (
            event(403, "UAEX", details="ext_authz_error"),
            "denied, as the authorization server (ExternalAuth) made no decision",
        ),
    ],
)
def test_other_lines_have_the_whole_cause_or_no_proxy_that_knows_it(other: dict[str, Any], ending: str) -> None:
    assert format_event(other, "shop").endswith(ending)


def test_an_event_of_an_older_headgate_leads_nowhere() -> None:
    old = {name: value for name, value in event(503).items() if name != "secured"}
    assert format_event(old).endswith(ROUTE)
