"""Render certificates as secrets (SDS), so that a renewal changes no listener and no cluster."""

from collections.abc import Iterator

from headgate.envoy import clusters, names, pb
from headgate.envoy.config import CLUSTER, SECRET, Part
from headgate.model.edge_tls import BackendTls
from headgate.model.identities import Credential, PrivateText

SYSTEM_FILE = "/etc/ssl/certs/ca-certificates.crt"
"""The CA certificates of Debian, Ubuntu, Alpine, and of the images of Envoy."""


def parts(credential: Credential) -> Iterator[Part]:
    """Yield a proxy's own certificate and the root certificates that it trusts, and the cluster that keeps them loaded."""
    yield Part(CLUSTER, names.IDENTITY, clusters.identity_cluster, ())
    yield Part(SECRET, names.IDENTITY, certificate, (names.IDENTITY, credential.chain, credential.key))
    yield Part(SECRET, names.ROOTS, roots, (names.ROOTS, credential.roots))


def certificate(name: str, chain: str, key: PrivateText) -> pb.Secret:
    """Return a certificate and its private key (PEM) as a secret. Code that prints resources must redact the key."""
    return pb.Secret(
        name=name,
        tls_certificate=pb.TlsCertificate(
            certificate_chain=pb.DataSource(inline_string=chain), private_key=pb.DataSource(inline_string=key.reveal())
        ),
    )


def of_policy(tls: BackendTls) -> Part:
    """Return the CA certificates of a policy, or those of the proxy's system."""
    name = names.policy_roots(tls)
    if not tls.roots:
        return Part(SECRET, name, system_roots, (name,))
    return Part(SECRET, name, roots, (name, tls.roots))


def system_roots(name: str) -> pb.Secret:
    """Return the root certificates of the proxy's system as a secret."""
    trusted = pb.CertificateValidationContext(trusted_ca=pb.DataSource(filename=SYSTEM_FILE))
    return pb.Secret(name=name, validation_context=trusted)


def roots(name: str, certificates: str) -> pb.Secret:
    """Return the trusted root certificates (PEM) as a secret; listeners and clusters restrict the identities."""
    trusted = pb.CertificateValidationContext(trusted_ca=pb.DataSource(inline_string=certificates))
    return pb.Secret(name=name, validation_context=trusted)
