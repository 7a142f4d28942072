"""HTTPS servers behind Gateways, and the objects that make a Gateway call them over TLS."""

import ssl
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
from tests.authority import Authority
from tests.e2e.gateway_api.objects import gateway_api_object
from tests.make.objects import manifest, obj
from tests.make.server_certificates import Pair
from tests.protocols import FREE_PORT, Stream, TcpServer
from tests.wire import Address, Network

HOST = "abc.example.com"
URI = "spiffe://abc.example.com/test-identity"
PORT_NAME = "btls"
TRUSTED, OTHER = Authority("trusted"), Authority("other")


def issued(*names: str, uri: str = "") -> Pair:
    """Return a certificate of the trusted CA with DNS names and a URI."""
    credential = TRUSTED.issue(uri, *names)
    return Pair(credential.chain, credential.key.reveal())


def server_context(pair: Pair, *, client_roots: str = "") -> ssl.SSLContext:
    """Return a server's context for a certificate; with `client_roots`, clients must have a certificate of that CA."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with TemporaryDirectory() as directory:
        chain, key = Path(directory, "chain.pem"), Path(directory, "key.pem")
        chain.write_text(pair.chain)
        key.write_text(pair.key)
        context.load_cert_chain(chain, key)
    if client_roots:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=client_roots)
    return context


class HttpsServer(TcpServer):
    """An HTTPS server; each response has the server name (SNI) of the connection, and the name in the client's certificate.

    Each connection has one request, so that the next one shows new certificates.
    """

    def __init__(self, network: Network, *more_names: str, client_roots: str = "", at: Address = FREE_PORT) -> None:
        self.answered = 0
        self._server_names: dict[Any, str] = {}
        context = server_context(issued(HOST, *more_names, uri=URI), client_roots=client_roots)
        context.sni_callback = self._note
        super().__init__(network, self._answer, context, at)

    def _note(self, connection: Any, server_name: str | None, _context: ssl.SSLContext) -> None:
        self._server_names[connection] = server_name or ""

    async def _answer(self, stream: Stream) -> None:
        reader, writer = stream
        connection = writer.get_extra_info("ssl_object")
        shown = connection.getpeercert() or {}
        client = next((name for _, name in shown.get("subjectAltName", ())), "none")
        body = f"{self._server_names[connection]} {client}".encode()
        await reader.readuntil(b"\r\n\r\n")
        self.answered += 1
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))


class SecureGrpcServer:
    """A gRPC server over TLS that answers every method."""

    def __init__(self) -> None:
        pair = issued(HOST)
        handler = grpc.method_handlers_generic_handler(
            "Echo", {"One": grpc.unary_unary_rpc_method_handler(_answer_call)}
        )
        self._server = grpc.server(ThreadPoolExecutor(2), handlers=(handler,))
        credentials = grpc.ssl_server_credentials([(pair.key.encode(), pair.chain.encode())])
        self.address = Address("127.0.0.1", self._server.add_secure_port("127.0.0.1:0", credentials))
        self._server.start()

    def close(self) -> None:
        """Stop the server."""
        self._server.stop(None).wait()


def _answer_call(_request: bytes, _context: grpc.ServicerContext) -> bytes:
    return b"secured"


def ca_config(name: str = "ca", text: str = TRUSTED.pem) -> str:
    """Return a ConfigMap with CA certificates."""
    return manifest(obj("ConfigMap", name, namespace="", data={"ca.crt": text}))


def tls_policy(name: str, service: str, *, port: str = "", host: str = HOST, **validation: Any) -> str:
    """Return a BackendTLSPolicy for a Service or its port with the name `port`; `validation` replaces or adds fields."""
    target = {"group": "", "kind": "Service", "name": service, **({"sectionName": port} if port else {})}
    refs = {"caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "ca"}]}
    checks = {"hostname": host, **({} if "wellKnownCACertificates" in validation else refs), **validation}
    return gateway_api_object("BackendTLSPolicy", name, {"targetRefs": [target], "validation": checks})
