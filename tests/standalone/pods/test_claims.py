"""Tests of PersistentVolumeClaims with real pods."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from tests.make.objects import obj
from tests.standalone.pods.machine import ProcessMachine, key, process_pod, running

from headgate.errors import Unavailable
from headgate.objects.ports import follow
from headgate.resources.meta import Key, Object
from headgate.standalone.isolation import MountSupport
from headgate.standalone.pods.claims import Claims
from headgate.standalone.store.memory import MemoryStore

CLAIM = Key("", "PersistentVolumeClaim", "default", "data")


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[ProcessMachine]:
    if fault := await MountSupport().fault():
        pytest.skip(fault)
    async with running(tmp_path / "state") as started:
        yield started


def claim() -> Object:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return obj("PersistentVolumeClaim", "data", version="v1", spec=spec)


class FailingStore(MemoryStore):
    """A store that can't write once."""

    has_failed = False

    async def update(self, *arguments: Any, **more: Any) -> Object:
        if not self.has_failed:
            self.has_failed = True
            raise Unavailable("the disk is full")
        return await super().update(*arguments, **more)


def user(name: str, script: str, **spec: Any) -> Object:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    mounts = [{"name": "v", "mountPath": "/data"}]
    command = ["sh", "-c", script]
    return process_pod(name, command=command, volumeMounts=mounts, spec={"volumes": volumes, **spec})


async def until_claim(store: MemoryStore, holds: Callable[[Object | None], bool]) -> Object | None:
    """Wait for a state of the claim, which is None when it is gone; return it."""
    async with asyncio.timeout(60), aclosing(follow(store, "", CLAIM.kind)) as steps:
        async for _ in steps:
            claims = (await store.list("", CLAIM.kind)).items
            stored = claims[0] if claims else None
            if holds(stored):
                return stored
    raise AssertionError("the changes of the store have ended")


async def bound(store: MemoryStore) -> Object:
    stored = await until_claim(
        store, lambda stored: bool(stored) and (stored.get("status") or {}).get("phase") == "Bound"
    )
    assert stored
    return stored


async def test_a_claim_keeps_its_files_for_the_next_pod_and_the_next_headgate(machine):
    await machine.store.create(claim())
    stored = await bound(machine.store)
    assert stored["status"]["capacity"] == {"storage": "1Gi"}
    await machine.store.create(user("writer", "echo kept > /data/x", restartPolicy="Never"))

    async def written() -> bool:
        return ((await machine.get("writer")).get("status") or {}).get("phase") == "Succeeded"

    await machine.until(written)
    await machine.store.delete(key("writer"))
    await machine.gone("writer")
    await machine.abandon()
    machine.start()
    await machine.store.create(user("web", "cat /data/x", restartPolicy="Never"))
    await machine.state_of("Completed")
    assert await machine.output() == "kept\n"


async def test_a_deleted_claim_and_its_files_stay_until_no_pod_uses_them(machine):
    await machine.store.create(claim())
    await bound(machine.store)
    await machine.store.create(user("web", "touch /data/x; exec sleep 600"))
    await machine.ready()
    (directory,) = (machine.state / "volumes").iterdir()
    await machine.store.delete(CLAIM)
    assert (await machine.store.get(CLAIM))["metadata"]["deletionTimestamp"]
    assert directory.exists()
    await machine.store.delete(key())
    await until_claim(machine.store, lambda stored: stored is None)
    assert list((machine.state / "volumes").iterdir()) == []


async def test_the_files_of_a_claim_that_the_store_has_lost_stay(tmp_path, caplog):
    """A damaged store, or one from an older backup, must not take the files with it."""
    kept = tmp_path / "volumes" / "default_data_0"
    kept.mkdir(parents=True)
    store = MemoryStore()
    following = asyncio.create_task(Claims(store, tmp_path).run())
    await store.create(claim())
    await bound(store)
    following.cancel()
    await asyncio.wait([following])
    assert kept.exists()
    assert f"{kept} has the files of a claim that the store does not have; move or delete it" in caplog.text


async def test_a_failed_write_about_a_claim_is_repeated(tmp_path, caplog):
    store = FailingStore()
    following = asyncio.create_task(Claims(store, tmp_path).run())
    await store.create(claim())
    await bound(store)
    following.cancel()
    await asyncio.wait([following])
    assert following.cancelled()
    assert "claims can't be bound or removed, next attempt in" in caplog.text


async def test_a_pod_waits_for_its_claim(machine):
    await machine.store.create(user("web", "exec sleep 600"))
    status = await machine.state_of("CreateContainerConfigError")
    assert "there is no PersistentVolumeClaim 'data'" in status["state"]["waiting"]["message"]
    await machine.store.create(claim())
    await machine.ready()
