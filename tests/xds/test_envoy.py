"""Tests of authentication with a real Envoy: which tokens are accepted, and their renewal."""

import asyncio
import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path

import pytest
from tests.ports import free_port
from tests.xds.proxies import NAME, ServerAuthority

from headgate.envoy.bootstrap import XdsAddress, bootstrap, roots_source, token_source
from headgate.envoy.encode import Memo, encode, with_runtime
from headgate.envoy.view import Node, project
from headgate.errors import ProxyError
from headgate.latest import Latest, until
from headgate.model.routing import Endpoint, Endpoints, Frontend, Mesh, PortRef, Route, RouteTable, Split, Target
from headgate.standalone.proxies.envoy_binary import find_envoy
from headgate.standalone.proxies.envoy_process import EnvoyProcess
from headgate.xds import server
from headgate.xds.authentication import InvalidToken, LocalTokens
from headgate.xds.fleet import Fleet
from headgate.xds.server import XdsServer

pytestmark = pytest.mark.e2e

WEB_1, WEB_2 = "sidecar/default/web-1", "sidecar/default/web-2"
REF = PortRef("default/web", 80)
SECRET = bytes(range(32))
DEADLINE_S = 60
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
REQUEST = b"GET / HTTP/1.1\r\nhost: web\r\n\r\n"


class RecordingVerifier:
    """A verifier that records accepted tokens and the errors of rejected ones. It ends streams after `longest` seconds."""

    def __init__(self, tokens, longest):
        self.tokens = tokens
        self.longest = longest
        self.accepted = Latest(())
        self.rejected = Latest(())

    def node_of(self, token):
        return self.tokens.node_of(token)

    async def verify(self, node_id, token, **_origin):
        try:
            ends = await self.tokens.verify(node_id, token)
        except InvalidToken as invalid:
            self.rejected.set((*self.rejected.get(), str(invalid)))
            raise
        self.accepted.set((*self.accepted.get(), token))
        return min(ends, time.time() + self.longest)


class SecretsRig:
    """One Envoy with the node ID web-1, its xDS server, and a backend."""

    def __init__(self, root, *, longest=3600.0):
        self.root = root
        self.tokens = LocalTokens(SECRET)
        self.verifier = RecordingVerifier(self.tokens, longest)
        self.fleet = Fleet()
        self.proxy = self.fleet.expect(WEB_1)
        self.xds = XdsServer(self.fleet, self.verifier)
        self.token = root / "token"
        self.port, self.proxy_port = free_port(), free_port()
        self.envoy = None
        self.backend = None
        self.answering = []

    async def __aenter__(self):
        self.backend = await asyncio.start_server(self.answer, "127.0.0.1", 0)
        self.set_config()
        return self

    async def __aexit__(self, *_):
        if self.envoy:
            await self.envoy.stop()
        await self.xds.stop()
        self.backend.close()
        await asyncio.gather(*self.answering)  # the handlers end when Envoy closes its connections

    async def answer(self, reader, writer):
        self.answering.append(asyncio.current_task())
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(ANSWER)
        await closed(writer)

    def set_config(self):
        ref = PortRef("default/web", self.port)
        address, port = self.backend.sockets[0].getsockname()
        mesh = Mesh(
            domain="cluster.local",
            frontends=(Frontend(service=ref.service, address="127.0.0.1", ports=(ref.port,)),),
            tables=(RouteTable(ref=ref, routes=(Route(split=Split(targets=(Target(ref=REF, weight=1),))),)),),
            endpoints=(Endpoints(ref=REF, ready=(Endpoint(address=address, port=port),)),),
        )
        node = Node(id=WEB_1, proxy_address="127.0.0.1", proxy_port=self.proxy_port)
        self.proxy.config.set(with_runtime(encode(project(mesh, node), Memo()), 0))

    def write(self, name, content):
        """Replace a file atomically, as a mounted Secret is replaced."""
        fresh = self.root / f"{name}.new"
        fresh.write_bytes(content)
        fresh.rename(self.root / name)
        return str(self.root / name)

    async def start(self, *, token=True, **where):
        """Start Envoy; `where` has further arguments of its bootstrap."""
        source = self.write("token.json", token_source(str(self.token))) if token else ""
        admin = self.root / "admin"
        content = bootstrap(node_id=WEB_1, admin_socket=str(admin), token=source, **where)
        self.envoy = EnvoyProcess(find_envoy(os.environ), content, directory=self.root / "envoy", admin=admin)
        await self.envoy.start()

    async def start_at_socket(self, **more):
        await self.xds.start(f"unix:{self.root}/xds")
        await self.start(xds_socket=f"{self.root}/xds", **more)

    async def start_at_address(self, certificate, roots, host="localhost"):
        # The port is free on both addresses of localhost.
        port = await self.xds.start(f"localhost:{free_port()}", certificate)
        self.write("roots.pem", roots.encode())
        source = self.write("roots.json", roots_source(f"{self.root}/roots.pem"))
        await self.start(xds=XdsAddress(host=host, port=port, name=NAME, roots=source))
        return port

    async def settled(self):
        async with asyncio.timeout(DEADLINE_S):
            await until(self.proxy.settled, self.fleet.change_count)
            await self.envoy.ready(DEADLINE_S)

    async def logged(self, text):
        """Wait until Envoy's log has a text."""
        async with asyncio.timeout(DEADLINE_S):
            while text not in self.envoy.log.read_text():
                await asyncio.sleep(0.05)  # there is no event to wait for

    async def counted(self, name):
        """Wait until a counter of Envoy is above zero."""
        async with asyncio.timeout(DEADLINE_S):
            while not await self.count(name):
                await asyncio.sleep(0.05)  # there is no event to wait for

    async def count(self, name):
        with contextlib.suppress(ProxyError):  # Envoy may not listen yet
            stats = await self.envoy.admin.get_json(f"/stats?format=json&filter=^{name}$")
            return next((stat["value"] for stat in stats["stats"] if "value" in stat), 0)

    async def get(self):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(REQUEST)
            status = await reader.readline()
        finally:
            await closed(writer)
        return int(status.split()[1])


