"""Tests of the ConfigMap with the state of the authority, and of requests for a rotation by annotation."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs
from tests.identity.fakes import DOMAIN, Holders, MemoryKeyStore, Time, wanted

from headgate.errors import NotFound
from headgate.identity.authority import new_root
from headgate.identity.ca_status import CaStatusPublisher
from headgate.identity.certificates import read_certificates
from headgate.identity.credentials import Credentials
from headgate.identity.embedded import EmbeddedIssuer
from headgate.identity.keys import FileKeyStore, SecretKeyStore, StoredAuthority
from headgate.identity.rotation import Rotation
from headgate.latest import until
from headgate.resources.authority_status import CONFIG_MAP, ROTATE, CaStatus
from headgate.standalone.store.memory import MemoryStore


class CaStatusRig:
    def __init__(self) -> None:
        self.time, self.store, self.proxies, self.keys = Time(), MemoryStore(), Holders(), MemoryKeyStore()
        self.issuer = EmbeddedIssuer(self.keys, DOMAIN, clock=self.time.clock)
        schedule = self.time.schedule()
        self.credentials = Credentials(self.issuer, schedule)
        self.rotation = Rotation(self.issuer, self.credentials, self.proxies, schedule)
        self.publisher = CaStatusPublisher(self.store, self.issuer, self.credentials, schedule, self.rotation)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.credentials.set_wanted({"sidecar/default/web": wanted()})
        works = (self.credentials.run(), self.rotation.run(), self.publisher.run())
        tasks = [asyncio.create_task(work) for work in works]
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def wait_for_status(self, test: Any) -> tuple[CaStatus, dict[str, str]]:
        """Advance the time until the status in the ConfigMap satisfies `test`; return the status and the data."""
        with contextlib.suppress(NotFound):
            data = (await self.store.get(CONFIG_MAP))["data"]
            if test(msgspec.json.decode(data["status.json"], type=CaStatus)):
                return msgspec.json.decode(data["status.json"], type=CaStatus), data
        passing = asyncio.create_task(self._pass())
        try:
            async for change in self.store.watch("", "ConfigMap", since="0"):
                status = msgspec.json.decode(change.object["data"]["status.json"], type=CaStatus)
                if test(status) and change.type != "DELETED":
                    return status, change.object["data"]
        finally:
            passing.cancel()
        raise AssertionError("unreachable: a watch never ends")

    async def _pass(self) -> None:
        while True:
            await self.time.advance(1)

    async def annotate(self, text: str) -> None:
        obj = await self.store.get(CONFIG_MAP)
        await self.store.update({**obj, "metadata": {**obj["metadata"], "annotations": {ROTATE: text}}})


@pytest.fixture
async def rig() -> AsyncIterator[CaStatusRig]:
    rig = CaStatusRig()
    async with rig.running():
        yield rig


async def test_the_config_map_has_the_roots_and_the_state_but_no_key(rig: CaStatusRig) -> None:
    status, data = await rig.wait_for_status(lambda status: status.certificates)
    assert data["roots.pem"] == rig.issuer.roots.get()
    (root,) = status.roots
    assert (root.signs, root.fingerprint, status.phase) == (True, rig.issuer.signer.get(), "stable")
    assert "PRIVATE" not in json.dumps(data)


async def test_a_new_annotation_starts_a_rotation_and_the_status_shows_its_progress(rig: CaStatusRig) -> None:
    await rig.wait_for_status(lambda status: status.certificates)
    old = rig.issuer.roots.get()
    rig.proxies.slow.add("sidecar/default/web")
    await rig.annotate("monday")
    status, _ = await rig.wait_for_status(lambda status: status.phase == "trust-new" and status.waits)
    assert status.waiting == ("sidecar/default/web",)
    assert [root.signs for root in status.roots] == [True, False]
    rig.proxies.catch_up()
    status, data = await rig.wait_for_status(lambda status: status.phase == "stable" and status.answered == "monday")
    assert len(status.roots) == 1
    assert data["roots.pem"] != old


async def test_a_replica_that_takes_over_a_rotation_never_shows_that_none_is_in_progress() -> None:
    """Otherwise `headgate ca rotate --wait` would end too early."""
    rig = CaStatusRig()
    rig.keys.stored = StoredAuthority(
        signing=new_root(DOMAIN, rig.time.now), next=new_root(DOMAIN, rig.time.now), answered="monday"
    )
    rig.proxies.lagging = lambda _: ["sidecar/default/web"]
    async with rig.running():
        status, _ = await rig.wait_for_status(lambda _status: True)
    assert (status.phase, status.answered) == ("trust-new", "monday")


async def test_changed_roots_in_the_config_map_are_ignored_and_a_deleted_config_map_is_restored(
    rig: CaStatusRig,
) -> None:
    await rig.wait_for_status(lambda status: status.certificates)
    obj = await rig.store.get(CONFIG_MAP)
    await rig.store.update({**obj, "data": {**obj["data"], "roots.pem": "mine"}})
    roots = rig.issuer.roots.get()
    assert len(read_certificates(roots, "the test")) == 1
    await rig.store.delete(CONFIG_MAP)
    _, data = await rig.wait_for_status(lambda status: status.certificates)
    assert data["roots.pem"] == roots


async def test_the_status_shows_the_fault_of_each_proxy(rig: CaStatusRig) -> None:
    await rig.wait_for_status(lambda status: status.certificates)
    rig.credentials.set_wanted({"sidecar/default/web": wanted("web", "not a name")})
    status, _ = await rig.wait_for_status(lambda status: status.faulty)
    assert "each of subjectNames must be a DNS name" in status.faults["sidecar/default/web"]


async def test_no_private_key_is_printed_logged_or_encoded(
    rig: CaStatusRig, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)
    await rig.wait_for_status(lambda status: status.certificates)
    stored = rig.keys.stored
    assert stored is not None
    credential = rig.credentials.current.get()["sidecar/default/web"]
    secrets = [stored.signing.key.reveal(), credential.key.reveal()]
    assert all("PRIVATE KEY" in secret for secret in secrets)
    authority = StoredAuthority(signing=stored.signing, next=stored.signing)
    seen = [
        *(
            f"{item!r} {item!s} {item}"
            for item in (authority, credential, stored.signing, rig.credentials.current.get())
        ),
        *(str(item) for item in (FileKeyStore(tmp_path), SecretKeyStore(rig.store), rig.issuer, vars(rig.issuer))),
        msgspec.json.encode([authority, credential], enc_hook=str).decode(),
        str(structs.asdict(credential)),
        caplog.text,
        json.dumps([dict(change) for change in (await rig.store.list("", "Event")).items]),
        json.dumps((await rig.store.list("", "ConfigMap")).items),
    ]
    for secret in secrets:
        body = "".join(secret.splitlines()[1:-1])
        assert not any(body[:20] in text or secret[:60] in text for text in seen)


async def test_a_fault_never_quotes_a_key(rig: CaStatusRig) -> None:
    stored = rig.keys.stored or StoredAuthority(signing=(await rig.issuer.load()).stored.signing)
    broken = stored.signing.key.reveal().replace("\n", "!", 3)
    keys = MemoryKeyStore(
        StoredAuthority(signing=structs.replace(stored.signing, key=type(stored.signing.key)(broken)))
    )
    issuer = EmbeddedIssuer(keys, DOMAIN, clock=rig.time.clock)
    await issuer.run()
    await until(lambda: bool(issuer.fault.get()), issuer.fault)
    assert "has no readable private key" in issuer.fault.get()
    assert broken[40:60] not in issuer.fault.get()
