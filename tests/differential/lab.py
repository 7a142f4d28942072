"""What the labs of all proxies have: backends, the addresses of a test run, and the certificate of Gateways.

Worlds contain placeholders: `member-3` for the port of a backend, `address-2` for an address, `chain` and `key` for the
certificate, `authority` for the one of the CA, `judges-port` for the port of the authorization server over gRPC. A lab fills in the values of this test run, so that a world is the same value in every run.
"""

import os
import ssl
from base64 import b64encode
from collections import Counter
from collections.abc import Mapping
from tempfile import NamedTemporaryFile
from typing import Any, TypeAlias

from tests.authority import Authority
from tests.differential.backends import Member, Responder, Tally, ask
from tests.differential.permissions import JUDGES_PORT, Judge
from tests.make.objects import Object
from tests.wire import Address, Network

from headgate.model.identities import Credential
from headgate.model.routing import Endpoint
from headgate.resources.meta import Key
from headgate.standalone.address_pool import LAST_RANGE

MEMBERS = 8
Objects: TypeAlias = Mapping[Key, Object]
"""The objects of a random world by key."""


class MemberLab:
    """Backends on one event loop, which a proxy sends requests to."""

    after_last = b""
    """A request that `send` adds as the last one on a connection that stays open."""

    def __init__(self) -> None:
        self.network = Network()
        # Concurrent test runs have different addresses, and headgate uses none of them.
        self.subnet = f"127.{LAST_RANGE + 1 + os.getpid() % 128}.{os.getpid() // 128 % 255}"
        self.members: list[Member] = []
        self.judge = Judge()
        authority = Authority()
        shown = authority.issue("", "*.example.com")
        self._secret = {"chain": shown.chain, "key": shown.key.reveal()}
        self._authority = authority.pem
        self.server_tls = _presenting(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), shown)
        self._clients = {
            "": _client(),
            "client": _presenting(_client(), authority.issue("", "client")),
            "stranger": _presenting(_client(), Authority("other").issue("", "client")),
        }

    def placed(self, value: Any) -> Any:
        """Return a value with the placeholders filled in."""
        if isinstance(value, Mapping):
            return {name: self.placed(part) for name, part in value.items()}
        if isinstance(value, list):
            return [self.placed(part) for part in value]
        return self.filled_in(value) if isinstance(value, str) else value

    def filled_in(self, text: str) -> str | int:
        """Return what a text stands for, or the text."""
        if text == "authority":
            return self._authority
        if text == JUDGES_PORT:
            return self.judge.port
        if text in self._secret:
            return b64encode(self._secret[text].encode()).decode()
        kind, _, number = text.rpartition("-")
        if kind == "member":
            return self.members[int(number)].port
        return self.address(int(number)) if kind == "address" else text

    def close(self) -> None:
        """Stop the authorization server, and close all connections."""
        self.judge.close()
        self.network.close()

    def address(self, number: int) -> str:
        """Return the address of a placeholder."""
        return f"{self.subnet}.{number}"

    def member(self, endpoint: Endpoint) -> str:
        """Return the name of the member that listens on an endpoint."""
        return next(member.name for member in self.members if member.port == endpoint.port)

    def forget(self) -> None:
        """Reset the counters of the members."""
        for member in self.members:
            member.take()

    def send(
        self,
        where: Address,
        head: bytes,
        count: int,
        *,
        each_connects: bool = False,
        server_name: str = "",
        client: str = "",
        tunnel: str = "",
    ) -> Tally:
        """Send a request `count` times, over TLS if `server_name` is set, by one of `edge.CLIENTS`, or through a tunnel to `tunnel`."""
        tls = (self._clients[client], server_name) if server_name else None
        last = b"" if each_connects else self.after_last
        return self.network.run(ask(where, head, count, each_connects=each_connects, tls=tls, last=last, tunnel=tunnel))

    def uncounted(self, counted: Counter[Responder]) -> Counter[Responder]:
        """Return how many requests each member has received in addition to the counted ones."""
        return Counter({member.name: member.requests - counted[member.name] for member in self.members})


def _client() -> ssl.SSLContext:
    """Return the context of a client that accepts every server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _presenting(context: ssl.SSLContext, credential: Credential) -> ssl.SSLContext:
    """Return a context that presents a certificate."""
    with NamedTemporaryFile("w") as file:
        file.write(credential.key.reveal() + credential.chain)
        file.flush()
        context.load_cert_chain(file.name)
    return context
