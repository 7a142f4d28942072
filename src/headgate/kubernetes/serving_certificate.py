"""The certificate of the control plane's own servers: xDS, webhooks and the aggregated API.

The mesh's authority signs it, headgate's own or cert-manager's issuer. So sidecars and the API server trust the roots of
the mesh, and a rotation of the root covers the servers of all replicas too.
"""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import timedelta

from msgspec import structs

from headgate.backoff import until_done
from headgate.errors import HeadgateError
from headgate.identity.certificates import expiry
from headgate.identity.embedded import EmbeddedIssuer
from headgate.identity.issuers import CertificateSpec, Issuer
from headgate.identity.keys import SECRET
from headgate.latest import Latest, until, wait_for_any
from headgate.model.identities import Credential, spiffe_id
from headgate.objects.ports import Reader, Relist, follow
from headgate.plane.control_plane import Work
from headgate.resources.meta import SYSTEM_NAMESPACE

ACCOUNT = "headgate"
LIFETIME = timedelta(days=7)
RENEWAL_PART = 4  # renew after 1/4 of a certificate's lifetime, which the issuer may have shortened


class ServingCertificate:
    """Issues and renews the certificate of the servers for some DNS names."""

    def __init__(self, issuer: Issuer, names: Sequence[str], trust_domain: str) -> None:
        self._issuer = issuer
        self._signer = ""
        self._spec = CertificateSpec(identity=spiffe_id(trust_domain, SYSTEM_NAMESPACE, ACCOUNT), subjects=tuple(names))

    async def first(self) -> Latest[Credential]:
        """Return the first certificate. Retry until it can be issued."""
        return Latest(await self._issue())

    def work(self, reader: Reader, current: Latest[Credential]) -> Iterator[Work]:
        """Yield the tasks that keep the certificate current, with their names; each runs until canceled."""
        yield "serving certificate", self.renew(current)
        yield "roots of the serving certificate", follow_roots(self._issuer, current)
        if isinstance(self._issuer, EmbeddedIssuer):
            yield "keys of the authority", follow_keys(reader, self._issuer)

    async def renew(self, current: Latest[Credential]) -> None:
        """Replace the certificate after a quarter of its life, and when another root signs, until canceled."""
        while True:
            signer_changed = until(lambda: self._issuer.signer.get() != self._signer, self._issuer.signer)
            await wait_for_any(signer_changed, asyncio.sleep(_until_renewal(current.get())))
            current.set(await self._issue())

    async def _issue(self) -> Credential:
        return await until_done(
            self._attempt, "the certificate of the control plane's servers can't be issued", on=HeadgateError
        )

    async def _attempt(self) -> Credential:
        signer = self._issuer.signer.get()
        issued = await self._issuer.issue(self._spec, LIFETIME)
        # `signer` is empty before the first request, which loads the authority.
        self._signer = signer or self._issuer.signer.get()
        return issued


def _until_renewal(certificate: Credential) -> float:
    """Return the seconds from the issue of a certificate to its renewal."""
    return max((expiry(certificate.chain) - certificate.issued) / RENEWAL_PART, 0.0)


async def follow_keys(reader: Reader, issuer: EmbeddedIssuer) -> None:
    """Read headgate's own keys again after each change to their Secret, until canceled.

    The active replica replaces the root, and all replicas have servers.
    """
    async for step in follow(reader, SECRET.group, SECRET.kind, SECRET.namespace):
        if isinstance(step, Relist) or step.key == SECRET:
            await until_done(issuer.reload, f"Secret {SECRET} can't be used", on=HeadgateError)


async def follow_roots(issuer: Issuer, certificate: Latest[Credential]) -> None:
    """Add to `certificate` the issuer's new roots, until canceled.

    So the API server and sidecars trust a new root before a server uses it.
    """
    async for roots in issuer.roots.changes():
        certificate.set(structs.replace(certificate.get(), roots=roots))
