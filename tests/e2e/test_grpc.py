"""gRPC through the proxy: calls, streams, trailers and deadlines (R65)."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from tests.e2e.manifests import protocol_service, split_manifest
from tests.e2e.running_mesh import RunningMesh
from tests.greeter import LIMIT_S, METADATA_BYTES, Greeter
from tests.wire import Address

PORT = 9000


@pytest.fixture
def greeters() -> Iterator[tuple[Greeter, Greeter]]:
    found = Greeter("v1"), Greeter("v2")
    yield found
    for greeter in found:
        greeter.close()


@pytest.fixture
def split_greeters(mesh: RunningMesh, namespace: str, greeters: tuple[Greeter, Greeter]) -> Address:
    """Create a Service that is split 3 to 1; return its address."""
    v1, v2 = greeters
    mesh.apply(
        protocol_service("greeter", app="grpc", port=PORT),
        protocol_service("greeter-v1", v1, app="grpc", port=PORT),
        protocol_service("greeter-v2", v2, port=PORT),  # a backend without appProtocol uses the root's
        split_manifest("greeter", "greeter", {"greeter-v1": 3, "greeter-v2": 1}),
        namespace=namespace,
    )
    return mesh.address("greeter", PORT, namespace)


def channel(address: Address, **options: Any) -> grpc.Channel:
    named = [(f"grpc.{name}", value) for name, value in {"enable_http_proxy": 0, **options}.items()]
    return grpc.insecure_channel(str(address), options=named)


def hello(calls: grpc.Channel, times: int) -> Counter[str]:
    """Call Hello; return the number of answers by server, according to the trailers."""
    method = calls.unary_unary("/Greeter/Hello")
    answers = [method.with_call(b"I am ", timeout=LIMIT_S) for _ in range(times)]
    names = [dict(call.trailing_metadata())["served-by"] for _, call in answers]
    assert [body.decode() for body, _ in answers] == [f"I am {name}" for name in names]
    return Counter(names)


def test_the_proxy_splits_calls_of_one_client_connection_by_weight(
    split_greeters: Address, greeters: tuple[Greeter, Greeter]
) -> None:
    """R7: weights apply to calls, not to connections."""
    with channel(split_greeters) as calls:
        assert hello(calls, 40) == {"v1": 30, "v2": 10}
    assert [greeter.calls for greeter in greeters] == [30, 10]


def test_streams_pass_the_proxy_in_both_directions(split_greeters: Address) -> None:
    with channel(split_greeters) as calls:
        counted = calls.unary_stream("/Greeter/Count")(b"500", timeout=LIMIT_S)
        assert [int(item) for item in counted] == list(range(500))
        sent = [str(number).encode() * 100 for number in range(100)]
        assert list(calls.stream_stream("/Greeter/Echo")(iter(sent), timeout=LIMIT_S)) == sent


@pytest.mark.parametrize("lengths", [[250_000], [10_000] * 50], ids=["one", "many"])
def test_large_metadata_pass_both_ways(split_greeters: Address, lengths: list[int]) -> None:
    """With Envoy's defaults, they end the whole connection, with all its calls, by GOAWAY."""
    sent = [("returned", "m" * length) for length in lengths]
    with channel(split_greeters, absolute_max_metadata_size=METADATA_BYTES) as calls:
        _, call = calls.unary_unary("/Greeter/Hello").with_call(b"I am ", timeout=LIMIT_S, metadata=sent)
    assert [(key, value) for key, value in call.trailing_metadata() if key == "returned"] == sent


def test_the_client_gets_the_grpc_status_of_the_server(split_greeters: Address) -> None:
    with channel(split_greeters) as calls, pytest.raises(grpc.RpcError) as raised:
        calls.unary_unary("/Greeter/Refuse")(b"", timeout=LIMIT_S)
    assert raised.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert raised.value.details() == "not today"


def test_the_server_gets_the_clients_deadline_which_ends_the_call(
    split_greeters: Address, greeters: tuple[Greeter, Greeter]
) -> None:
    limits = [0.5 * 2**number for number in range(8)]  # seconds; on a busy machine a call may end before it arrives
    with channel(split_greeters) as calls:
        for limit in limits:
            with pytest.raises(grpc.RpcError) as raised:
                calls.unary_unary("/Greeter/Wait")(b"", timeout=limit)
            assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            if found := [left for greeter in greeters for left in greeter.left]:
                break
    assert 0 < found[0] <= limit


def test_a_call_without_an_endpoint_is_unavailable(mesh: RunningMesh, namespace: str) -> None:
    mesh.apply(protocol_service("greeter", app="grpc", port=PORT), namespace=namespace)
    with channel(mesh.address("greeter", PORT, namespace)) as calls, pytest.raises(grpc.RpcError) as raised:
        calls.unary_unary("/Greeter/Hello")(b"", timeout=LIMIT_S)
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE


def test_the_proxy_splits_calls_inside_a_connect_tunnel_by_weight(
    mesh: RunningMesh, namespace: str, split_greeters: Address, greeters: tuple[Greeter, Greeter]
) -> None:
    """gRPC clients use an HTTP proxy by CONNECT."""
    target = Address(f"greeter.{namespace}", PORT)
    with channel(target, enable_http_proxy=1, http_proxy=f"http://{mesh.proxy}") as calls:
        assert hello(calls, 40) == {"v1": 30, "v2": 10}
    assert [greeter.calls for greeter in greeters] == [30, 10]
