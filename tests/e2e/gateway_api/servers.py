"""Servers for the protocols that tests of the Gateway API need beside HTTP/1.1; each answers with its name."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import grpc
from tests.protocols import FREE_PORT, HasAddress, http2_server, websocket_server
from tests.wire import Address, Network


class GrpcServer(grpc.GenericRpcHandler):
    """A gRPC server that answers every method with its name."""

    def __init__(self, _network: Network, name: str, at: Address = FREE_PORT) -> None:
        self.name = name
        self._server = grpc.server(ThreadPoolExecutor(2), handlers=(self,))
        self.address = Address(at.host, self._server.add_insecure_port(str(at)))
        self._server.start()

    def service(self, _details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        return grpc.unary_unary_rpc_method_handler(lambda _request, _context: self.name.encode())

    def close(self) -> None:
        self._server.stop(None).wait()


class Protocol(NamedTuple):
    """A protocol: the appProtocol of its Services, and how a server with a name starts at an address."""

    app_protocol: str
    start: Callable[[Network, str, Address], HasAddress]


PROTOCOLS: Mapping[str, Protocol] = {
    "h2c": Protocol("kubernetes.io/h2c", http2_server),
    "ws": Protocol("kubernetes.io/ws", websocket_server),
    "grpc": Protocol("kubernetes.io/h2c", GrpcServer),
}
