"""Authentication of calls: by the token in their headers, before headgate reads a message of an unknown client.

The token names its proxy; then the first message must name the same one.

On one machine headgate signs the tokens itself (`LocalTokens`); in a cluster the API server checks the tokens of service
accounts (`kubernetes.token_reviews`). A stream ends when its token expires. No log line or message contains a token.
"""

import base64
import binascii
import hashlib
import hmac
import logging
import os
import secrets
import stat
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple, Protocol, Self

import grpc

from headgate.atomic_file import write_private
from headgate.errors import ProxyError
from headgate.xds.fleet import Fleet, FleetProxy
from headgate.xds.messages import DeltaRequest, read_request

LIFETIME = timedelta(hours=12)
SECRET_BYTES = 32
CACHE_SECONDS = 60.0  # a verified token is not verified again for this long
MAX_CACHED_TOKENS = 10_000
MAX_LOGGED_REJECTIONS = 1000  # rejections that are remembered, so that each is logged once
MAX_UNKNOWN = 4096  # node IDs of unknown pods that are remembered
LOG_PAUSE_S = (
    600.0  # with so many remembered rejections, a new one is logged when the oldest is so old: no log fills a disk
)
MAX_STATUS_CHARACTERS = 1000  # gRPC limits the headers that carry a status
NEVER = float("inf")
# signed with each token, so that no other signature with this secret is a valid token
_PURPOSE = b"headgate xDS token 1\0"
_PARTS = 3  # parts of a token: node ID, expiry, signature
_SCHEME = "bearer "

log = logging.getLogger(__name__)


class InvalidToken(ProxyError):
    """A token does not authenticate the proxy that sent it. The message says why and never contains the token."""


class UnknownPod(InvalidToken):
    """No pod is known for the token: it is new, and the next attempt succeeds, or it was deleted."""


class StatusError(ProxyError):
    """A gRPC call ends with the status `code` and this message."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message[:MAX_STATUS_CHARACTERS])
        self.code = code


class CallOrigin(NamedTuple):
    """The values of a call's authorization header, and the address of its client without the port."""

    authorization: Sequence[str]
    address: str

    @classmethod
    def of(cls, context: grpc.aio.ServicerContext) -> Self:
        """Return the origin of a gRPC call."""
        metadata = context.invocation_metadata() or ()
        address, _, _ = context.peer().rpartition(":")
        return cls([str(value) for key, value in metadata if key == "authorization"], address)


class TokenVerifier(Protocol):
    """Verifies that a token belongs to a proxy."""

    def node_of(self, token: str) -> str:
        """Return the node ID of the proxy that a token names. Nothing is verified yet. Raises InvalidToken if it names none."""

    async def verify(self, node_id: str, token: str, *, address: str = "") -> float:
        """Return when the token expires, in seconds since the epoch. The client that sent it has this address.

        Raises InvalidToken when it is not a valid token of this proxy, ProxyError when it can't be verified now.
        """


class AuthenticatedCall(NamedTuple):
    """The node ID of the proxy whose token a call has, and when the token expires (seconds since the epoch).

    The node ID is None if every client is trusted.
    """

    node_id: str | None
    expires: float


class AuthenticatedStream(NamedTuple):
    """The proxy of a stream, its first request, and when its token expires (seconds since the epoch)."""

    proxy: FleetProxy
    request: DeltaRequest
    expires: float


