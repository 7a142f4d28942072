"""The self-signed certificate of the embedded API, which needs TLS because kubectl sends its token over TLS only."""

import ipaddress
import logging
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from headgate.atomic_file import write_private

NAME = "headgate"
KEY = "api.key"
LIFETIME = timedelta(days=3650)
CLOCK_SKEW = timedelta(hours=1)

log = logging.getLogger(__name__)


class CertificateFiles(NamedTuple):
    """The files of a certificate and its private key. `pem` is the certificate, which clients trust as a CA."""

    path: Path
    key_path: Path
    pem: bytes


def certificate_in(directory: Path) -> CertificateFiles:
    """Return the certificate of a state directory; create it, with a private key file, when it does not exist.

    Files that are no certificate with its key are replaced, with a warning.
    """
    path, key_path = directory / "api.crt", directory / KEY
    exists = path.exists() and key_path.exists()
    fault = _fault(path, key_path) if exists else ""
    if fault:
        log.warning(
            "%s and %s are no certificate with its private key (%s), so headgate creates new ones. Use %s from now on; copies "
            "of the old kubeconfig stop working.",
            path,
            key_path.name,
            fault,
            directory / "kubeconfig",
        )
    if not exists or fault:
        certificate, key = self_signed()
        write_private(key_path, key)
        write_private(path, certificate)
    return CertificateFiles(path, key_path, path.read_bytes())


def _fault(path: Path, key_path: Path) -> str:
    """Return why TLS can't use a certificate and its key; empty if it can."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(path, key_path, password="")
    except (ssl.SSLError, OSError) as error:
        return str(error)
    return ""


def self_signed() -> tuple[bytes, bytes]:
    """Create a certificate for localhost, 127.0.0.1 and ::1; return it and its private key (P-256) in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    addresses = [x509.IPAddress(ipaddress.ip_address(text)) for text in ("127.0.0.1", "::1")]
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost"), *addresses]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(serialization.Encoding.PEM), private
