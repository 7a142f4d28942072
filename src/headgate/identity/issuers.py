"""What signs certificates for the mesh: one interface, whoever does it."""

from datetime import timedelta
from typing import Protocol

from headgate.errors import HeadgateError
from headgate.latest import Latest
from headgate.model.identities import Credential
from headgate.resources.meta import Value

LIFETIME = timedelta(hours=24)


class IssueError(HeadgateError):
    """A certificate can't be issued; the message says why and what to do about it."""


class Wanted(Value, frozen=True, kw_only=True, order=True):
    """What a certificate is to say: the SPIFFE ID, and DNS names besides."""

    identity: str
    subjects: tuple[str, ...] = ()


class Issuer(Protocol):
    """Signs certificates. `roots` are the PEM certificates that the mesh is to believe, those on their way in or out too."""

    roots: Latest[str]

    async def issue(self, wanted: Wanted, lifetime: timedelta) -> Credential:
        """Return a new key with its certificate. Raises IssueError."""
