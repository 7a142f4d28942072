"""A certificate authority for tests, and the identities that it certifies."""

import datetime as dt

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from headgate.model.identities import Credential, PrivateText, spiffe_id

DOMAIN = TRUST_DOMAIN = "cluster.local"
PEM = serialization.Encoding.PEM


def account(name: str, domain: str = TRUST_DOMAIN) -> str:
    """Return the SPIFFE ID of a ServiceAccount of the namespace `default`."""
    return spiffe_id(domain, "default", name)


WEB, CLIENT, OTHER = account("web"), account("client"), account("other")


class Authority:
    """A certificate authority that signs a certificate for every name."""

    def __init__(self, name: str = "mesh") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        signed = self._certificate(self._name, self._key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        self.pem = signed.sign(self._key, hashes.SHA256()).public_bytes(PEM).decode()

    def issue(self, identity: str, *subjects: str) -> Credential:
        """Return a certificate with the URI name `identity` (unless empty) and the DNS names `subjects`."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [*map(x509.UniformResourceIdentifier, [identity] if identity else []), *map(x509.DNSName, subjects)]
        signed = self._certificate(x509.Name([]), key.public_key()).add_extension(
            x509.SubjectAlternativeName(names), critical=True
        )
        private = key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        chain = signed.sign(self._key, hashes.SHA256()).public_bytes(PEM)
        return Credential(chain=chain.decode(), key=PrivateText(private.decode()), roots=self.pem)

    def _certificate(self, name: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder(self._name, name, key, x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(hours=1))
        )
