"""Create root certificates, and sign certificates of workloads (RFC 5280; SPIFFE's X509-SVID). Callers pass the time as `now`.

A workload's certificate has an empty subject, its SPIFFE ID and DNS names in a critical subjectAltName, and both extended
key usages, because a proxy is client and server. A root can only sign such certificates (path length 0), and only for SPIFFE
IDs of its trust domain (critical nameConstraints), so its key can't impersonate workloads of another mesh.
"""

import abc
import asyncio
import re
from datetime import timedelta
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from headgate.identity.certificates import (
    SigningKey,
    check_authority,
    check_validity,
    fingerprint,
    key_to_pem,
    read_certificates,
    read_key,
    to_datetime,
    to_pem,
    validity,
)
from headgate.identity.issuers import CertificateSpec, Clock, IssueError
from headgate.latest import Latest
from headgate.model.identities import Credential, PrivateText, parse_id
from headgate.resources.meta import Value

ROOT_LIFETIME = timedelta(days=365)
CLOCK_SKEW = timedelta(minutes=5)
"""The validity of a certificate begins this long before it is signed, because the clocks of machines differ."""
ROOT_CLOCK_SKEW = timedelta(hours=1)
_DNS_NAME = re.compile(r"(?:\*\.)?[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*")
_HOST_NAME = re.compile(r"[a-z0-9-]+(?:\.[a-z0-9-]+)*")
"""The pattern of trust domains that nameConstraints may contain. Envoy rejects a certificate if its constraint has an
underscore."""
_LONGEST_DNS_NAME = 253
_USAGES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


class Authority(Value, frozen=True, kw_only=True):
    """A signing certificate and its key as PEM. Intermediates and optionally the root follow in `certificate`."""

    certificate: str
    key: PrivateText


class Leaf(NamedTuple):
    """A workload's certificate followed by the intermediates, and its key."""

    chain: str
    key: PrivateText


class Signer(NamedTuple):
    """A decoded authority. `chain` begins with its own certificate; `source` names its file or object in messages."""

    chain: tuple[x509.Certificate, ...]
    key: SigningKey
    source: str


class SigningIssuer(abc.ABC):
    """The base class of issuers that sign with a key that headgate stores or reads (see `issuers.Issuer`)."""

    def __init__(self, trust_domain: str, clock: Clock) -> None:
        self.roots: Latest[str] = Latest("")
        self.signer: Latest[str] = Latest("")
        self.fault: Latest[str] = Latest("")
        self._trust_domain = trust_domain
        self._clock = clock

    async def issue(self, spec: CertificateSpec, lifetime: timedelta) -> Credential:
        """Return a new key and its certificate. Raises IssueError."""
        check_domain(spec, self._trust_domain)
        signer = await self._ready()
        now = self._clock()
        leaf = await asyncio.to_thread(sign, signer, spec, now, lifetime)
        return Credential(chain=leaf.chain, key=leaf.key, roots=self.roots.get(), issued=now)

    @abc.abstractmethod
    async def _ready(self) -> Signer:
        """Return the authority; read it first if necessary. Raises IssueError."""

    def _activate(self, signer: Signer, roots: str) -> None:
        """Publish the authority, its roots first: proxies must trust an authority before it signs a certificate."""
        self.roots.set(roots)
        self.signer.set(fingerprint(signer.chain[0]))
        self.fault.set("")


def new_root(trust_domain: str, now: float, lifetime: timedelta = ROOT_LIFETIME) -> Authority:
    """Return a self-signed root for a trust domain, with a new P-256 key and a unique name."""
    key = ec.generate_private_key(ec.SECP256R1())
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"headgate root {identifier.digest.hex()[:8]}")])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(to_datetime(now) - ROOT_CLOCK_SKEW)
        .not_valid_after(to_datetime(now) + lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage("key_cert_sign", "crl_sign"), critical=True)
        .add_extension(identifier, critical=False)
    )
    if _HOST_NAME.fullmatch(trust_domain):
        permitted = [x509.UniformResourceIdentifier(trust_domain)]
        builder = builder.add_extension(x509.NameConstraints(permitted, excluded_subtrees=None), critical=True)
    certificate = builder.sign(key, hashes.SHA256())
    return Authority(certificate=to_pem([certificate]), key=key_to_pem(key))


def make_signer(authority: Authority, source: str) -> Signer:
    """Decode an authority. Raises IssueError when certificate and key don't match. The validity is not checked."""
    chain = read_certificates(authority.certificate, source)
    key = read_key(authority.key, source)
    check_authority(chain, key, source)
    return Signer(chain, key, source)


def sign(signer: Signer, spec: CertificateSpec, now: float, lifetime: timedelta) -> Leaf:
    """Return a certificate with a new P-256 key. It expires no later than its authority. Raises IssueError."""
    check_validity(signer.chain, now, signer.source)
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = signer.chain[0]
    begin = max(now - CLOCK_SKEW.total_seconds(), validity(issuer)[0])
    end = min(now + lifetime.total_seconds(), *(validity(certificate)[1] for certificate in signer.chain))
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(to_datetime(begin))
        .not_valid_after(to_datetime(end))
        .add_extension(subject_alt_name(spec), critical=True)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage("digital_signature"), critical=True)
        .add_extension(_CLIENT_AND_SERVER, critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(_key_identifier(issuer, signer.key), critical=False)
    )
    certificate = builder.sign(signer.key, hashes.SHA256())
    # Peers have the root already, so the chain omits it.
    between = (above for above in signer.chain if above.subject != above.issuer)
    return Leaf(to_pem([certificate, *between]), key_to_pem(key))


def signing_request(spec: CertificateSpec) -> Leaf:
    """Return a new P-256 key and, as `chain`, its certificate signing request. Raises IssueError."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    csr = builder.add_extension(subject_alt_name(spec), critical=True).sign(key, hashes.SHA256())
    return Leaf(csr.public_bytes(Encoding.PEM).decode(), key_to_pem(key))


def check_domain(spec: CertificateSpec, trust_domain: str) -> None:
    """Raise IssueError unless the identity belongs to the trust domain."""
    account = parse_id(spec.identity)
    if account is None or account.domain != trust_domain:
        raise IssueError(
            f"{spec.identity!r} is not an identity of the trust domain {trust_domain}: it must have the form"
            f" spiffe://{trust_domain}/ns/NAMESPACE/sa/ACCOUNT"
        )


def subject_alt_name(spec: CertificateSpec) -> x509.SubjectAlternativeName:
    """Return the names of a certificate: the SPIFFE ID, then each DNS name once. Raises IssueError."""
    for name in spec.subjects:
        if len(name) > _LONGEST_DNS_NAME or not _DNS_NAME.fullmatch(name):
            raise IssueError(
                f"{name!r} can't be in a certificate: each of subjectNames must be a DNS name of letters, digits, hyphens and dots"
            )
    names = [x509.DNSName(name) for name in dict.fromkeys(spec.subjects)]
    return x509.SubjectAlternativeName([x509.UniformResourceIdentifier(spec.identity), *names])


def _usage(*usages: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{usage: usage in usages for usage in _USAGES})


def _key_identifier(issuer: x509.Certificate, key: SigningKey) -> x509.AuthorityKeyIdentifier:
    try:
        own = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)


_CLIENT_AND_SERVER = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
