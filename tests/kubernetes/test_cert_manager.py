"""Certificates by cert-manager: requests, answers, and rejections with cert-manager's message."""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from tests.identity.fakes import DAY, DOMAIN, START, root, verify, wanted

from headgate.identity.authority import Authority, make_signer, sign
from headgate.identity.certificates import to_datetime, to_pem
from headgate.identity.issuers import IssueError
from headgate.kubernetes.cert_manager import CERTIFICATE_REQUEST, CertManagerIssuer
from headgate.objects.lifecycle import namespace
from headgate.options import IssuerRef
from headgate.resources.kind_set import KindSet
from headgate.resources.meta import Object
from headgate.resources.registry import key_of
from headgate.standalone.store.memory import MemoryStore

LIFETIME = timedelta(hours=24)
Answer = Callable[[Object], Mapping[str, Any]]


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


class CertManager:
    """A fake cert-manager that answers requests like its CA issuer, or with a given answer."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.authority = root(days=30)
        self.requests: list[Object] = []
        self.answer: Answer = self.signed

    async def run(self) -> None:
        async for change in self.store.watch("cert-manager.io", "CertificateRequest", since="0"):
            if change.type == "ADDED":
                self.requests.append(change.object)
                await self.store.update({**change.object, "status": self.answer(change.object)}, subresource="status")

    def signed(self, obj: Object) -> Mapping[str, Any]:
        asked = x509.load_pem_x509_csr(base64.b64decode(obj["spec"]["request"]))
        signer = make_signer(self.authority, "cert-manager")
        builder = (
            x509.CertificateBuilder()
            .subject_name(asked.subject)
            .issuer_name(signer.chain[0].subject)
            .public_key(asked.public_key())
            .serial_number(7)
            .not_valid_before(to_datetime(START))
            .not_valid_after(to_datetime(START + DAY))
        )
        for extension in asked.extensions:
            builder = builder.add_extension(extension.value, extension.critical)
        chain = to_pem([builder.sign(signer.key, hashes.SHA256())])
        ready = {"type": "Ready", "status": "True", "reason": "Issued"}
        return {"conditions": [ready], "certificate": encoded(chain), "ca": encoded(self.authority.certificate)}


@pytest.fixture
async def manager() -> AsyncIterator[CertManager]:
    """A fake cert-manager that answers the CertificateRequests of its store, in which cert-manager is installed."""
    store = MemoryStore()
    store.kinds = KindSet((*store.kinds.kinds, CERTIFICATE_REQUEST))
    await store.create(namespace("headgate-system"))
    manager = CertManager(store)
    running = asyncio.create_task(manager.run())
    yield manager
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


def issuer(
    manager: CertManager, trusted: Path | None = None, patience: timedelta = timedelta(minutes=1)
) -> CertManagerIssuer:
    ref = IssuerRef(name="mesh", kind="ClusterIssuer", patience=patience)
    return CertManagerIssuer(manager.store, ref, DOMAIN, clock=lambda: START + 1, trusted=trusted)


async def requests_left(manager: CertManager) -> int:
    return len((await manager.store.list("cert-manager.io", "CertificateRequest")).items)


async def test_a_request_is_created_answered_and_deleted(manager: CertManager, tmp_path: Path) -> None:
    found = issuer(manager)
    credential = await found.issue(wanted("web", "foo"), LIFETIME)
    assert credential.roots == found.roots.get() == manager.authority.certificate
    assert (
        verify(tmp_path, credential.chain, credential.roots, "-attime", str(int(START) + 2), "-partial_chain") != "none"
    )
    names = x509.load_pem_x509_certificate(credential.chain.encode()).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert [name.value for name in names.value] == [wanted().identity, "foo"]
    (request,) = manager.requests
    spec = request["spec"]
    assert spec["issuerRef"] == {"name": "mesh", "kind": "ClusterIssuer", "group": "cert-manager.io"}
    assert {"client auth", "server auth"} <= set(spec["usages"])
    assert spec["duration"] == "86400s"
    assert credential.key.reveal() not in str(request)
    assert await requests_left(manager) == 0


def condition(type: str, status: str, reason: str, message: str) -> Mapping[str, Any]:
    return {"conditions": [{"type": type, "status": status, "reason": reason, "message": message}]}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (condition("Denied", "True", "policy.cert-manager.io", "no such account"), "Denied: no such account"),
        (
            condition("Ready", "False", "Failed", "CA is gone"),
            "(Failed: CA is gone); look at `kubectl describe clusterissuer",
        ),
        (condition("Ready", "False", "Denied", "denied by policy"), "(Denied: denied by policy); let the policy"),
        (condition("InvalidRequest", "True", "X", "too long"), "(InvalidRequest: too long)"),
        ({**condition("Ready", "True", "Issued", ""), "certificate": "%%%"}, "is not base64-encoded PEM"),
    ],
)
async def test_a_rejection_has_cert_managers_message(manager: CertManager, answer: Any, words: str) -> None:
    manager.answer = lambda _: answer
    with pytest.raises(IssueError) as error:
        await issuer(manager).issue(wanted(), LIFETIME)
    assert words in str(error.value)
    assert await requests_left(manager) == 0


async def test_a_request_without_an_answer_times_out(manager: CertManager) -> None:
    manager.answer = lambda _: condition("Ready", "False", "Pending", "waiting for approval")
    with pytest.raises(IssueError, match="ClusterIssuer mesh has not answered within 0 s"):
        await issuer(manager, patience=timedelta()).issue(wanted(), LIFETIME)
    assert await requests_left(manager) == 0


async def test_the_issuer_waits_for_a_late_answer(manager: CertManager) -> None:
    manager.answer = lambda _: condition("Ready", "False", "Pending", "waiting for approval")
    asked = asyncio.create_task(issuer(manager).issue(wanted(), LIFETIME))
    async for change in manager.store.watch("cert-manager.io", "CertificateRequest", since="0"):
        if change.type == "MODIFIED":  # pending now
            await manager.store.update({**change.object, "status": manager.signed(change.object)}, subresource="status")
            break
    assert (await asked).roots == manager.authority.certificate


async def test_a_deleted_request_is_an_issue_error(manager: CertManager) -> None:
    manager.answer = lambda _: condition("Ready", "False", "Pending", "waiting for approval")
    asked = asyncio.create_task(issuer(manager).issue(wanted(), LIFETIME))
    async for change in manager.store.watch("cert-manager.io", "CertificateRequest", since="0"):
        if change.type == "MODIFIED":
            await manager.store.delete(key_of(change.object))
            break
    with pytest.raises(IssueError, match="was deleted before it was answered"):
        await asked


async def test_a_certificate_for_another_key_or_without_the_identity_is_not_used(manager: CertManager) -> None:
    def foreign(authority: Authority) -> Mapping[str, Any]:
        chain = sign(make_signer(authority, "x"), wanted(), START, LIFETIME).chain
        return {
            **condition("Ready", "True", "Issued", ""),
            "certificate": encoded(chain),
            "ca": encoded(authority.certificate),
        }

    manager.answer = lambda _: foreign(manager.authority)
    with pytest.raises(IssueError, match="is a certificate for another key"):
        await issuer(manager).issue(wanted(), LIFETIME)
    manager.answer = manager.signed
    real = manager.signed

    def nameless(obj: Object) -> Mapping[str, Any]:
        other = CertManager(manager.store)
        other.authority = manager.authority
        asked = x509.load_pem_x509_csr(base64.b64decode(obj["spec"]["request"]))
        signer = make_signer(manager.authority, "x")
        bare = (
            x509.CertificateBuilder(issuer_name=signer.chain[0].subject, subject_name=asked.subject)
            .public_key(asked.public_key())
            .serial_number(7)
            .not_valid_before(to_datetime(START))
            .not_valid_after(to_datetime(START + DAY))
            .sign(signer.key, hashes.SHA256())
        )
        return {**real(obj), "certificate": encoded(to_pem([bare]))}

    manager.answer = nameless
    with pytest.raises(
        IssueError, match=r"lacks the names spiffe://cluster.local/ns/default/sa/web; configure the issuer"
    ):
        await issuer(manager).issue(wanted(), LIFETIME)


async def test_only_the_roots_of_the_file_are_trusted(manager: CertManager, tmp_path: Path) -> None:
    trusted = tmp_path / "roots.pem"
    with pytest.raises(IssueError, match=r"the root certificates in .*roots.pem can't be read"):
        await issuer(manager, trusted).issue(wanted(), LIFETIME)
    trusted.write_text(root().certificate)
    with pytest.raises(IssueError, match="which no trusted root has issued"):
        await issuer(manager, trusted).issue(wanted(), LIFETIME)
    trusted.write_text(root().certificate + manager.authority.certificate)
    credential = await issuer(manager, trusted).issue(wanted(), LIFETIME)
    assert credential.roots == trusted.read_text()


async def test_a_new_root_of_cert_manager_is_trusted_in_addition_to_the_old_one(manager: CertManager) -> None:
    found = issuer(manager)
    await found.issue(wanted(), LIFETIME)
    old = manager.authority.certificate
    manager.authority = root(days=30)
    await found.issue(wanted(), LIFETIME)
    assert found.roots.get() == old + manager.authority.certificate


async def test_an_answer_without_a_root_is_an_error_that_asks_for_a_file(manager: CertManager) -> None:
    manager.answer = lambda obj: {**manager.signed(obj), "ca": ""}
    with pytest.raises(IssueError, match=r"names no root .*; give the roots as a file"):
        await issuer(manager).issue(wanted(), LIFETIME)


async def test_the_error_says_that_cert_manager_must_be_installed() -> None:
    ref = IssuerRef(name="mesh")
    with pytest.raises(IssueError, match="install cert-manager, or choose another authority"):
        await CertManagerIssuer(MemoryStore(), ref, DOMAIN, clock=lambda: START).issue(wanted(), LIFETIME)
