"""The certificate of the servers of a replica: it follows the rotation of the root by the active replica."""

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest
from cryptography import x509
from tests.identity.fakes import DOMAIN, START

from headgate.identity.embedded import EmbeddedIssuer
from headgate.identity.keys import SECRET, SecretKeyStore
from headgate.kubernetes.serving_certificate import ServingCertificate, follow_keys, follow_roots
from headgate.latest import Latest, until
from headgate.model.identities import Credential
from headgate.standalone.store.memory import MemoryStore


class ServersOfReplicas(NamedTuple):
    """The authority of the active replica, and the certificate of the servers of another replica."""

    store: MemoryStore
    active: EmbeddedIssuer
    certificate: Latest[Credential]


@pytest.fixture
async def servers() -> AsyncIterator[ServersOfReplicas]:
    store = MemoryStore()
    active, issuer = (EmbeddedIssuer(SecretKeyStore(store), DOMAIN, clock=lambda: START) for _ in range(2))
    await active.load()
    serving = ServingCertificate(issuer, ("headgate.headgate-system.svc",), DOMAIN)
    certificate = await serving.first()
    works = (serving.renew(certificate), follow_roots(issuer, certificate), follow_keys(store, issuer))
    tasks = [asyncio.create_task(work) for work in works]
    yield ServersOfReplicas(store, active, certificate)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def roots(servers: ServersOfReplicas) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(servers.certificate.get().roots.encode())


def issuer_of(servers: ServersOfReplicas) -> x509.Name:
    return x509.load_pem_x509_certificate(servers.certificate.get().chain.encode()).issuer


async def test_servers_have_the_roots_and_the_signer_of_each_step_of_a_rotation(servers: ServersOfReplicas) -> None:
    (old,) = roots(servers)
    await servers.active.add_next("please")
    await until(lambda: len(roots(servers)) == 2, servers.certificate)
    assert issuer_of(servers) == old.subject
    await servers.active.promote_next()
    await until(lambda: issuer_of(servers) != old.subject, servers.certificate)
    assert old in roots(servers)
    await servers.active.remove_previous()
    await until(lambda: old not in roots(servers), servers.certificate)
    (new,) = roots(servers)
    x509.load_pem_x509_certificate(servers.certificate.get().chain.encode()).verify_directly_issued_by(new)


async def test_a_damaged_secret_changes_nothing_until_it_is_repaired(
    servers: ServersOfReplicas, caplog: pytest.LogCaptureFixture
) -> None:
    before = servers.certificate.get()
    secret = await servers.store.get(SECRET)
    await servers.store.update({**secret, "data": {**secret["data"], "tls.crt": "bm90IFBFTQ=="}})
    while "next attempt in" not in caplog.text:
        await asyncio.sleep(0)
    assert servers.certificate.get() is before
    damaged = await servers.store.get(SECRET)
    await servers.store.update({**damaged, "data": secret["data"]})
    other = EmbeddedIssuer(SecretKeyStore(servers.store), DOMAIN, clock=lambda: START)
    await other.add_next("please")
    await until(lambda: len(roots(servers)) == 2, servers.certificate)
