"""Read the certificates of HTTPS and TLS listeners from their Secrets, and find those that a proxy would refuse.

Of several references, the usable ones serve: a proxy selects one by the names in the certificates and the type of key that
the client accepts.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from headgate.compiler.reasons import Reason
from headgate.compiler.references import grant_hint, permitted
from headgate.compiler.report import Finding
from headgate.compiler.snapshot import Snapshot
from headgate.model.edge_tls import ListenerCertificate
from headgate.model.identities import PrivateText
from headgate.resources.core.secret import Secret
from headgate.resources.gateway_api.gateway import Gateway, Listener, SecretReference
from headgate.resources.meta import Key

_BEGIN = b"-----BEGIN "
_BLOCK = re.compile(_BEGIN + rb"(?P<label>[A-Z0-9 ]+)-----\s[A-Za-z0-9+/=\s,:-]+?-----END (?P=label)-----")
_CREATE = "create it with kubectl create secret tls"
SMALLEST_RSA_BITS = 2048
CURVES = ("secp256r1", "secp384r1", "secp521r1")
_REMEMBERED = 1_000  # texts, and pairs of certificate and key, whose check is known: it takes 0.1 ms and 0.3 ms


def listener_certificates(
    snapshot: Snapshot, key: Key, listener: Listener, field: str
) -> Iterator[ListenerCertificate | Finding]:
    """Yield the certificate for each reference of a listener that ends TLS, or a finding that says why it can't be used."""
    refs = listener.tls.certificate_refs if listener.tls else ()
    if not refs:
        message = f"the {listener.protocol} listener {listener.name} has no certificate; refer to a Secret of type kubernetes.io/tls"
        yield Finding(key, Reason.INVALID_CERTIFICATE_REF, field, message)
    for index, ref in enumerate(refs):
        yield _from_secret(snapshot, key, ref, f"{field}[{index}]")


def client_certificate(snapshot: Snapshot, key: Key, gateway: Gateway) -> ListenerCertificate | Finding | None:
    """Return the certificate that a Gateway presents to backends, or a finding that says why it can't be used."""
    ref, field = gateway.spec.tls.backend.client_certificate_ref, "spec.tls.backend.clientCertificateRef"
    return _from_secret(snapshot, key, ref, field, Reason.INVALID_CLIENT_CERTIFICATE_REF) if ref else None


def _from_secret(
    snapshot: Snapshot,
    key: Key,
    ref: SecretReference,
    field: str,
    reason: Reason = Reason.INVALID_CERTIFICATE_REF,
) -> ListenerCertificate | Finding:
    name = f"{ref.namespace or key.namespace}/{ref.name}"
    if (ref.group, ref.kind) == ("", "Secret") and not permitted(snapshot, key, name, kind="Secret"):
        message = f"Secret {name} is in another namespace, which does not allow this reference; "
        hint = grant_hint(key, name, kind="Secret")
        return Finding(key, Reason.REF_NOT_PERMITTED, f"{field}.namespace", message + hint)
    secret = snapshot.objects.get(Key("", "Secret", *name.split("/")))
    if (ref.group, ref.kind) != ("", "Secret"):
        message = f"{ref.kind} {ref.name} is not a Secret; write kind: Secret"
    elif not isinstance(secret, Secret):
        message = f"Secret {name} not found; create it or correct the name"
    else:
        certificate = _read(name, secret)
        if isinstance(certificate, ListenerCertificate):
            return certificate
        message = f"Secret {name} {certificate}"
    return Finding(key, reason, f"{field}.name", message)


def _read(name: str, secret: Secret) -> ListenerCertificate | str:
    """Return the certificate and key of a TLS Secret, or what is wrong with it.

    Only certificates are read from `tls.crt`, because some tools put the key there too.
    """
    chain, key = secret.certificate
    certificates = pem_blocks(chain, "CERTIFICATE")
    keys = pem_blocks(key, "PRIVATE KEY")
    if secret.type != "kubernetes.io/tls" or not certificates or not keys:
        return f"is not a TLS Secret with certificate and key in PEM; {_CREATE}"
    text = "".join(certificates)
    return _mistake(text, keys[0]) or ListenerCertificate(secret=name, chain=text, key=PrivateText(keys[0]))


@lru_cache(_REMEMBERED)
def _mistake(chain: str, key: str) -> str:
    """Return why a proxy would refuse a certificate with its chain and key; empty if it would not."""
    certificates = readable_certificates(chain.encode())
    public = _public_key(certificates[0]) if certificates else None
    if public is None:
        return f"has a certificate in tls.crt that can't be read; {_CREATE}"
    try:
        private = load_pem_private_key(key.encode(), None)
    except TypeError:
        return (
            "has an encrypted key in tls.key, and no proxy has its password; decrypt it, for example with openssl pkey"
        )
    except (ValueError, UnsupportedAlgorithm):
        return f"has a key in tls.key that can't be read; {_CREATE}"
    form = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    if private.public_key().public_bytes(*form) != public.public_bytes(*form):
        return "has a key in tls.key that does not belong to the first certificate in tls.crt; put the server's certificate first"
    return _unsupported(public)


def _unsupported(public: CertificatePublicKeyTypes) -> str:
    """Return why proxies do not support a key; empty if they do."""
    if isinstance(public, RSAPublicKey):
        short = public.key_size < SMALLEST_RSA_BITS
        return (
            f"has an RSA key of {public.key_size} bits, and proxies need {SMALLEST_RSA_BITS}; use a longer one"
            if short
            else ""
        )
    if isinstance(public, Ed25519PublicKey) or (
        isinstance(public, EllipticCurvePublicKey) and public.curve.name in CURVES
    ):
        return ""
    return "has a key that proxies do not support; use RSA, Ed25519, or ECDSA with the curve P-256, P-384 or P-521"


@lru_cache(_REMEMBERED)
def readable_certificates(pem: bytes) -> tuple[str, ...]:
    """Return the certificates in a PEM text, each as PEM; none if a proxy could not read one of them."""
    certificates = pem_blocks(pem, "CERTIFICATE")
    return tuple(certificates) if all(map(_public_key, certificates)) else ()


def _public_key(certificate: str) -> CertificatePublicKeyTypes | None:
    """Return the public key of a certificate in PEM; None if one of the two can't be read."""
    try:
        return x509.load_pem_x509_certificate(certificate.encode()).public_key()
    except (ValueError, UnsupportedAlgorithm, x509.InvalidVersion):  # the last one is no ValueError
        return None


def pem_blocks(pem: bytes, label: str) -> list[str]:
    """Return the PEM blocks whose label ends with `label`: `EC PRIVATE KEY` and `PRIVATE KEY` are both keys."""
    matches = (match for text in pem_parts(pem) if (match := _BLOCK.match(text)))
    return [f"{match[0].decode()}\n" for match in matches if match["label"].endswith(label.encode())]


def pem_parts(pem: bytes) -> list[bytes]:
    """Return the parts of a text that each begin a PEM block, up to the next one.

    A search in the whole text would read it again from each beginning without an end: 1 MB of them takes minutes.
    """
    return [_BEGIN + text for text in pem.split(_BEGIN)[1:]]
