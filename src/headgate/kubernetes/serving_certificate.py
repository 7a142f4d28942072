"""The certificate of the control plane's own servers: xDS, webhooks and the aggregated API.

The mesh's authority signs it, headgate's own or cert-manager's issuer. So sidecars and the API server trust the roots of
the mesh, and a rotation of the root covers the servers too.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import timedelta

from msgspec import structs

from headgate.errors import HeadgateError
from headgate.identity.certificates import expiry
from headgate.identity.issuers import CertificateSpec, Issuer
from headgate.latest import Latest
from headgate.model.identities import SYSTEM_NAMESPACE, Credential, spiffe_id

ACCOUNT = "headgate"
LIFETIME = timedelta(days=7)
RENEWAL_PART = 4  # renew after 1/4 of a certificate's lifetime, which the issuer may have shortened
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
        """Replace the certificate after a quarter of its life, until canceled."""
        pause = _until_renewal(current.get())
        while True:
            await asyncio.sleep(pause)
            try:
                current.set(await self._issue())
                pause = _until_renewal(current.get())
            except HeadgateError as error:
                log.warning(
                    "the certificate of the control plane's servers can't be renewed, next attempt in %g s: %s",
                    RETRY_S,
                    error,
                )
                pause = RETRY_S

    async def _issue(self) -> Credential:
        return await self._issuer().issue(self._spec, LIFETIME)


def _until_renewal(certificate: Credential) -> float:
    """Return the seconds from the issue of a certificate to its renewal."""
    return max((expiry(certificate.chain) - certificate.issued) / RENEWAL_PART, 0.0)


async def follow_roots(issuer: Issuer, certificate: Latest[Credential]) -> None:
    """Add to `certificate` the roots that the issuer returns with other certificates, until canceled.

    So the API server and sidecars trust a new root before a server uses it.
    """
    async for roots in issuer.roots.changes():
        certificate.set(structs.replace(certificate.get(), roots=roots))
