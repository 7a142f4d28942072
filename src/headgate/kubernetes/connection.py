"""The settings of a connection to an API server: its address, TLS and the client's credentials."""

import socket
import ssl
from typing import TYPE_CHECKING, NamedTuple, Protocol
from weakref import WeakSet

if TYPE_CHECKING:
    from aiohttp import ClientSession


ANSWER_S = 30.0
"""Seconds until the headers of a response, which the server sends at once also for a watch, and between parts of its body."""


class Connection:
    """The address of an API server and the client's credentials. kubernetes_asyncio sets the attributes and names them.

    `session` is the HTTP session that all requests share; None if each request opens a session. `sockets` has those of all
    sessions.
    """

    def __init__(self) -> None:
        self.host = ""
        self.api_key: dict[str, str] = {}
        self.ssl_ca_cert: str | None = None
        self.cert_file: str | None = None
        self.key_file: str | None = None
        self.verify_ssl = True
        self.tls_server_name: str | None = None
        self.proxy: str | None = None
        self.impersonated: tuple[tuple[str, str], ...] = ()
        self.tls: ssl.SSLContext | None = None
        self.session: ClientSession | None = None
        self.sockets: WeakSet[socket.socket] = WeakSet()

    def headers(self) -> list[tuple[str, str]]:
        """Return the headers that authenticate the client or impersonate another user."""
        token = self.api_key.get("BearerToken", "").strip()
        return [*self.impersonated, *([("authorization", token)] if token else [])]

    def read_certificates(self) -> None:
        """Prepare TLS from the files of certificates and keys. Raises OSError if a file can't be used."""
        if not self.host.startswith("https:"):
            return
        self.tls = ssl.create_default_context(cafile=self.ssl_ca_cert)
        self.tls.verify_flags &= ~ssl.VERIFY_X509_STRICT  # kubectl accepts roots without key usages too
        if self.cert_file:
            self.tls.load_cert_chain(self.cert_file, self.key_file)
        if not self.verify_ssl:
            self.tls.check_hostname, self.tls.verify_mode = False, ssl.CERT_NONE


class ApiRequest(NamedTuple):
    """A request to an API server. `target` is the path with the query.

    It fails if the server sends nothing for `idle_s` seconds; None waits without limit, after the headers.
    """

    method: str
    target: str
    body: bytes | None = None
    content_type: str = "application/json"
    accept: str = "application/json"
    idle_s: float | None = ANSWER_S


class CredentialSource(Protocol):
    """A source of connection settings, such as a kubeconfig. `namespace` is the default namespace."""

    @property
    def namespace(self) -> str: ...

    async def connect(self) -> Connection:
        """Read the settings and credentials. Raises HeadgateError with the part that can't be used."""
