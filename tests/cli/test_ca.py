"""`headgate ca` against a served API with a certificate authority."""

import asyncio
import json
import time
from collections.abc import AsyncIterator

import msgspec
import pytest
from tests.cli.conftest import ServedMesh, ended
from tests.identity.fakes import DOMAIN, Holders, MemoryKeyStore, openssl, wanted

from headgate.identity.ca_status import CaStatusPublisher
from headgate.identity.credentials import Credentials, Schedule
from headgate.identity.embedded import EmbeddedIssuer
from headgate.identity.rotation import Rotation
from headgate.latest import until
from headgate.resources.authority_status import CONFIG_MAP, CaStatus


class RotatingCa:
    def __init__(self, served: ServedMesh) -> None:
        schedule = Schedule(clock=time.time)
        self.proxies = Holders()
        self.issuer = EmbeddedIssuer(MemoryKeyStore(), DOMAIN, clock=time.time)
        self.credentials = Credentials(self.issuer, schedule)
        self.rotation = Rotation(self.issuer, self.credentials, self.proxies, schedule)
        self.board = CaStatusPublisher(served.store, self.issuer, self.credentials, schedule, self.rotation)


@pytest.fixture
async def authority(served: ServedMesh) -> AsyncIterator[RotatingCa]:
    authority = RotatingCa(served)
    authority.credentials.set_wanted({"sidecar/default/web": wanted()})
    works = (authority.credentials.run(), authority.rotation.run(), authority.board.run())
    tasks = [asyncio.create_task(work) for work in works]
    async for change in served.store.watch("", "ConfigMap", since="0"):
        if json.loads(change.object["data"]["status.json"]).get("certificates"):
            break
    yield authority
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_status_shows_the_fingerprint_and_validity_of_each_root(
    served: ServedMesh, authority: RotatingCa
) -> None:
    ran = await served.run("ca", "status")
    assert ran.code == 0, ran.err
    assert f", signs certificates\n  SHA-256 {authority.issuer.signer.get()}\n" in ran.out
    assert "rotation: no rotation is in progress\ncertificates: 1 proxy has a certificate\n" in ran.out
    (served.state / "roots.pem").write_text((await served.run("ca", "roots")).out)
    shown = openssl("x509", "-in", served.state / "roots.pem", "-noout", "-fingerprint", "-sha256")
    assert authority.issuer.signer.get() in shown.stdout


async def test_rotate_replaces_the_root_and_lists_the_pending_proxies(
    served: ServedMesh, authority: RotatingCa
) -> None:
    old = authority.issuer.roots.get()
    authority.proxies.slow.add("sidecar/default/web")
    process = await served.start("ca", "rotate", "--wait", "-o", "json")
    progress = authority.rotation.progress
    await until(lambda: bool(progress.get().waiting), progress)
    ran = await served.run("ca", "rotate", "--wait", "--timeout", "1500ms")
    assert ran.code == 124
    assert "1 of 3: every proxy starts to trust the new root" in ran.err
    authority.proxies.catch_up()
    ran = await ended(process)
    assert ran.code == 0, ran.err
    assert old not in authority.issuer.roots.get()  # the second command may already have started another rotation


async def test_an_annotation_on_the_configmap_starts_a_rotation(served: ServedMesh, authority: RotatingCa) -> None:
    old = authority.issuer.roots.get()
    obj = await served.store.get(CONFIG_MAP)
    await served.store.update(
        {**obj, "metadata": {**obj["metadata"], "annotations": {"headgate.dev/rotate-ca": "tuesday"}}}
    )
    await until(lambda: old not in authority.issuer.roots.get(), authority.issuer.roots)


async def test_ca_without_an_authority_exits_with_1(served: ServedMesh) -> None:
    ran = await served.run("ca")
    assert ran.code == 1
    assert "has no certificate authority" in ran.err


async def test_status_says_that_a_rotation_waits_for_the_api_server_and_for_volumes(served: ServedMesh) -> None:
    status = msgspec.json.encode(CaStatus(phase="trust-new", distributing=True)).decode()
    metadata = {"name": CONFIG_MAP.name, "namespace": CONFIG_MAP.namespace}
    await served.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": CONFIG_MAP.namespace}})
    data = {"roots.pem": "", "status.json": status}
    await served.store.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
    assert "waiting for the API server and the volumes of pods to have the new root" in (await served.run("ca")).out
