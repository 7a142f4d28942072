"""Clients of delta ADS over gRPC, and certificates for the xDS server."""

import asyncio
import contextlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import grpc
import grpc.aio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from headgate.envoy import pb
from headgate.envoy.config import CLUSTER
from headgate.model.identities import Credential, PrivateText
from headgate.xds.server import METHOD

NAME = "headgate.headgate-system.svc"
DEADLINE_S = 60


class Proxy:
    """One stream to `address`, with TLS if `roots` (PEM) are given. `token` is sent in its headers."""

    def __init__(self, address: str, node: str, token: str = "", *, roots: str = "", name: str = NAME) -> None:
        self.node = node
        self._metadata = [("authorization", f"Bearer {token}")] if token else []
        options = [("grpc.ssl_target_name_override", name), ("grpc.use_local_subchannel_pool", 1)]
        if roots:
            credentials = grpc.ssl_channel_credentials(roots.encode())
            self._channel = grpc.aio.secure_channel(address, credentials, options)
        else:
            self._channel = grpc.aio.insecure_channel(address, options)
        self._call: Any = None

    async def __aenter__(self) -> Self:
        self._call = self._channel.stream_stream(METHOD)(metadata=self._metadata)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._call.cancel()
        await self._channel.close()

    async def request(self, type_url: str = CLUSTER, *, initial: Mapping[str, str] | None = None) -> None:
        """Subscribe to all resources of a type."""
        request = pb.DeltaDiscoveryRequest(
            node=pb.Node(id=self.node), type_url=type_url, initial_resource_versions=initial or {}
        )
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # `ended` returns the status
            await self._call.write(request.SerializeToString())

    async def receive(self) -> pb.DeltaDiscoveryResponse:
        """Return the next response."""
        async with asyncio.timeout(DEADLINE_S):
            data = await self._call.read()
        assert data is not grpc.aio.EOF, await self._call.details()
        return pb.DeltaDiscoveryResponse.FromString(data)

    async def ended(self) -> tuple[grpc.StatusCode, str]:
        """Wait for the end of the stream, without a response before it; return the status code and message."""
        async with asyncio.timeout(DEADLINE_S):
            with contextlib.suppress(grpc.aio.AioRpcError):
                assert await self._call.read() is grpc.aio.EOF
            return await self._call.code(), await self._call.details()


def rejection(address: str, node: str, token: str = "") -> tuple[grpc.StatusCode, str]:
    """Open a stream and send a request; return the status code and message with which the server ends the stream.

    The server may end it before the request. gRPC's asyncio client would then report its own failed write instead.
    """
    request = pb.DeltaDiscoveryRequest(node=pb.Node(id=node), type_url=CLUSTER).SerializeToString()
    metadata = [("authorization", f"Bearer {token}")] if token else []
    with grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        call = channel.stream_stream(METHOD)(iter([request]), metadata=metadata, timeout=DEADLINE_S)
        with contextlib.suppress(grpc.RpcError):
            assert not list(call)
        return call.code(), call.details()


class ServerAuthority:
    """A certificate authority for servers."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        serial = x509.random_serial_number()  # each root needs a name of its own
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"root {serial}")])
        certificate = self._certificate(self._name, self._key.public_key())
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        self.roots = _pem(certificate.add_extension(constraints, critical=True).sign(self._key, hashes.SHA256()))

    def issue(self, name: str = NAME) -> Credential:
        """Return a certificate for a DNS name."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "server")])
        names = x509.SubjectAlternativeName([x509.DNSName(name)])
        certificate = self._certificate(subject, key.public_key()).add_extension(names, critical=False)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return Credential(
            chain=_pem(certificate.sign(self._key, hashes.SHA256())),
            key=PrivateText(private.decode()),
            roots=self.roots,
        )

    def _certificate(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
        )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