async def closed(writer):
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


@pytest.fixture
def root():
    path = Path(tempfile.mkdtemp(prefix="hg-"))  # sockets need short paths
    yield path
    shutil.rmtree(path)


async def test_a_proxy_with_its_own_token_is_served(root):
    async with SecretsRig(root) as rig:
        rig.tokens.write(WEB_1, rig.token)
        await rig.start_at_socket()
        await rig.settled()
        assert await rig.get() == 200
        assert set(rig.verifier.accepted.get()) == {rig.token.read_text()}


@pytest.mark.parametrize(
    ("token", "message"),
    [
        # Envoy opens no stream without a token, and logs why.
        pytest.param("", "Failed to inject credential", id="none"),
        pytest.param("forged", "malformed", id="forged"),
        pytest.param(LocalTokens(bytes(32)).issue(WEB_1), "not signed by this headgate", id="another headgate's"),
        pytest.param(LocalTokens(SECRET, clock=lambda: 1e9).issue(WEB_1), "expired at 2001-09-09", id="expired"),
        pytest.param(LocalTokens(SECRET).issue(WEB_2), f"the token belongs to {WEB_2}, not to {WEB_1}", id="another's"),
    ],
)
async def test_a_proxy_with_an_invalid_token_is_rejected_until_its_file_has_a_valid_one(root, token, message):
    async with SecretsRig(root) as rig:
        rig.write("token", token.encode())
        await rig.start_at_socket()
        await rig.logged(message)
        assert rig.fleet.connected() == []
        rig.tokens.write(WEB_1, rig.token)
        await rig.settled()
        assert await rig.get() == 200


async def test_a_proxy_without_a_token_file_is_rejected(root):
    async with SecretsRig(root) as rig:
        await rig.start_at_socket(token=False)
        await rig.logged("no token: send")
        assert rig.fleet.connected() == []


async def test_while_streams_end_with_their_tokens_no_request_fails_and_no_resource_is_sent(root, monkeypatch):
    """The token in the file is valid for longer, as a busy machine may use it late."""
    monkeypatch.setattr(server, "REPORT_SECONDS", DEADLINE_S)  # Envoy may report late; then an empty response follows
    async with SecretsRig(root, longest=1.0) as rig:
        rig.tokens.write(WEB_1, rig.token)
        statuses, enough = [], asyncio.Event()

        async def load():
            while not enough.is_set():
                statuses.append(await rig.get())

        await rig.start_at_socket()
        await rig.settled()
        acks = rig.fleet.counts["acks"]
        loading = asyncio.create_task(load())
        async with asyncio.timeout(DEADLINE_S):
            await until(lambda: len(rig.verifier.accepted.get()) > 3, rig.verifier.accepted)
        await rig.settled()
        enough.set()
        await loading
        assert len(statuses) > 10
        assert set(statuses) == {200}
        assert rig.verifier.rejected.get() == ()
        assert rig.fleet.counts["streams"] > 3
        assert rig.fleet.counts["acks"] == acks


async def test_a_proxy_connects_over_tcp_with_tls_and_verifies_the_server(root):
    authority = ServerAuthority()
    async with SecretsRig(root) as rig:
        rig.tokens.write(WEB_1, rig.token)
        await rig.start_at_address(Latest(authority.issue()), authority.roots)
        await rig.settled()
        assert await rig.get() == 200


async def test_a_proxy_sends_no_token_to_a_server_with_another_name(root):
    authority = ServerAuthority()
    certificate = Latest(authority.issue("other.headgate-system.svc"))
    async with SecretsRig(root) as rig:
        rig.tokens.write(WEB_1, rig.token)
        await rig.start_at_address(certificate, authority.roots, host="127.0.0.1")
        await rig.counted("cluster.xds.ssl.fail_verify_san")
        assert rig.verifier.accepted.get() == rig.verifier.rejected.get() == ()
        certificate.set(authority.issue())  # Envoy connects once the certificate has the right name
        await rig.settled()
        assert await rig.get() == 200


async def test_a_running_proxy_accepts_a_new_root_of_the_server(root):
    old, new = ServerAuthority(), ServerAuthority()
    certificate = Latest(old.issue())
    async with SecretsRig(root) as rig:
        rig.tokens.write(WEB_1, rig.token)
        port = await rig.start_at_address(certificate, old.roots)
        await rig.settled()
        rig.write("roots.pem", (old.roots + new.roots).encode())
        certificate.set(new.issue())
        await rig.xds.stop()
        rig.xds = XdsServer(rig.fleet, rig.verifier)
        await rig.xds.start(f"localhost:{port}", certificate)
        await rig.settled()
        assert await rig.get() == 200
