"""The self-signed certificate of the embedded API."""

import asyncio
import ssl
from pathlib import Path

import pytest
from tests.stream_server import stream_server

from headgate.api.certificate import certificate_in, self_signed


async def test_openssl_verifies_the_certificate_for_loopback_names(tmp_path: Path) -> None:
    certificate = certificate_in(tmp_path)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate.path, certificate.key_path)
    client = ssl.create_default_context(cadata=certificate.pem.decode())
    client.verify_flags |= ssl.VERIFY_X509_STRICT

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        await writer.drain()

    async with stream_server(greet, ssl=server) as listener:
        port = listener.sockets[0].getsockname()[1]
        for name in ("127.0.0.1", "localhost"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client, server_hostname=name)
            assert await reader.read() == b"hello"
            writer.close()


def test_the_certificate_is_reused_and_its_key_is_private(tmp_path: Path) -> None:
    first = certificate_in(tmp_path)
    assert certificate_in(tmp_path) == first
    assert first.key_path.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["api.crt", "api.key"]


def test_each_certificate_has_a_key_of_its_own() -> None:
    assert len({self_signed()[1] for _ in range(3)}) == 3


@pytest.mark.parametrize("name", ["api.crt", "api.key"])
@pytest.mark.parametrize("content", [b"", b"garbage", self_signed()[0], self_signed()[1]])
def test_a_damaged_certificate_is_replaced_with_a_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, content: bytes
) -> None:
    certificate_in(tmp_path)
    (tmp_path / name).write_bytes(content)
    replaced = certificate_in(tmp_path)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(replaced.path, replaced.key_path)
    (message,) = caplog.messages
    assert message.startswith(f"{tmp_path}/api.crt and api.key are no certificate with its private key (")
    assert certificate_in(tmp_path) == replaced
