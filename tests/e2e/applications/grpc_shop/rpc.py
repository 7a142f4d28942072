"""gRPC for the programs of the shop: messages are JSON, and each server has the health service of gRPC."""

import json
import signal
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

PATIENCE_S = 60
SERVING = b"\x08\x01"  # HealthCheckResponse{status: SERVING}
Method = Callable[[Any, grpc.ServicerContext], Any]


def serve(port: int, service: str, methods: Mapping[str, Method]) -> None:
    """Serve the methods of a service at a port of all addresses until SIGTERM."""
    server = grpc.server(ThreadPoolExecutor(4))
    encoded = {
        name: grpc.unary_unary_rpc_method_handler(method, json.loads, lambda answer: json.dumps(answer).encode())
        for name, method in methods.items()
    }
    check = grpc.unary_unary_rpc_method_handler(lambda request, context: SERVING)
    server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler(service, encoded),
            grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": check}),
        )
    )
    server.add_insecure_port(f"0.0.0.0:{port}")
    signal.signal(signal.SIGTERM, lambda *_: server.stop(5))
    server.start()
    server.wait_for_termination()


class Stub:
    """A client of a service. It connects at the first call."""

    def __init__(self, target: str, service: str) -> None:
        self._channel = grpc.insecure_channel(target)
        self._service = service

    def call(self, method: str, request: Any) -> Any:
        """Call a method. Raises grpc.RpcError."""
        unary = self._channel.unary_unary(
            f"/{self._service}/{method}", lambda sent: json.dumps(sent).encode(), json.loads
        )
        return unary(request, timeout=PATIENCE_S, wait_for_ready=True)
