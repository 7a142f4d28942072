"""The inbound side of a sidecar: a real Envoy on loopback, a certificate authority, and callers."""

import asyncio
import itertools
import ssl
from collections.abc import Iterable, Mapping
from typing import Any

from tests.authority import DOMAIN, TRUST_DOMAIN, WEB, Authority
from tests.envoy.rig import ADDRESS, EnvoyRig
from tests.waiting import until
from tests.wire import (
    DEADLINE_S,
    H2_LARGE_WINDOW,
    H2_PREFACE,
    H2_SETTINGS,
    Address,
    Answer,
    Client,
    Network,
    Request,
    _h2_answer,
    listens,
)

from headgate.envoy import inbound, secrets
from headgate.envoy.config import CLUSTER, ENDPOINTS, LISTENER, ROUTES, SCOPES, SECRET, Encoded, Part
from headgate.envoy.encode import encode_resource
from headgate.model.authorities import server_name
from headgate.model.identities import Credential
from headgate.model.routing import InboundPort, PortProtocol, PortRef, Protocol, Workload


class Caller(Client):
    """A client with one open connection to the sidecar, over TLS if `tls` is set."""

    def __init__(self, network: Network, address: Address, tls: ssl.SSLContext | None = None, name: str = "") -> None:
        super().__init__(Request(address, "/", "web.example"))
        self._network = network
        self._tls = tls
        self._name = name if tls else None

    def get(self, target: str = "/", method: str = "GET", **headers: str) -> Answer:
        """Send one request; return the answer, also for an error."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        text = Request(self._request.address, target, "web.example", named).encoded()
        self._encoded = text.replace(b"GET", method.encode(), 1)
        return self._network.run(self._first())

    async def _first(self) -> Answer:
        try:
            if self._writer is None:
                self._reader, self._writer = await self.open()
            return await self.ask()
        except (OSError, ValueError) as error:
            self.close()
            return Answer(0, type(error).__name__, {})

    def abort(self) -> None:
        """Abort the connection, without a TLS close."""
        if self._writer:
            self._writer.transport.abort()
        self._reader = self._writer = None

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection; return its streams."""
        return await asyncio.open_connection(*self._request.address, ssl=self._tls, server_hostname=self._name)


class InboundRig(EnvoyRig):
    """An explicit sidecar of the pod `default/web-1`. Use it as a context manager.

    `authority` signs the certificates of the mesh.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.authority = Authority()
        self.credential = self.authority.issue(WEB, "web.default.svc", "foo", "bar")
        self.callers: list[Caller] = []
        self._files = (self.root / f"{number}.pem" for number in itertools.count())

    def port(self, application: int, *protocols: Protocol) -> InboundPort:
        """Return a free inbound port in front of an application's port.

        For each protocol, a Service with the protocol's name leads to the port.
        """
        port = self.free().port
        port_protocols = tuple(
            PortProtocol(protocol=protocol, services=(PortRef(f"default/{protocol.value}", port),))
            for protocol in protocols or (Protocol.HTTP,)
        )
        return InboundPort(port=port, application=application, protocols=port_protocols)

    def serve(self, *ports: InboundPort, credential: Credential | None = None, **more: Any) -> None:
        """Push a workload with these ports; wait until the sidecar uses it. `more` are fields of the Workload."""
        more = {"capture": "explicit", **more}
        workload = Workload(name="default/web-1", address=ADDRESS, identity=WEB, ports=ports, **more)
        rendered = inbound.parts(workload, domain=DOMAIN, trust_domain=TRUST_DOMAIN)
        self.push_parts(*rendered, *secrets.parts(credential or self.credential))

    def push_parts(self, *parts: Part) -> None:
        """Push these resources to the proxy, and wait until the proxy has acknowledged them."""
        config: Mapping[str, dict[str, Encoded]] = {
            kind: {} for kind in (CLUSTER, ENDPOINTS, SECRET, LISTENER, ROUTES, SCOPES)
        }
        for part in parts:
            made = part.render(*part.arguments)
            config[part.type_url][part.name] = encode_resource(part.name, made, frozenset(part.needs))

        async def give() -> None:
            self._proxy.config.set(config)

        self.network.run(give())
        until(self.settled, "the sidecar has acknowledged the configuration")

    def client_tls(
        self, identity: str | Credential | None, alpn: Iterable[str] = (), newest: ssl.TLSVersion | None = None
    ) -> ssl.SSLContext:
        """Return a client's TLS context; `identity` is a name to issue a certificate for, a certificate, or None."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(cadata=self.authority.pem)
        if newest:
            context.maximum_version = newest
        if alpn:
            context.set_alpn_protocols(list(alpn))
        if identity:
            credential = self.authority.issue(identity) if isinstance(identity, str) else identity
            file = next(self._files)
            file.write_text(credential.key.reveal() + credential.chain)
            context.load_cert_chain(file)
        return context

    def caller(
        self, port: InboundPort, identity: str | ssl.SSLContext | None = None, protocol: Protocol | None = None
    ) -> Caller:
        """Return a client of the Service of `protocol`; it uses mutual TLS if `identity` is set, else plaintext."""
        tls = identity if isinstance(identity, ssl.SSLContext) or identity is None else self.client_tls(identity)
        name = (protocol or port.protocols[0].protocol).value
        address = Address(ADDRESS, port.port)
        caller = Caller(self.network, address, tls, server_name(PortRef(f"default/{name}", port.port), DOMAIN))
        self.callers.append(caller)
        return caller

    def abort(self) -> None:
        """Abort the connections of all callers."""
        callers, self.callers = self.callers, []

        async def abort_all() -> None:
            for caller in callers:
                caller.abort()
            await asyncio.sleep(0)  # let the loop run the callbacks that close transports

        self.network.run(abort_all())

    def wait_for(self, port: InboundPort) -> None:
        """Wait until the sidecar listens on a port."""
        until(lambda: listens(Address(ADDRESS, port.port)), "the sidecar listens")


async def ask_h2(stream: tuple[asyncio.StreamReader, asyncio.StreamWriter], authority: str) -> str:
    """Send an HTTP/2 request with prior knowledge, as a sidecar does; return the server's name, or the status."""
    reader, writer = stream
    block = b"\x82\x86\x84\x01" + bytes([len(authority)]) + authority.encode()  # HPACK: GET, http, /, :authority
    writer.write(H2_PREFACE + H2_SETTINGS + H2_LARGE_WINDOW)
    writer.write(len(block).to_bytes(3, "big") + b"\x01\x05" + (1).to_bytes(4, "big") + block)
    async with asyncio.timeout(DEADLINE_S):
        try:
            return await _h2_answer(reader, writer)
        finally:
            writer.close()
