"""Proofs that a proxy is who it says: checked once for each stream, before anything is sent, and good until they end.

A proof is a token (`authorization: Bearer <token>`). On one machine headgate signs it itself (`LocalTokens`); a cluster's
API server vouches for it elsewhere (`reviews.TokenReview`). Tokens are never logged, and no message has one in it.
"""

import base64
import binascii
import hashlib
import hmac
import os
import secrets
import stat
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

from headgate.atomic_file import write_private
from headgate.errors import ProxyError

LIFETIME = timedelta(hours=1)
SECRET_BYTES = 32
REVIEW_SECONDS = 60.0  # for which a proof that is shown again and again counts as checked
MOST_REMEMBERED = 10_000
_PURPOSE = b"headgate xDS token 1\0"  # the secret signs nothing else that could be taken for a token
_PARTS = 3  # node id, end, signature
_SCHEME = "bearer "


class Refused(ProxyError):
    """A proof does not prove what it should; the message says what is wrong with it, and never contains it."""


class Proofs(Protocol):
    """Whoever can tell whether a token is a proxy's own."""

    async def check(self, node_id: str, token: str) -> float:
        """Return when the proof ends, in seconds since the epoch.

        Raises Refused when it proves nothing for this proxy, ProxyError when that can't be found out now.
        """


def bearer(values: list[str]) -> str:
    """Return the token of a stream's `authorization` headers. Raises Refused when there is none, or more than one."""
    if not values:
        raise Refused("no token: a proxy sends `authorization: Bearer <token>` from the token file of its bootstrap")
    if len(values) > 1:
        raise Refused(f"{len(values)} authorization headers: a proxy sends one")
    (value,) = values
    token = value[len(_SCHEME) :].strip()
    if value[: len(_SCHEME)].lower() != _SCHEME or not token:
        raise Refused("the authorization header has no token: it is `Bearer <token>`, and the token file is not empty")
    return token


class LocalTokens:
    """Tokens for the proxies of one machine: `<node id>.<end>.<signature>`, HMAC-SHA256 with a secret of headgate's.

    Whoever has the same secret believes them, so they outlive a restart of headgate. Write a new one well before the end
    of the old: a stream ends with its token, and its proxy comes back with what is in the file then.
    """

    def __init__(
        self, secret: bytes, *, lifetime: timedelta = LIFETIME, clock: Callable[[], float] = time.time
    ) -> None:
        if len(secret) < SECRET_BYTES:
            raise ValueError(f"the secret of tokens has {len(secret)} bytes; it needs {SECRET_BYTES}")
        self.lifetime = lifetime
        self._secret = secret
        self._clock = clock

    def issue(self, node_id: str) -> str:
        """Return a new token for a proxy."""
        ends = int(self._clock() + self.lifetime.total_seconds())
        said = f"{_encode(node_id.encode())}.{ends}"
        return f"{said}.{self._signature(said)}"

    def write(self, node_id: str, path: Path) -> None:
        """Put a new token for a proxy into its file (0600), all at once: Envoy sees it when it watches the directory."""
        write_private(path, self.issue(node_id).encode())

    async def check(self, node_id: str, token: str) -> float:
        """Return when a token of this proxy ends. Raises Refused."""
        parts = token.split(".")
        if len(parts) != _PARTS or not token.isascii():
            raise Refused("the token is malformed: headgate's have three parts, <node id>.<end>.<signature>")
        named, ends, signature = parts
        if not hmac.compare_digest(signature.encode(), self._signature(f"{named}.{ends}").encode()):
            raise Refused("the token is not signed by this headgate: it is of another state directory, or made up")
        owner = _decode(named)
        if owner != node_id:
            raise another(owner, node_id)
        return in_time(owner, float(ends), self._clock())

    def _signature(self, said: str) -> str:
        return _encode(hmac.digest(self._secret, _PURPOSE + said.encode(), hashlib.sha256))


class Remembered:
    """Proofs for those who show the same one every few seconds: once good, they are good for a minute."""

    def __init__(self, proofs: Proofs, *, clock: Callable[[], float] = time.time) -> None:
        self._proofs = proofs
        self._clock = clock
        self._good: dict[tuple[str, bytes], tuple[float, float]] = {}  # until when to ask no more, end; oldest first

    async def check(self, node_id: str, token: str) -> float:
        """Return when a proof ends. Raises Refused, or ProxyError when that can't be found out now."""
        key = node_id, hashlib.sha256(token.encode()).digest()  # a token is not kept
        now = self._clock()
        until, ends = self._good.get(key, (0.0, 0.0))
        if now < until:
            return ends
        self._good.pop(key, None)
        ends = await self._proofs.check(node_id, token)
        self._good[key] = min(now + REVIEW_SECONDS, ends), ends
        if len(self._good) > MOST_REMEMBERED:
            del self._good[next(iter(self._good))]
        return ends


def another(owner: str, node_id: str) -> Refused:
    """Return the refusal of one proxy's token in the hands of another."""
    return Refused(f"this token is {shown(owner)}'s, not {shown(node_id)}'s")


def in_time(owner: str, ends: float, now: float) -> float:
    """Return when a token ends. Raises Refused when it has."""
    if ends <= now:
        raise Refused(
            f"the token of {shown(owner)} expired at {datetime.fromtimestamp(ends, UTC):%Y-%m-%dT%H:%M:%SZ}: "
            "put a new one into its file"
        )
    return ends


def shown(node_id: str) -> str:
    """Return a node id that a stranger sent, fit for a message."""
    return node_id[:200] if node_id.isprintable() and node_id else repr(node_id[:200])


def secret_in(path: Path) -> bytes:
    """Return the secret that signs tokens; makes one (0600) when there is no such file.

    Raises ProxyError when others can read the file, or it is no secret of headgate's.
    """
    try:
        secret = _read_private(path)
    except FileNotFoundError:
        secret = secrets.token_bytes(SECRET_BYTES)
        write_private(path, secret)
    if len(secret) != SECRET_BYTES:
        raise ProxyError(f"{path} is no secret of headgate's: remove it, and headgate makes a new one")
    return secret


def _read_private(path: Path) -> bytes:
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise ProxyError(f"{path} can be read by others, who could sign tokens with it: remove it")
        return file.read(SECRET_BYTES + 1)


def _encode(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _decode(text: str) -> str:
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    except (binascii.Error, UnicodeDecodeError) as error:  # signed, so another release of headgate made it
        raise Refused("the token is malformed: its first part is no node id") from error
