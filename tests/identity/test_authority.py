"""Tests of roots and certificates of workloads, checked with openssl and the cryptography library."""

import time
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID
from tests.identity.fakes import DAY, DOMAIN, START, openssl, root, verify, wanted

from headgate.identity.authority import Authority, make_signer, new_root, sign, signing_request
from headgate.identity.certificates import key_to_pem, read_certificates, read_key
from headgate.identity.issuers import CertificateSpec, IssueError
from headgate.model.identities import PrivateText

LIFETIME = timedelta(hours=24)


def leaf_of(authority: Authority, item: CertificateSpec | None = None, now: float = START) -> str:
    return sign(make_signer(authority, "the test"), item or wanted(), now, LIFETIME).chain


def parsed(pem: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem.encode())


def test_a_certificate_conforms_to_the_x509_svid_specification() -> None:
    """R70, R75: the identity is a URI, the names are DNS names, both in a critical subjectAltName."""
    authority = root()
    certificate = parsed(leaf_of(authority, wanted("web", "foo", "bar", "foo")))
    found = {extension.oid._name: extension for extension in certificate.extensions}
    names = found["subjectAltName"]
    assert [name.value for name in names.value] == ["spiffe://cluster.local/ns/default/sa/web", "foo", "bar"]
    assert names.critical
    assert not certificate.subject
    assert found["basicConstraints"].critical
    assert not found["basicConstraints"].value.ca
    assert found["keyUsage"].critical
    assert found["keyUsage"].value.digital_signature
    assert not found["keyUsage"].value.key_cert_sign
    both = {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    assert set(found["extendedKeyUsage"].value) == both
    above = parsed(authority.certificate)
    own = above.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    assert found["authorityKeyIdentifier"].value.key_identifier == own.key_identifier
    assert isinstance(certificate.public_key().curve, ec.SECP256R1)
    certificate.verify_directly_issued_by(above)


def test_a_root_is_constrained_to_workloads_of_its_trust_domain() -> None:
    certificate = parsed(root().certificate)
    limits = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    assert (limits.critical, limits.value.ca, limits.value.path_length) == (True, True, 0)
    own = certificate.extensions.get_extension_for_class(x509.NameConstraints)
    assert own.critical
    assert [name.value for name in own.value.permitted_subtrees or ()] == [DOMAIN]


def test_openssl_accepts_a_certificate_for_clients_and_for_servers(tmp_path: Path) -> None:
    now = time.time()
    authority = root(now)
    chain = leaf_of(authority, wanted("web", "foo"), now)
    for purpose in ("sslclient", "sslserver"):
        assert verify(tmp_path, chain, authority.certificate, "-purpose", purpose) == ""
    assert "unable to get local issuer" in verify(tmp_path, chain, root(now).certificate)
    text = openssl("x509", "-in", tmp_path / "chain.pem", "-noout", "-text").stdout
    assert "URI:spiffe://cluster.local/ns/default/sa/web, DNS:foo" in text


def test_openssl_rejects_a_certificate_of_another_trust_domain(tmp_path: Path) -> None:
    now = time.time()
    authority = root(now)
    other = leaf_of(authority, wanted(domain="example.org"), now)
    assert "permitted subtree violation" in verify(tmp_path, other, authority.certificate)


def test_openssl_rejects_an_intermediate_signed_by_a_root(tmp_path: Path) -> None:
    now = time.time()
    authority, below = root(now), make_signer(root(now), "the test")
    chain = sign(make_signer(authority, "the test"), wanted(), now, LIFETIME)
    pretender = below._replace(chain=(parsed(chain.chain),), key=read_key(chain.key, "the test"))
    forged = sign(pretender, wanted("admin"), now, LIFETIME).chain + chain.chain
    assert verify(tmp_path, forged, authority.certificate) != ""


def test_serial_numbers_and_keys_are_unique() -> None:
    authority = root()
    found = [parsed(leaf_of(authority)) for _ in range(50)]
    assert len({item.serial_number for item in found}) == 50
    assert max(item.serial_number for item in found).bit_length() > 112
    assert len({item.public_key().public_numbers() for item in found}) == 50


def test_a_certificate_is_valid_from_before_now_and_expires_no_later_than_its_root() -> None:
    authority = root(hours=30)
    first = parsed(leaf_of(authority))
    assert first.not_valid_before_utc.timestamp() == START - 300
    assert first.not_valid_after_utc.timestamp() == START + DAY
    late = parsed(leaf_of(authority, now=START + DAY))
    assert late.not_valid_after_utc == parsed(authority.certificate).not_valid_after_utc


def test_a_root_signs_only_while_it_is_valid() -> None:
    authority = root(days=1)
    with pytest.raises(
        IssueError, match="expired at 2027-01-16T08:00:00Z, and now it is 2027-01-17T08:00:00Z"
    ) as expired:
        leaf_of(authority, now=START + 2 * DAY)
    assert "headgate ca rotate" in str(expired.value)
    with pytest.raises(IssueError, match=r"is not valid before .* correct this machine's clock"):
        leaf_of(authority, now=START - DAY)


@pytest.mark.parametrize("name", ["not a name", "ö.example", "", "a" * 64, "a..b", ".".join(["abcdefg"] * 40)])
def test_the_error_about_an_invalid_dns_name_contains_the_name(name: str) -> None:
    with pytest.raises(IssueError, match="each of subjectNames must be a DNS name"):
        leaf_of(root(), wanted("web", name))


def test_a_trust_domain_with_an_underscore_gets_no_name_constraint() -> None:
    with pytest.raises(x509.ExtensionNotFound):
        parsed(root(domain="my_mesh").certificate).extensions.get_extension_for_class(x509.NameConstraints)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("nonsense", "no readable private key"),
        (key_to_pem(ec.generate_private_key(ec.SECP256R1())).reveal(), "does not belong to the certificate"),
        (key_to_pem(rsa.generate_private_key(65537, 1024)).reveal(), "has 1024 bits"),
    ],
)
def test_the_error_about_an_unusable_key_names_its_source_and_does_not_contain_the_key(key: str, words: str) -> None:
    broken = Authority(certificate=root().certificate, key=PrivateText(key))
    with pytest.raises(IssueError, match=words) as error:
        make_signer(broken, "/etc/ca")
    assert "/etc/ca" in str(error.value)
    assert key[:40] not in str(error.value)


