"""A gRPC server in the test's process."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
from tests.wire import Address

LIMIT_S = 60.0
METADATA_BYTES = 2**20  # as much as a proxy forwards (docs/tasks/protocols.md)


class Greeter:
    """A gRPC server whose messages are bytes; it counts its calls and sends its name, and metadata `returned`, in trailers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls = 0
        self.left: list[float] = []
        self._server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.absolute_max_metadata_size", METADATA_BYTES)])
        methods = {
            "Hello": grpc.unary_unary_rpc_method_handler(self.hello),
            "Count": grpc.unary_stream_rpc_method_handler(self.count),
            "Echo": grpc.stream_stream_rpc_method_handler(self.echo),
            "Refuse": grpc.unary_unary_rpc_method_handler(self.refuse),
            "Wait": grpc.unary_unary_rpc_method_handler(self.wait),
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Greeter", methods),))
        self.address = Address("127.0.0.1", self._server.add_insecure_port("127.0.0.1:0"))
        self._server.start()

    def hello(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        self.calls += 1
        returned = [(key, value) for key, value in context.invocation_metadata() if key == "returned"]
        context.set_trailing_metadata((("served-by", self.name), *returned))
        return request + self.name.encode()

    def count(self, request: bytes, _context: grpc.ServicerContext) -> Iterator[bytes]:
        yield from (str(number).encode() for number in range(int(request)))

    def echo(self, requests: Iterator[bytes], _context: grpc.ServicerContext) -> Iterator[bytes]:
        yield from requests

    def refuse(self, _request: bytes, context: grpc.ServicerContext) -> None:
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not today")

    def wait(self, _request: bytes, context: grpc.ServicerContext) -> bytes:
        self.left.append(context.time_remaining())
        over = threading.Event()
        if context.add_callback(over.set):
            over.wait(LIMIT_S)
        return b""

    def close(self) -> None:
        self._server.stop(None).wait(LIMIT_S)
