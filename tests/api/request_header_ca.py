"""A request-header CA for tests: it issues the API server's client certificate and our server certificate."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from headgate.api.certificate import CertificateFiles
from headgate.model.identities import Credential, PrivateText

PEM = serialization.Encoding.PEM


def credential_of(certificate: CertificateFiles) -> Credential:
    """Return a server's certificate in the form in which an issuer returns it."""
    return Credential(
        chain=certificate.path.read_text(),
        key=PrivateText(certificate.key_path.read_text()),
        roots=certificate.pem.decode(),
    )


class FrontProxyAuthority:
    """A CA for the API server's flag `--requestheader-client-ca-file`."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("front-proxy-ca")
        builder = _builder(self._name, self._name, self._key.public_key())
        self._certificate = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True).sign(
            self._key, hashes.SHA256()
        )
        self.pem = self._certificate.public_bytes(PEM)

    def write(self, directory: Path, name: str, *hosts: str) -> tuple[Path, Path]:
        """Write a client certificate, or with `hosts` a server certificate; return the paths of the certificate and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        usage = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = _builder(_name(name), self._name, key.public_key())
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if hosts:
            names = x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        paths = directory / f"{name}.crt", directory / f"{name}.key"
        paths[0].write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(PEM))
        paths[1].write_bytes(
            key.private_bytes(PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption())
        )
        return paths


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
    )
