"""GRPCRoutes with real calls: methods and metadata select backends, and errors are gRPC statuses (R65, D11)."""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from tests.e2e.gateway_api.objects import edge_gateway, gateway_address, gateway_api_object, web_listener
from tests.e2e.manifests import endpoints, service_manifest
from tests.e2e.running_mesh import RunningMesh
from tests.greeter import LIMIT_S, Greeter

GRPC = 9000


@pytest.fixture
def greeters() -> Iterator[tuple[Greeter, Greeter]]:
    found = Greeter("v1"), Greeter("v2")
    yield found
    for greeter in found:
        greeter.close()


def greeter_rule(backend: str, method: str = "", **headers: str) -> Any:
    named = [{"name": name, "value": value} for name, value in headers.items()]
    matches = [{"method": {"service": "Greeter", "method": method}, "headers": named}] if method else []
    return {"matches": matches, "backendRefs": [{"name": backend, "port": GRPC}]}


def test_a_grpc_route_selects_backends_by_method_and_metadata(
    mesh: RunningMesh, namespace: str, greeters: tuple[Greeter, Greeter]
) -> None:
    v1, v2 = greeters
    spec = {
        "parentRefs": [{"name": "edge"}],
        "rules": [
            greeter_rule("greeter-v1"),
            greeter_rule("greeter-v2", "Hello", beta="1"),
            greeter_rule("gone", "Refuse"),
        ],
    }
    mesh.apply(
        service_manifest("greeter-v1", {"grpc": GRPC}),
        endpoints("greeter-v1", {"grpc": [v1]}),
        service_manifest("greeter-v2", {"grpc": GRPC}),
        endpoints("greeter-v2", {"grpc": [v2]}),
        edge_gateway(web_listener("grpc")),
        gateway_api_object("GRPCRoute", "greeter", spec),
        namespace=namespace,
    )
    address = gateway_address(mesh, namespace)
    with grpc.insecure_channel(f"{address.host}:{address.port}") as channel:
        hello = channel.unary_unary("/Greeter/Hello")
        assert hello(b"I am ", timeout=LIMIT_S) == b"I am v1"
        assert hello(b"I am ", timeout=LIMIT_S, metadata=(("beta", "1"),)) == b"I am v2"
        assert list(channel.unary_stream("/Greeter/Count")(b"3", timeout=LIMIT_S)) == [b"0", b"1", b"2"]
        with pytest.raises(grpc.RpcError) as refused:
            channel.unary_unary("/Greeter/Refuse")(b"", timeout=LIMIT_S)
    assert isinstance(refused.value, grpc.Call)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    assert (v1.calls, v2.calls) == (1, 1)
