"""What signs certificates for the mesh: one interface, whoever does it (embedded, pem, certmanager)."""

from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

from headgate.errors import HeadgateError
from headgate.latest import Latest
from headgate.model.identities import Credential
from headgate.resources.meta import Value

LIFETIME = timedelta(hours=24)
Clock = Callable[[], float]
"""Returns the time in seconds since the epoch."""


class IssueError(HeadgateError):
    """A certificate can't be issued; the message says why and what to do about it."""


class CertificateSpec(Value, frozen=True, kw_only=True, order=True):
    """What a certificate is to say: the SPIFFE ID, and DNS names besides."""

    identity: str
    subjects: tuple[str, ...] = ()


class Issuer(Protocol):
    """Signs certificates. `roots` are the PEM certificates that the mesh is to believe, those on their way in or out too.

    `signer` names the authority that signs now: when it changes, each certificate is to be renewed at once. `fault` says
    why nothing can be signed now, and what to do about it; it is empty when all is well, or nobody has tried yet.
    """

    roots: Latest[str]
    signer: Latest[str]
    fault: Latest[str]

    async def issue(self, wanted: CertificateSpec, lifetime: timedelta) -> Credential:
        """Return a new key with its certificate, which may end earlier than asked for. Raises IssueError."""

    async def run(self) -> None:
        """Get ready without being asked, and follow what the authority is made of (files, for example) until cancelled."""