class Authenticator:
    """Authenticates calls. Without a verifier it trusts every node ID: only for a socket that other users can't open."""

    def __init__(self, fleet: Fleet, verifier: TokenVerifier | None) -> None:
        self._fleet = fleet
        self._verifier = verifier
        # the name and message of each logged rejection, and when it last happened (monotonic), oldest first
        self._logged: dict[tuple[str, str], float] = {}
        self._unknown: dict[str, None] = {}  # node IDs of pods that were unknown, oldest first

    def begin_stream(self, call: AuthenticatedCall, first: bytes) -> AuthenticatedStream:
        """Return the stream of an authenticated call by its first request. Raises StatusError."""
        try:
            node_id, request = read_request(first)
        except ProxyError as error:
            raise StatusError(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from error
        self.check_node(call, node_id)
        proxy = self._fleet.proxies.get(node_id)  # after authentication: strangers must not learn which proxies exist
        if proxy is None:
            message = f"proxy {printable(node_id)} is unknown: no pod with a sidecar and no gateway has this node ID"
            if self._fleet.was_removed(node_id):  # it reconnects until its process ends
                raise _expected(node_id, grpc.StatusCode.NOT_FOUND, message)
            raise self._rejection(printable(node_id), grpc.StatusCode.NOT_FOUND, message)
        for logged in [logged for logged in self._logged if logged[0] == printable(node_id)]:
            del self._logged[logged]  # the next rejection is logged again
        self._unknown.pop(node_id, None)
        return AuthenticatedStream(proxy, request, call.expires)

    def check_node(self, call: AuthenticatedCall, node_id: str) -> None:
        """Check that a message of a call names the proxy of the call. Raises StatusError."""
        if call.node_id not in (None, node_id):
            wrong = wrong_proxy(call.node_id or "", node_id)
            raise self._rejection(printable(node_id), grpc.StatusCode.UNAUTHENTICATED, str(wrong))

    async def authenticate(self, origin: CallOrigin) -> AuthenticatedCall:
        """Authenticate a call by its token. Raises StatusError.

        It does not check that the proxy exists.
        """
        if self._verifier is None:
            return AuthenticatedCall(None, NEVER)
        node_id = ""
        try:
            token = bearer_token(origin.authorization)
            node_id = self._verifier.node_of(token)
            return AuthenticatedCall(node_id, await self._verifier.verify(node_id, token, address=origin.address))
        except UnknownPod as unknown:
            if self._fleet.was_removed(node_id) or self._is_first(node_id):
                raise _expected(node_id, grpc.StatusCode.UNAUTHENTICATED, str(unknown)) from unknown
            raise self._rejection(printable(node_id), grpc.StatusCode.UNAUTHENTICATED, str(unknown)) from unknown
        except InvalidToken as invalid:
            name = printable(node_id) if node_id else f"without a name, at {origin.address},"
            raise self._rejection(name, grpc.StatusCode.UNAUTHENTICATED, str(invalid)) from invalid
        except ProxyError as error:
            raise self._rejection(printable(node_id), grpc.StatusCode.UNAVAILABLE, str(error)) from error

    def _is_first(self, node_id: str) -> bool:
        """Return whether this is the first attempt with a pod that is unknown. Few new pods are so fast."""
        is_first = node_id not in self._unknown
        self._unknown[node_id] = None
        if len(self._unknown) > MAX_UNKNOWN:
            del self._unknown[next(iter(self._unknown))]
        return is_first

    def _rejection(self, name: str, code: grpc.StatusCode, message: str) -> StatusError:
        """Log a rejection once for each proxy and reason: proxies reconnect every few seconds."""
        logged, now = (name, message[:MAX_STATUS_CHARACTERS]), time.monotonic()
        is_new = self._logged.pop(logged, None) is None
        if len(self._logged) >= MAX_LOGGED_REJECTIONS:
            oldest = next(iter(self._logged))
            if self._logged[oldest] > now - LOG_PAUSE_S:
                return StatusError(code, message)
            del self._logged[oldest]
        self._logged[logged] = now
        if is_new:
            log.warning("stream of proxy %s rejected: %s", *logged)
            if len(self._logged) == MAX_LOGGED_REJECTIONS:
                log.warning("%d different streams were rejected: the next ones are not logged", MAX_LOGGED_REJECTIONS)
        return StatusError(code, message)


def _expected(node_id: str, code: grpc.StatusCode, message: str) -> StatusError:
    """Return the status for a proxy whose pod is new or was deleted, which needs no warning."""
    log.info("stream of proxy %s rejected: %s", printable(node_id), message)
    return StatusError(code, message)


def bearer_token(values: Sequence[str]) -> str:
    """Return the token of the `authorization` headers. Raises InvalidToken unless there is exactly one."""
    if not values:
        raise InvalidToken("no token: send `authorization: Bearer <token>` with the token file of the bootstrap")
    if len(values) > 1:
        raise InvalidToken(f"{len(values)} authorization headers: send exactly one")
    (value,) = values
    token = value[len(_SCHEME) :].strip()
    if value[: len(_SCHEME)].lower() != _SCHEME or not token:
        raise InvalidToken("the authorization header has no token: send `Bearer <token>`; is the token file empty?")
    return token


class LocalTokens:
    """Issues and verifies tokens for the proxies of one machine.

    A token is `<node ID>.<expiry>.<signature>`, signed with HMAC-SHA256 by a secret on disk, so it stays valid across a
    restart of headgate. Write a new token well before the old one expires: the stream ends with its token, and the proxy
    reconnects with the token that is then in its file.
    """

    def __init__(
        self, secret: bytes, *, lifetime: timedelta = LIFETIME, clock: Callable[[], float] = time.time
    ) -> None:
        if len(secret) < SECRET_BYTES:
            raise ValueError(f"the token signing secret has {len(secret)} bytes; it needs {SECRET_BYTES}")
        self.lifetime = lifetime
        self._secret = secret
        self._clock = clock

    def issue(self, node_id: str) -> str:
        """Return a new token for a proxy."""
        expires = int(self._clock() + self.lifetime.total_seconds())
        signed = f"{_encode(node_id.encode())}.{expires}"
        return f"{signed}.{self._signature(signed)}"

    def write(self, node_id: str, path: Path) -> None:
        """Replace the token file of a proxy (mode 0600) atomically. Envoy watches the directory for it."""
        write_private(path, self.issue(node_id).encode(), durable=False)

    def node_of(self, token: str) -> str:
        """Return the node ID in a token. Raises InvalidToken."""
        return _decode(_parts(token)[0])

    async def verify(self, node_id: str, token: str, *, address: str = "") -> float:  # noqa: ARG002 - of TokenVerifier
        """Return when the token expires, in seconds since the epoch. Raises InvalidToken."""
        encoded_id, expires, signature = _parts(token)
        if not hmac.compare_digest(signature.encode(), self._signature(f"{encoded_id}.{expires}").encode()):
            raise InvalidToken("the token is not signed by this headgate: it is forged, or of another state directory")
        owner = _decode(encoded_id)
        if owner != node_id:
            raise wrong_proxy(owner, node_id)
        return check_expiry(owner, float(expires), self._clock())

    def _signature(self, signed: str) -> str:
        return _encode(hmac.digest(self._secret, _PURPOSE + signed.encode(), hashlib.sha256))


class CachingVerifier:
    """Verifies a token at most once a minute, for calls that repeat every few seconds. It caches no failure."""

    def __init__(self, verifier: TokenVerifier, *, clock: Callable[[], float] = time.time) -> None:
        self._verifier = verifier
        self._clock = clock
        # (node ID, hash of the token) -> when to verify again, when the token expires; oldest first
        self._verified: dict[tuple[str, bytes], tuple[float, float]] = {}

    def node_of(self, token: str) -> str:
        """Return the node ID of the proxy that a token names. Raises InvalidToken."""
        return self._verifier.node_of(token)

    async def verify(self, node_id: str, token: str, *, address: str = "") -> float:
        """Return when the token expires, in seconds since the epoch. Raises InvalidToken, or ProxyError."""
        key = node_id, hashlib.sha256(token.encode()).digest()  # the token itself is not kept in memory
        now = self._clock()
        until, expires = self._verified.get(key, (0.0, 0.0))
        if now < until:
            return expires
        self._verified.pop(key, None)
        expires = await self._verifier.verify(node_id, token, address=address)
        self._verified[key] = min(now + CACHE_SECONDS, expires), expires
        if len(self._verified) > MAX_CACHED_TOKENS:
            del self._verified[next(iter(self._verified))]
        return expires


def wrong_proxy(owner: str, node_id: str) -> InvalidToken:
    """Return the error for a token that belongs to another proxy."""
    return InvalidToken(f"the token belongs to {printable(owner)}, not to {printable(node_id)}")


def check_expiry(owner: str, expires: float, now: float) -> float:
    """Return when a token expires. Raises InvalidToken when it has expired."""
    if expires <= now:
        raise InvalidToken(
            f"the token of {printable(owner)} expired at {datetime.fromtimestamp(expires, UTC):%Y-%m-%dT%H:%M:%SZ}: "
            "write a new one to its token file"
        )
    return expires


def printable(node_id: str) -> str:
    """Return a node ID for a message: shortened, and quoted when it has control characters."""
    return node_id[:200] if node_id.isprintable() and node_id else repr(node_id[:200])


def load_signing_secret(path: Path) -> bytes:
    """Return the secret that signs tokens; create it (mode 0600) when the file does not exist.

    Raises ProxyError when other users can read the file, or when its size is wrong.
    """
    try:
        secret = _read_private(path)
    except FileNotFoundError:
        secret = secrets.token_bytes(SECRET_BYTES)
        write_private(path, secret)
    if len(secret) != SECRET_BYTES:
        raise ProxyError(f"{path} is not a token signing secret of headgate: remove it, and headgate creates a new one")
    return secret


def _read_private(path: Path) -> bytes:
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise ProxyError(f"other users can read {path} and sign tokens with it: remove it")
        return file.read(SECRET_BYTES + 1)


def _encode(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _parts(token: str) -> tuple[str, str, str]:
    parts = token.split(".")
    if len(parts) != _PARTS or not token.isascii():
        raise InvalidToken("the token is malformed: expected <node ID>.<expiry>.<signature>")
    encoded_id, expires, signature = parts
    return encoded_id, expires, signature


def _decode(text: str) -> str:
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    except (
        binascii.Error,
        UnicodeDecodeError,
    ) as error:
        raise InvalidToken("the token is malformed: its first part is not a node ID") from error
