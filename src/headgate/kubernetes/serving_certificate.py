"""The certificate of the control plane's own servers: xDS, webhooks and the aggregated API.

The mesh's authority signs it, so sidecars and the API server trust the roots of the mesh, and a rotation of the root
covers the servers too.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from datetime import timedelta

from headgate.errors import HeadgateError
from headgate.identity.issuers import CertificateSpec, Issuer
from headgate.latest import Latest
from headgate.model.identities import SYSTEM_NAMESPACE, Credential, spiffe_id

ACCOUNT = "headgate"
LIFETIME = timedelta(days=7)
RENEWAL_S = LIFETIME.total_seconds() / 4
RETRY_S = 5.0

log = logging.getLogger(__name__)


class ServingCertificate:
    """Issues and renews the certificate of the servers for some DNS names.

    `issuer` returns a new issuer for each certificate, which reads the keys again: another replica may have rotated them.
    """

    def __init__(self, issuer: Callable[[], Issuer], names: Sequence[str], trust_domain: str) -> None:
        self._issuer = issuer
        self._spec = CertificateSpec(identity=spiffe_id(trust_domain, SYSTEM_NAMESPACE, ACCOUNT), subjects=tuple(names))

    async def first(self) -> Latest[Credential]:
        """Return the first certificate. Retry until it can be issued."""
        while True:
            try:
                return Latest(await self._issue())
            except HeadgateError as error:
                log.warning(
                    "the certificate of the control plane's servers can't be issued, next attempt in %g s: %s",
                    RETRY_S,
                    error,
                )
                await asyncio.sleep(RETRY_S)

    async def renew(self, current: Latest[Credential]) -> None:
        """Replace the certificate every RENEWAL_S seconds, until canceled."""
        due = time.monotonic() + RENEWAL_S
        while True:
            await asyncio.sleep(due - time.monotonic())
            try:
                current.set(await self._issue())
                due = time.monotonic() + RENEWAL_S
            except HeadgateError as error:
                log.warning(
                    "the certificate of the control plane's servers can't be renewed, next attempt in %g s: %s",
                    RETRY_S,
                    error,
                )
                due = time.monotonic() + RETRY_S

    async def _issue(self) -> Credential:
        return await self._issuer().issue(self._spec, LIFETIME)
