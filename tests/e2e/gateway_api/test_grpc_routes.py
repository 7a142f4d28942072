"""GRPCRoutes of Gateways: what the conformance suite tests for the feature GRPCRoute."""

from collections.abc import Mapping
from typing import Any

import grpc
import pytest
from tests.e2e.gateway_api.hosts import NAMES
from tests.e2e.gateway_api.objects import edge_gateway, edge_route, fields, rule_of, web_listener
from tests.e2e.gateway_api.servers import call_repeatedly
from tests.e2e.gateway_api.site import Site, assert_shares
from tests.wire import Address

PORT, LIMIT_S = 9000, 60.0


@pytest.fixture
def callee(site: Site) -> Site:
    """Return a namespace with the gRPC Services grpc-v1, grpc-v2 and grpc-v3."""
    for name in NAMES:
        site.start("grpc", f"grpc-{name}", port=PORT)
    return site


def calls(*backends: str, **more: Any) -> Mapping[str, Any]:
    return rule_of(*(f"grpc-{backend}" for backend in backends), port=PORT, **more)


def call(address: Address, *, method: str = "/Echo/One", authority: str = "", **metadata: str) -> str:
    """Call a method; return the name of the server, or the status of the failure."""
    options = [("grpc.default_authority", authority)] if authority else []
    with grpc.insecure_channel(f"{address.host}:{address.port}", options) as channel:
        sent = tuple((name.replace("_", "-"), value) for name, value in metadata.items())
        try:
            answer: bytes = channel.unary_unary(method)(b"", timeout=LIMIT_S, metadata=sent)
        except grpc.RpcError as error:
            return str(error.code().name)  # the error of a call is also a grpc.Call, which has `code`
        return answer.decode().removeprefix("grpc-")


def grpc_route(name: str, *rules: Mapping[str, Any], **more: Any) -> str:
    return edge_route(name, *rules, kind="GRPCRoute", **more)


@pytest.mark.conformance("GRPCExactMethodMatching", "GRPCRouteNamedRule")
def test_methods_of_calls(callee: Site) -> None:
    def exactly(method: str) -> Mapping[str, Any]:
        return {"matches": [{"method": {"service": "Echo", "method": method}}]}

    callee.apply(
        edge_gateway(), grpc_route("app", calls("v1", **exactly("One"), name="named"), calls("v2", **exactly("Two")))
    )
    address = callee.accepted("grpcroute/app")
    expected = {"/Echo/One": "v1", "/Echo/Two": "v2", "/Echo/Three": "UNIMPLEMENTED"}
    assert {method: call(address, method=method) for method in expected} == expected


@pytest.mark.conformance("GRPCRouteHeaderMatching")
def test_metadata(callee: Site) -> None:
    def matches(*wanted: Mapping[str, str]) -> Mapping[str, Any]:
        return {"matches": [{"headers": fields(**metadata)} for metadata in wanted]}

    callee.apply(
        edge_gateway(),
        grpc_route(
            "app",
            calls("v1", **matches({"version": "one"})),
            calls("v2", **matches({"version": "two"})),
            calls("v1", **matches({"version": "two", "color": "orange"})),
            calls("v1", **matches({"color": "blue"}, {"color": "green"})),
            calls("v2", **matches({"color": "red"}, {"color": "yellow"})),
        ),
    )
    address = callee.accepted("grpcroute/app")
    expected = [
        ({"version": "one"}, "v1"),
        ({"version": "two"}, "v2"),
        ({"version": "two", "color": "orange"}, "v1"),
        ({"version": "two", "color": "blue"}, "v2"),
        ({"color": "orange"}, "UNIMPLEMENTED"),
        ({"other": "one"}, "UNIMPLEMENTED"),
        ({"color": "blue"}, "v1"),
        ({"color": "green"}, "v1"),
        ({"color": "red"}, "v2"),
        ({"color": "yellow"}, "v2"),
        ({"color": "purple"}, "UNIMPLEMENTED"),
    ]
    assert [(metadata, call(address, **metadata)) for metadata, _ in expected] == expected


@pytest.mark.conformance("GRPCRouteListenerHostnameMatching")
def test_the_hostname_of_a_listener_selects_its_grpc_routes(callee: Site) -> None:
    hostnames = {"one": "bar.com", "two": "foo.bar.com", "three": "*.bar.com", "four": "*.foo.com"}
    backends = {"one": "v1", "two": "v2", "three": "v3", "four": "v3"}
    callee.apply(
        edge_gateway(*(web_listener(name, hostname) for name, hostname in hostnames.items())),
        *(grpc_route(name, calls(backend), parent={"sectionName": name}) for name, backend in backends.items()),
    )
    address = callee.accepted(*(f"grpcroute/{name}" for name in hostnames))
    expected = {
        "bar.com": "v1",
        "foo.bar.com": "v2",
        "baz.bar.com": "v3",
        "multiple.prefixes.bar.com": "v3",
        "multiple.prefixes.foo.com": "v3",
        "foo.com": "UNIMPLEMENTED",
        "no.matching.host": "UNIMPLEMENTED",
    }
    assert {host: call(address, authority=host) for host in expected} == expected


@pytest.mark.conformance("GRPCRouteWeight")
def test_weights_of_calls(callee: Site) -> None:
    callee.apply(edge_gateway(), grpc_route("app", calls("v1:70", "v2:30", "v3:0")))
    address = callee.accepted("grpcroute/app")
    assert_shares(call_repeatedly(address, 200), {"grpc-v1": 140, "grpc-v2": 60})
