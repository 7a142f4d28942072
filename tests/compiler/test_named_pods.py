"""Splits and routes of TCP ports do not route transparent clients that call pods with names (D37)."""

import pytest
from tests.make.objects import (
    GATEWAY_ROUTE,
    Object,
    backend_ref,
    endpoint,
    endpoint_slice,
    obj,
    port,
    service,
    service_parent,
    split,
)
from tests.make.values import compiled, findings

from headgate.compiler.reasons import Reason

SPLIT = split("db", {"db-2": 1})
ROUTE = obj(
    "TCPRoute",
    "db",
    version=GATEWAY_ROUTE,
    spec={"parentRefs": [service_parent("db")], "rules": [{"backendRefs": [backend_ref("db-2", 5432)]}]},
)


def noted(
    routed: Object, *, app: str = "tcp", hostname: str = "db-0", cluster_ip: str = "None"
) -> list[tuple[str, str]]:
    """Return the kind and the field of each object with a finding."""
    result = compiled(
        service("db", port(5432, "main", app=app), clusterIP=cluster_ip),
        service("db-2", port(5432, "main", app=app)),
        endpoint_slice(
            "db", [endpoint("10.0.0.1", "db-0", **({"hostname": hostname} if hostname else {}))], {"main": 5432}
        ),
        endpoint_slice("db-2", ["10.0.0.2"], {"main": 5432}),
        routed,
    )
    return [(item.about.kind, item.field) for item in findings(result, Reason.NOT_ROUTED)]


def test_a_split_and_a_route_of_pods_with_names_have_a_finding() -> None:
    assert noted(SPLIT) == [("TrafficSplit", "spec.service")]
    assert noted(ROUTE) == [("TCPRoute", "spec.parentRefs")]


@pytest.mark.parametrize("more", [{"app": "http"}, {"hostname": ""}, {"cluster_ip": "10.96.0.9"}])
def test_requests_pods_without_names_and_services_with_an_address_are_routed(more: dict[str, str]) -> None:
    assert noted(SPLIT, **more) == []
