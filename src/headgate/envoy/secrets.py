"""Certificates, delivered as secrets of their own: a new one touches no listener and no cluster."""

from collections.abc import Iterator

from headgate.envoy import names, pb
from headgate.envoy.config import SECRET, Part
from headgate.model.identities import Credential, PrivateText


def parts(credential: Credential) -> Iterator[Part]:
    """Yield what a proxy proves its identity with, and whom it believes."""
    yield Part(SECRET, names.IDENTITY, certificate, (names.IDENTITY, credential.chain, credential.key))
    yield Part(SECRET, names.ROOTS, roots, (names.ROOTS, credential.roots))


def certificate(name: str, chain: str, key: PrivateText) -> pb.Secret:
    """Return a certificate with its key (PEM). Only the proxy may see it: whoever prints resources leaves it out."""
    return pb.Secret(
        name=name,
        tls_certificate=pb.TlsCertificate(
            certificate_chain=pb.DataSource(inline_string=chain), private_key=pb.DataSource(inline_string=key.reveal())
        ),
    )


def roots(name: str, certificates: str) -> pb.Secret:
    """Return the authorities (PEM) that a proxy believes; who a peer is to be, each listener and cluster says itself."""
    trusted = pb.CertificateValidationContext(trusted_ca=pb.DataSource(inline_string=certificates))
    return pb.Secret(name=name, validation_context=trusted)
