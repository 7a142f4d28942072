"""The interface of issuers, which sign certificates for the mesh (`embedded`, `pem`, `kubernetes.cert_manager`)."""

from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

from headgate.errors import HeadgateError
from headgate.latest import Latest
from headgate.model.identities import Credential
from headgate.resources.meta import Value

LIFETIME = timedelta(hours=24)
Clock = Callable[[], float]
"""A function that returns the time in seconds since the epoch."""


class IssueError(HeadgateError):
    """A certificate can't be issued; the message says why and what to do about it."""


class CertificateSpec(Value, frozen=True, kw_only=True, order=True):
    """The SPIFFE ID and the DNS names that a certificate must have."""

    identity: str
    subjects: tuple[str, ...] = ()


class Issuer(Protocol):
    """Signs certificates. `roots` is the trust bundle of the mesh as PEM; during a rotation it has the old and the new root.

    `signer` is the fingerprint of the current authority: when it changes, all certificates must be renewed. `fault` says
    why no certificate can be signed now and what to do; it is empty otherwise, and before the first attempt.
    """

    roots: Latest[str]
    signer: Latest[str]
    fault: Latest[str]

    async def issue(self, spec: CertificateSpec, lifetime: timedelta) -> Credential:
        """Return a new key with its certificate, which may expire earlier than `lifetime`. Raises IssueError."""

    async def run(self) -> None:
        """Load the authority before the first request, and follow changes to its source (files, for example) until canceled."""