def test_a_key_with_a_passphrase_is_rejected() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    secret = serialization.BestAvailableEncryption(b"secret")
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret).decode()
    with pytest.raises(IssueError, match="is encrypted; remove the passphrase"):
        make_signer(Authority(certificate=root().certificate, key=PrivateText(pem)), "/etc/ca")


def test_a_workloads_certificate_is_rejected_as_a_signer() -> None:
    leaf = sign(make_signer(root(), "the test"), wanted(), START, LIFETIME)
    with pytest.raises(IssueError, match="is not a CA certificate"):
        make_signer(Authority(certificate=leaf.chain, key=leaf.key), "/etc/ca")


def test_an_rsa_authority_signs_certificates(tmp_path: Path) -> None:
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=ours", "-addext", "keyUsage=critical,keyCertSign", "-days", "2",
            "-keyout", tmp_path / "key.pem", "-out", tmp_path / "ca.pem")  # fmt: skip
    authority = Authority(
        certificate=(tmp_path / "ca.pem").read_text(), key=PrivateText((tmp_path / "key.pem").read_text())
    )
    assert verify(tmp_path, leaf_of(authority, now=time.time()), authority.certificate) == ""


def test_openssl_verifies_a_signing_request(tmp_path: Path) -> None:
    (tmp_path / "csr.pem").write_text(signing_request(wanted("web", "foo")).chain)
    shown = openssl("req", "-in", tmp_path / "csr.pem", "-noout", "-text", "-verify")
    assert shown.returncode == 0
    assert "URI:spiffe://cluster.local/ns/default/sa/web, DNS:foo" in shown.stdout


def test_two_roots_with_distinct_names_can_be_trusted_together() -> None:
    found = [read_certificates(new_root(DOMAIN, START).certificate, "the test")[0] for _ in range(3)]
    assert len({certificate.subject for certificate in found}) == 3
