"""Servers for the protocols that tests of the Gateway API need beside HTTP/1.1, which answer with their names; calls over gRPC."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol

import grpc
from tests.protocols import FREE_PORT, HasAddress, http2_server, plain_server, tls_server, websocket_server
from tests.wire import DEADLINE_S, Address, Network


class GrpcServer(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
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


class AuthServer(GrpcServer):
    """Envoy's ext_authz over gRPC: it allows the requests in which it finds its name, and adds a header to them."""

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        assert details.method == "/envoy.service.auth.v3.Authorization/Check"
        return grpc.unary_unary_rpc_method_handler(self._check)

    def _check(self, request: bytes, _context: object) -> bytes:
        if self.name.encode() not in request:
            return _field(1, b"\x08\x07")  # CheckResponse.status.code: PERMISSION_DENIED
        header = _field(1, b"x-allowed-by") + _field(2, self.name.encode())
        return _field(3, _field(2, _field(1, header)))  # ok_response.headers[0].header


class NamedDatagrams(asyncio.DatagramProtocol):
    """A server that answers datagrams with its name."""

    _transport: asyncio.DatagramTransport

    def __init__(self, network: Network, name: str, at: Address = FREE_PORT) -> None:
        self._name = name.encode()
        network.run(self._listen(at))
        self.address = Address(*self._transport.get_extra_info("sockname"))

    async def _listen(self, at: Address) -> None:
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(lambda: self, local_addr=at)

    def datagram_received(self, _data: bytes, addr: tuple[str, int]) -> None:
        self._transport.sendto(self._name, addr)


def _field(number: int, content: bytes) -> bytes:
    """Return a field of a message that has bytes, a text or a message, shorter than 128 bytes."""
    return bytes([number << 3 | 2, len(content)]) + content


def call_repeatedly(address: Address, count: int) -> Counter[str]:
    """Call a gRPC method over one connection; return how often each server answered."""
    with grpc.insecure_channel(str(address)) as channel:
        echo = channel.unary_unary("/Echo/One")
        return Counter(echo(b"", timeout=DEADLINE_S).decode() for _ in range(count))


class StartServer(Protocol):
    """Start a server with a name at an address."""

    def __call__(self, network: Network, name: str, at: Address = FREE_PORT, /) -> HasAddress: ...


class AppProtocol(NamedTuple):
    """A protocol: the appProtocol of its Services, and the start of its servers."""

    app_protocol: str
    start: StartServer


PROTOCOLS: Mapping[str, AppProtocol] = {
    "h2c": AppProtocol("kubernetes.io/h2c", http2_server),
    "ws": AppProtocol("kubernetes.io/ws", websocket_server),
    "grpc": AppProtocol("kubernetes.io/h2c", GrpcServer),
    "auth": AppProtocol("kubernetes.io/h2c", AuthServer),
    "plain": AppProtocol("tcp-server-first", plain_server),
    "tls": AppProtocol("tls", tls_server),
    "datagrams": AppProtocol("", NamedDatagrams),
}
