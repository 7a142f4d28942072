"""gRPC through two transparent sidecars; relays connect the sockets of the gRPC library to the pods."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from tests.make.objects import http_route_group, http_rule, traffic_target
from tests.netns.objects import ALL_STRICT, GRPC
from tests.netns.traffic import Relay

PATIENCE_S = 60


def echo(asked, _context):
    yield from asked


@pytest.fixture(scope="module")
def server(lab, tmp_path_factory):
    path = tmp_path_factory.mktemp("grpc") / "server"
    found = grpc.server(ThreadPoolExecutor(4))
    methods = {
        "Hello": grpc.unary_unary_rpc_method_handler(lambda asked, _: b"hello " + asked),
        "Echo": grpc.stream_stream_rpc_method_handler(echo),
    }
    found.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Greeter", methods),))
    found.add_insecure_port(f"unix:{path}")
    found.start()
    relay = lab.run(Relay("grpc").forward_to_socket(lab.members["one"], GRPC.port, str(path)))
    yield found
    lab.run(relay.close())
    found.stop(None).wait(PATIENCE_S)


@pytest.fixture
def channel(lab, server, tmp_path):
    """Return a function that opens a channel from a pod."""
    with contextlib.ExitStack() as kept:

        def make(name):
            path = str(tmp_path / name)
            relay = lab.run(Relay(name).forward_from_socket(path, lab.members[name], GRPC))
            kept.callback(lambda: lab.run(relay.close()))
            return kept.enter_context(grpc.insecure_channel(f"unix:{path}"))

        yield make


def hello(channel):
    return channel.unary_unary("/Greeter/Hello")(b"you", timeout=PATIENCE_S)


@pytest.mark.parametrize("tls_mode", ["permissive", "strict"])
def test_unary_calls_and_streams_pass_both_sidecars(lab, services, channel, tls_mode):
    lab.serve(*services, *(ALL_STRICT if tls_mode == "strict" else []))
    client = channel("client")
    assert hello(client) == b"hello you"
    answers = client.stream_stream("/Greeter/Echo")(iter([b"1", b"2", b"3"]), timeout=PATIENCE_S)
    assert list(answers) == [b"1", b"2", b"3"]


def test_a_denied_call_fails_with_permission_denied(lab, services, channel):
    only = http_route_group("hello", {"hello": {"methods": ["POST"], "pathRegex": "/Greeter/Hello"}})
    lab.serve(*services, only, traffic_target("grpc", "web", ["client"], [http_rule("hello")]))
    client = channel("client")
    assert hello(client) == b"hello you"
    with pytest.raises(grpc.RpcError) as refused:
        list(client.stream_stream("/Greeter/Echo")(iter([b"1"]), timeout=PATIENCE_S))
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    with pytest.raises(grpc.RpcError) as refused:
        hello(channel("stranger"))
    assert refused.value.code() in {grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAVAILABLE}
