"""Signing: new roots, and certificates of workloads (RFC 5280; SPIFFE's X509-SVID). There is no clock here: `now` is given.

A workload's certificate has an empty subject, its SPIFFE ID and DNS names in a critical subjectAltName, and both extended
key usages, because a proxy is client and server. A root may sign such certificates only (path length 0), and of URIs only
those of its trust domain (critical nameConstraints): with its key nobody can pretend to be of another mesh.
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
"""By how much a certificate is valid before it is made: clocks of machines differ."""
ROOT_CLOCK_SKEW = timedelta(hours=1)
_DNS_NAME = re.compile(r"(?:\*\.)?[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*")
_HOST_NAME = re.compile(r"[a-z0-9-]+(?:\.[a-z0-9-]+)*")
"""Trust domains that nameConstraints can hold: Envoy refuses every certificate below one with an underscore."""
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
    """A certificate with its key, as PEM; after it, the intermediates up to (and perhaps with) its root."""

    certificate: str
    key: PrivateText


class Leaf(NamedTuple):
    """A workload's certificate, with the intermediates behind it, and its key."""

    chain: str
    key: PrivateText


class Signer(NamedTuple):
    """An authority, ready to sign. `chain` begins with its own certificate; `place` is where it comes from."""

    chain: tuple[x509.Certificate, ...]
    key: SigningKey
    place: str


class SigningIssuer(abc.ABC):
    """Signs with a key that headgate has (see `issuers.Issuer`)."""

    def __init__(self, trust_domain: str, clock: Clock) -> None:
        self.roots: Latest[str] = Latest("")
        self.signer: Latest[str] = Latest("")
        self.fault: Latest[str] = Latest("")
        self._trust_domain = trust_domain
        self._clock = clock

    async def issue(self, wanted: CertificateSpec, lifetime: timedelta) -> Credential:
        """Return a new key with its certificate. Raises IssueError."""
        check_domain(wanted, self._trust_domain)
        leaf = await asyncio.to_thread(sign, await self._ready(), wanted, self._clock(), lifetime)
        return Credential(chain=leaf.chain, key=leaf.key, roots=self.roots.get())

    @abc.abstractmethod
    async def _ready(self) -> Signer:
        """Return the authority, read now if it has not been. Raises IssueError."""

    def _put_in_force(self, signer: Signer, roots: str) -> None:
        """Publish the roots first: no certificate may be signed by an authority that proxies do not trust yet."""
        self.roots.set(roots)
        self.signer.set(fingerprint(signer.chain[0]))
        self.fault.set("")


def new_root(trust_domain: str, now: float, lifetime: timedelta = ROOT_LIFETIME) -> Authority:
    """Return a self-signed root for a trust domain, with a new P-256 key. Each has a name of its own."""
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


def make_signer(authority: Authority, place: str) -> Signer:
    """Return an authority as a signer. Raises IssueError when its parts can't be used together; validity are not looked at."""
    chain = read_certificates(authority.certificate, place)
    key = read_key(authority.key, place)
    check_authority(chain, key, place)
    return Signer(chain, key, place)


def sign(signer: Signer, wanted: CertificateSpec, now: float, lifetime: timedelta) -> Leaf:
    """Return a certificate with a new P-256 key. It ends no later than its authority. Raises IssueError."""
    check_validity(signer.chain, now, signer.place)
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
        .add_extension(subject_alt_name(wanted), critical=True)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage("digital_signature"), critical=True)
        .add_extension(_BOTH_SIDES, critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(_key_identifier(issuer, signer.key), critical=False)
    )
    certificate = builder.sign(signer.key, hashes.SHA256())
    between = (above for above in signer.chain if above.subject != above.issuer)  # peers have the root already
    return Leaf(to_pem([certificate, *between]), key_to_pem(key))


def request(wanted: CertificateSpec) -> Leaf:
    """Return a certificate signing request, as `chain`, with a new P-256 key. Raises IssueError."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    asked = builder.add_extension(subject_alt_name(wanted), critical=True).sign(key, hashes.SHA256())
    return Leaf(asked.public_bytes(Encoding.PEM).decode(), key_to_pem(key))


def check_domain(wanted: CertificateSpec, trust_domain: str) -> None:
    """Raise IssueError unless an identity is one of the trust domain's."""
    account = parse_id(wanted.identity)
    if account is None or account.domain != trust_domain:
        raise IssueError(
            f"{wanted.identity!r} is not an identity of the trust domain {trust_domain}: it must be"
            f" spiffe://{trust_domain}/ns/NAMESPACE/sa/ACCOUNT"
        )


def subject_alt_name(wanted: CertificateSpec) -> x509.SubjectAlternativeName:
    """Return the names in a certificate: the SPIFFE ID first, and DNS names, each once. Raises IssueError."""
    for name in wanted.subjects:
        if len(name) > _LONGEST_DNS_NAME or not _DNS_NAME.fullmatch(name):
            raise IssueError(
                f"{name!r} can't be in a certificate: subjectNames are DNS names, of letters, digits, hyphens and dots"
            )
    names = [x509.DNSName(name) for name in dict.fromkeys(wanted.subjects)]
    return x509.SubjectAlternativeName([x509.UniformResourceIdentifier(wanted.identity), *names])


def _usage(*usages: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{usage: usage in usages for usage in _USAGES})


def _key_identifier(issuer: x509.Certificate, key: SigningKey) -> x509.AuthorityKeyIdentifier:
    try:
        own = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)


_BOTH_SIDES = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
