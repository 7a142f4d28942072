"""Pairs of a certificate and a key for Gateways, such as a proxy serves, and such as it refuses."""

import base64
import datetime as dt
import ssl
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID
from tests.make.objects import Object, obj

PrivateKey: TypeAlias = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
NAME = "shop.example.com"
BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
PASSWORD = BestAvailableEncryption(b"password")
BROKEN = "-----BEGIN {label}-----\nAAAA\n-----END {label}-----\n"


class Pair(NamedTuple):
    """A certificate with its chain, and a key, in PEM."""

    chain: str
    key: str


def certificate(
    key: PrivateKey, *, begin: dt.datetime = BEGIN, validity: dt.timedelta = dt.timedelta(days=50 * 365)
) -> str:
    """Return a certificate in PEM that its own key signs; by default it begins in 2026."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    builder = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + validity)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
    )
    signed = builder.sign(key, None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256())
    return signed.public_bytes(Encoding.PEM).decode()


def of_unknown_version(text: str) -> str:
    """Return a certificate in PEM with version 4, which X.509 does not have."""
    version, unknown = bytes.fromhex("a003020102"), bytes.fromhex("a003020103")
    content = ssl.PEM_cert_to_DER_cert(text).replace(version, unknown, 1)
    return ssl.DER_cert_to_PEM_cert(content)


def pem(
    key: PrivateKey,
    form: PrivateFormat = PrivateFormat.PKCS8,
    encryption: KeySerializationEncryption = NoEncryption(),  # noqa: B008 - it has no state
) -> str:
    """Return a key in PEM."""
    return key.private_bytes(Encoding.PEM, form, encryption).decode()


def secret(name: str, pair: Pair, **more: Any) -> Object:
    """Return a Secret of type kubernetes.io/tls."""
    data = {"tls.crt": pair.chain, "tls.key": pair.key}
    encoded = {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}
    return obj("Secret", name, type="kubernetes.io/tls", data=encoded, **more)


def _pairs() -> Mapping[str, Pair]:
    own, other = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    long, short = (rsa.generate_private_key(65537, bits) for bits in (2048, 1024))
    curves = {"P-256": own, "P-384": ec.generate_private_key(ec.SECP384R1())}
    curves |= {"P-521": ec.generate_private_key(ec.SECP521R1()), "secp256k1": ec.generate_private_key(ec.SECP256K1())}
    keys: Mapping[str, PrivateKey] = {
        **curves,
        "RSA of 2048 bits": long,
        "RSA of 1024 bits": short,
        "Ed25519": ed25519.Ed25519PrivateKey.generate(),
    }
    return {
        **{name: Pair(certificate(key), pem(key)) for name, key in keys.items()},
        "traditional key": Pair(certificate(own), pem(own, PrivateFormat.TraditionalOpenSSL)),
        "certificate before its chain": Pair(certificate(own) + certificate(other), pem(own)),
        "key in tls.crt too": Pair(certificate(own) + pem(own), pem(own)),
        "key of another certificate": Pair(certificate(own), pem(other)),
        "chain before the certificate": Pair(certificate(other) + certificate(own), pem(own)),
        "encrypted key": Pair(certificate(own), pem(own, encryption=PASSWORD)),
        "encrypted traditional key": Pair(certificate(long), pem(long, PrivateFormat.TraditionalOpenSSL, PASSWORD)),
        "broken certificate": Pair(BROKEN.format(label="CERTIFICATE"), pem(own)),
        "certificate of version 4": Pair(of_unknown_version(certificate(own)), pem(own)),
        "chain of version 4": Pair(certificate(own) + of_unknown_version(certificate(other)), pem(own)),
        "broken key": Pair(certificate(own), BROKEN.format(label="PRIVATE KEY")),
        "no certificate": Pair("", pem(own)),
    }


PAIRS = _pairs()
USABLE = (
    "Ed25519",
    "P-256",
    "P-384",
    "P-521",
    "RSA of 2048 bits",
    "traditional key",
    "certificate before its chain",
    "key in tls.crt too",
)
UNUSABLE = tuple(name for name in PAIRS if name not in USABLE)
