"""Certificates and keys as PEM: decoding and checks, with errors that name the file or object (`source`)."""

import base64
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import TypeAlias

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding

from headgate.identity.issuers import IssueError
from headgate.model.identities import PrivateText
from headgate.resources.meta import timestamp

SigningKey: TypeAlias = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
MIN_RSA_BITS = 2048


def read_certificates(pem: str, source: str) -> tuple[x509.Certificate, ...]:
    """Return the certificates of a PEM text, at least one, in order. Raises IssueError, which names `source`."""
    try:
        certificates = x509.load_pem_x509_certificates(pem.encode())
    except (ValueError, x509.InvalidVersion) as error:
        raise IssueError(
            f"{source} has no readable certificate ({_first_line(error)}); it must be PEM: restore the file, or name another"
        ) from error
    return tuple(certificates)


def read_key(pem: PrivateText, source: str) -> SigningKey:
    """Return a private key. Raises IssueError, which names `source` and never contains the key."""
    try:
        key = serialization.load_pem_private_key(pem.reveal().encode(), password=None)
    except TypeError:
        raise IssueError(
            f"the key in {source} is encrypted; remove the passphrase, and let only the file's owner read it"
        ) from None
    except (ValueError, UnsupportedAlgorithm):  # the library's message may quote the key
        raise IssueError(f"{source} has no readable private key; it must be PEM: restore it from a backup") from None
    if isinstance(key, rsa.RSAPrivateKey) and key.key_size < MIN_RSA_BITS:
        raise IssueError(
            f"the RSA key in {source} has {key.key_size} bits; proxies accept {MIN_RSA_BITS} or more: use a larger key"
        )
    if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise IssueError(
            f"the key in {source} is neither ECDSA nor RSA, the only types that proxies support: use a P-256 key"
        )
    return key


def check_authority(chain: Sequence[x509.Certificate], key: SigningKey, source: str) -> None:
    """Raise IssueError unless the key belongs to the first certificate, which may sign other certificates."""
    first = chain[0]
    if first.public_key() != key.public_key():
        raise IssueError(
            f"the key in {source} does not belong to the certificate {fingerprint(first)} there; use a matching pair"
        )
    check_is_authority(first, source)


def check_is_authority(certificate: x509.Certificate, source: str) -> None:
    """Raise IssueError unless a certificate may sign other certificates."""
    name = f"the certificate {describe(certificate)} in {source}"
    try:
        is_authority = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        is_authority = False
    if not is_authority:
        raise IssueError(
            f"{name} is not a CA certificate (basicConstraints CA:TRUE is missing); use the certificate of an authority"
        )
    try:
        signs = certificate.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    except x509.ExtensionNotFound:
        signs = True
    if not signs:
        raise IssueError(f"{name} may not sign certificates (keyCertSign is missing in keyUsage); use a CA certificate")


def check_chain(chain: Sequence[x509.Certificate], roots: Iterable[x509.Certificate], source: str) -> None:
    """Raise IssueError unless each certificate is issued by the next, and the last is a root or issued by a root."""
    for below, above in pairwise(chain):
        if not is_issued_by(below, above):
            raise IssueError(
                f"the certificates in {source} are not a chain: {describe(below)} is not issued by {describe(above)}, which"
                " follows it; put them in order, the signing certificate first"
            )
    if not any(chain[-1] == root or is_issued_by(chain[-1], root) for root in roots):
        raise IssueError(
            f"the chain in {source} ends with {describe(chain[-1])}, which no trusted root has issued; append the root"
        )


def check_validity(chain: Iterable[x509.Certificate], now: float, source: str) -> None:
    """Raise IssueError when a certificate has expired or is not valid yet."""
    for certificate in chain:
        begin, end = validity(certificate)
        if now > end:
            raise IssueError(
                f"the certificate {describe(certificate)} in {source} expired at {timestamp(end)}, and now it is {timestamp(now)};"
                " replace it (`headgate ca rotate` replaces an embedded one)"
            )
        if now < begin:
            raise IssueError(
                f"the certificate {describe(certificate)} in {source} is not valid before {timestamp(begin)}, and now it is"
                f" {timestamp(now)}: correct this machine's clock, or the clock of the machine that signed it"
            )


