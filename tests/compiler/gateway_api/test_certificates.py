"""Secrets of HTTPS listeners: what a proxy would refuse is named on the listener, and the other certificates serve."""

from itertools import chain

import pytest
from tests.make.objects import gateway, listener
from tests.make.server_certificates import PAIRS, UNUSABLE, USABLE, Pair, secret
from tests.make.values import compiled

from headgate.compiler.gateway_api.certificates import pem_blocks, pem_parts


def listener_report(*names, **pairs):
    """Compile a Gateway with one HTTPS listener; return its conditions and the names of the Secrets that it serves."""
    refs = [{"name": name} for name in names]
    item = listener(443, "https", protocol="HTTPS", tls={"certificateRefs": refs}, hostname="shop.example.com")
    status = {"addresses": [{"type": "IPAddress", "value": "10.2.0.1"}]}
    secrets = [secret(name, pair) for name, pair in pairs.items()]
    result = compiled(gateway("edge", item, status=status), *secrets)
    (outcome,) = result.report.gateways
    (found,) = outcome.listeners
    served = [certificate.secret for port in result.mesh.gateways for _, certificate in port.tls]
    return {item.type: item for item in found.conditions}, served


@pytest.mark.parametrize("pair", [PAIRS[name] for name in USABLE], ids=USABLE)
def test_a_listener_serves_each_certificate_that_proxies_support(pair: Pair):
    conditions, served = listener_report("shop", shop=pair)
    assert conditions["ResolvedRefs"].status
    assert served == ["default/shop"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("key of another certificate", "does not belong to the first certificate"),
        ("chain before the certificate", "does not belong to the first certificate"),
        ("encrypted key", "encrypted key"),
        ("encrypted traditional key", "encrypted key"),
        ("RSA of 1024 bits", "RSA key of 1024 bits"),
        ("secp256k1", "a key that proxies do not support"),
        ("broken certificate", "a certificate in tls.crt that can't be read"),
        ("certificate of version 4", "a certificate in tls.crt that can't be read"),
        ("chain of version 4", "a certificate in tls.crt that can't be read"),
        ("broken key", "a key in tls.key that can't be read"),
        ("no certificate", "not a TLS Secret"),
    ],
)
def test_a_listener_names_the_mistake_of_its_secret(name: str, words: str):
    conditions, served = listener_report("shop", shop=PAIRS[name])
    refs = conditions["ResolvedRefs"]
    assert (refs.status, refs.reason) == (False, "InvalidCertificateRef")
    assert "spec.listeners[0].tls.certificateRefs[0].name: Secret default/shop " in refs.message
    assert words in refs.message
    assert served == []
    assert not conditions["Programmed"].status


def test_every_pair_has_a_test():
    assert {*USABLE, *UNUSABLE} == set(PAIRS)


def test_the_usable_certificates_serve_while_one_is_missing():
    conditions, served = listener_report("gone", "rsa", "ecdsa", rsa=PAIRS["RSA of 2048 bits"], ecdsa=PAIRS["P-256"])
    assert served == ["default/rsa", "default/ecdsa"]
    refs = conditions["ResolvedRefs"]
    assert (refs.status, refs.reason) == (False, "InvalidCertificateRef")
    assert "certificateRefs[0].name: Secret default/gone not found" in refs.message
    assert "Programmed" not in conditions or conditions["Programmed"].reason == "Pending"


@pytest.mark.parametrize(
    "begin",
    ["-----BEGIN A-----\n", "-----BEGIN A-----" + " " * 50, "-----BEGIN CERTIFICATE-----\n-----END CERT"],
    ids=["no end", "spaces", "another end"],
)
def test_each_byte_of_a_text_is_in_one_part_that_is_searched(begin: str):
    """A ConfigMap with 1 MB of beginnings took minutes, in which headgate did nothing else."""
    text = (begin * (1_000_000 // len(begin)) + PAIRS["P-256"].chain).encode()
    assert b"".join(pem_parts(text)) == text
    assert pem_blocks(text, "CERTIFICATE") == [PAIRS["P-256"].chain]
    assert pem_blocks(b"-----BEGIN A-----" + b" " * 1_000_000, "CERTIFICATE") == []


def test_a_block_ends_with_its_own_label():
    pair = PAIRS["traditional key"]
    text = f"comment\n{pair.key}-----BEGIN A-----\nAAAA\n-----END B-----\n{pair.chain}".encode()
    assert [*chain(pem_blocks(text, "PRIVATE KEY"), pem_blocks(text, "CERTIFICATE"))] == [pair.key, pair.chain]