def check_permits(chain: Iterable[x509.Certificate], trust_domain: str, source: str) -> None:
    """Raise IssueError when the nameConstraints of a certificate exclude the identities of the trust domain.

    Peers would reject every certificate of such an authority.
    """
    for certificate in chain:
        permitted = _permitted_domains(certificate)
        if permitted and not any(_includes(domain, trust_domain) for domain in permitted):
            raise IssueError(
                f"the certificate {describe(certificate)} in {source} can sign only for the trust domain"
                f" {' or '.join(permitted)}, not for {trust_domain}; correct --trust-domain, or use another authority"
            )


def _permitted_domains(certificate: x509.Certificate) -> Sequence[str]:
    """Return the hosts of URIs for which an authority can sign; empty means all."""
    try:
        subtrees = certificate.extensions.get_extension_for_class(x509.NameConstraints).value.permitted_subtrees or ()
    except x509.ExtensionNotFound:
        return ()
    return [name.value.lower() for name in subtrees if isinstance(name, x509.UniformResourceIdentifier)]


def _includes(constraint: str, host: str) -> bool:
    """Return whether a constraint includes a host: `example.com` only itself, `.example.com` all below it (RFC 5280, 4.2.1.10)."""
    return host.endswith(constraint) if constraint.startswith(".") else host == constraint


def is_issued_by(below: x509.Certificate, above: x509.Certificate) -> bool:
    """Return whether `above` has signed `below`, and `below` names `above` as its issuer."""
    try:
        below.verify_directly_issued_by(above)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def is_root(certificate: x509.Certificate) -> bool:
    """Return whether a certificate is self-signed."""
    return certificate.subject == certificate.issuer and is_issued_by(certificate, certificate)


def validity(certificate: x509.Certificate) -> tuple[float, float]:
    """Return the beginning and end of a certificate's validity, in seconds since the epoch."""
    return certificate.not_valid_before_utc.timestamp(), certificate.not_valid_after_utc.timestamp()


def expiry(chain: str) -> float:
    """Return when the first certificate of a PEM chain expires, in seconds since the epoch."""
    return validity(x509.load_pem_x509_certificate(chain.encode()))[1]


def to_datetime(seconds: float) -> datetime:
    """Return seconds since the epoch as a datetime in UTC, without fractions, as X.509 stores it."""
    return datetime.fromtimestamp(int(seconds), UTC)


def fingerprint(certificate: x509.Certificate) -> str:
    """Return the SHA-256 fingerprint as openssl prints it: `AB:CD:...`."""
    return certificate.fingerprint(hashes.SHA256()).hex(":").upper()


def describe(certificate: x509.Certificate) -> str:
    """Return a description of a certificate for messages: its subject and the beginning of its fingerprint."""
    subject = certificate.subject.rfc4514_string() or "without a subject"
    return f"{subject} ({fingerprint(certificate)[:11]})"


def to_pem(certificates: Iterable[x509.Certificate]) -> str:
    """Return certificates as PEM, without duplicates."""
    unique = dict.fromkeys(certificates)
    return "".join(certificate.public_bytes(Encoding.PEM).decode() for certificate in unique)


def key_to_pem(key: SigningKey) -> PrivateText:
    """Return a private key as PEM (PKCS #8)."""
    plain = serialization.NoEncryption()
    return PrivateText(key.private_bytes(Encoding.PEM, serialization.PrivateFormat.PKCS8, plain).decode())


def to_base64(text: str) -> str:
    """Return a text in base64, as `data` of a Secret stores it."""
    return base64.b64encode(text.encode()).decode()


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].partition(". See ")[0] or type(error).__name__
