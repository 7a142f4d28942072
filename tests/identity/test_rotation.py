"""Tests of rotation: a step waits for every proxy, and a rotation continues after a crash."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.identity.fakes import DAY, DOMAIN, START, Holders, MemoryKeyStore, Time, root, settle, verify, wanted

from headgate.identity.certificates import read_certificates
from headgate.identity.credentials import Credentials
from headgate.identity.embedded import EmbeddedIssuer
from headgate.identity.keys import StoredAuthority
from headgate.identity.rotation import HANDSHAKE_GRACE_S, Rotation, RotationProgress
from headgate.latest import Latest, until
from headgate.resources.authority_status import RotationPhase

NODES = {f"sidecar/default/{name}": wanted(name) for name in ("a", "b", "c")}


class RotationRig:
    """One run of headgate: its authority, the stored keys, which survive the run, and fake proxies."""

    def __init__(self, keys: MemoryKeyStore, time: Time, proxies: Holders) -> None:
        self.keys, self.time, self.proxies = keys, time, proxies
        self.issuer = EmbeddedIssuer(keys, DOMAIN, clock=time.clock)
        self.credentials = Credentials(self.issuer, time.schedule())
        self.rotation = Rotation(self.issuer, self.credentials, proxies, time.schedule())
        self.phases: list[RotationPhase] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self.credentials.set_wanted(NODES)
        self._tasks = [asyncio.create_task(self.credentials.run()), asyncio.create_task(self._note())]
        await until(lambda: len(self.credentials.current.get()) == len(NODES), self.credentials.current)
        self._tasks.append(asyncio.create_task(self.rotation.run()))
        await settle()

    async def _note(self) -> None:
        async for progress in self.rotation.progress.changes():
            if self.phases[-1:] != [progress.phase]:
                self.phases.append(progress.phase)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def reach(self, phase: RotationPhase, *waiting: str) -> None:
        progress = self.rotation.progress
        await until(lambda: (progress.get().phase, progress.get().waiting) == (phase, waiting), progress)

    async def done(self, before: str) -> None:
        cells = (self.rotation.progress, self.issuer.roots)
        waiting = asyncio.create_task(self.wait_for_connections())
        await until(
            lambda: self.rotation.progress.get().phase is RotationPhase.STABLE and self.issuer.roots.get() != before,
            *cells,
        )
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    async def wait_for_connections(self) -> None:
        """Advance the time by the grace period before the last step."""
        await self.reach(RotationPhase.SIGN_NEW)
        await self.time.advance(HANDSHAKE_GRACE_S)


@pytest.fixture
async def rig() -> AsyncIterator[RotationRig]:
    rig = RotationRig(MemoryKeyStore(), Time(), Holders())
    await rig.start()
    yield rig
    await rig.stop()


def count(roots: str) -> int:
    return len(read_certificates(roots, "the test"))


async def test_a_rotation_adds_the_new_root_then_signs_with_it_then_removes_the_old_one(rig: RotationRig) -> None:
    old = rig.issuer.roots.get()
    slow = "sidecar/default/b"
    rig.proxies.slow.add(slow)
    rig.rotation.request.set("please")
    await rig.reach(RotationPhase.TRUST_NEW, slow)
    assert count(rig.issuer.roots.get()) == 2
    assert rig.keys.stored is not None
    assert rig.keys.stored.signing.certificate == old  # one proxy does not trust the new root yet
    rig.proxies.catch_up()
    await rig.done(old)
    new = rig.issuer.roots.get()
    assert count(new) == 1
    assert rig.keys.stored == StoredAuthority(signing=rig.keys.stored.signing, answered="please")
    assert all(item.roots == new for item in rig.proxies.holding.values())
    phases = [
        RotationPhase.UNKNOWN,
        RotationPhase.STABLE,
        RotationPhase.TRUST_NEW,
        RotationPhase.SIGN_NEW,
        RotationPhase.STABLE,
    ]
    assert [phase for phase in rig.phases if phase is not RotationPhase.DROP_OLD] == phases


async def test_the_new_root_signs_once_all_clients_of_the_servers_trust_it() -> None:
    """The servers of the control plane then get certificates of the new root."""
    rig, trusted = RotationRig(MemoryKeyStore(), Time(), Holders()), Latest("")
    rig.rotation = Rotation(rig.issuer, rig.credentials, rig.proxies, rig.time.schedule(), trusted)
    await rig.start()
    old = rig.issuer.roots.get()
    rig.rotation.request.set("please")
    progress = rig.rotation.progress
    await until(lambda: progress.get() == RotationProgress(phase=RotationPhase.TRUST_NEW, distributing=True), progress)
    trusted.set(old)
    await settle()
    assert progress.get().distributing
    trusted.set(rig.issuer.roots.get())
    await rig.done(old)
    assert count(rig.issuer.roots.get()) == 1
    await rig.stop()


async def test_the_old_root_stays_until_every_proxy_has_a_certificate_of_the_new_root(rig: RotationRig) -> None:
    old = rig.issuer.roots.get()
    rig.rotation.request.set("please")
    await until(lambda: rig.rotation.progress.get().phase is RotationPhase.SIGN_NEW, rig.rotation.progress)
    rig.proxies.slow.update(NODES)  # from now on no proxy acknowledges anything
    await rig.reach(RotationPhase.SIGN_NEW, *NODES)
    assert old in rig.issuer.roots.get()
    rig.proxies.slow = {"sidecar/default/c"}
    rig.proxies.change_count.set(rig.proxies.change_count.get() + 1)
    await rig.reach(RotationPhase.SIGN_NEW, "sidecar/default/c")
    assert old in rig.issuer.roots.get()
    rig.proxies.catch_up()
    await rig.done(old)
    assert old not in rig.issuer.roots.get()


async def test_the_old_root_stays_until_handshakes_with_old_certificates_have_ended(rig: RotationRig) -> None:
    """A connection that was opened before the renewal uses the old certificate in its handshake."""
    old = rig.issuer.roots.get()
    rig.rotation.request.set("please")
    await rig.reach(RotationPhase.SIGN_NEW)
    await rig.time.advance(HANDSHAKE_GRACE_S / 2)
    assert old in rig.issuer.roots.get()
    await rig.time.advance(HANDSHAKE_GRACE_S / 2)
    await until(lambda: old not in rig.issuer.roots.get(), rig.issuer.roots)


async def test_any_two_proxies_accept_each_other_at_every_moment(rig: RotationRig, tmp_path: Path) -> None:
    """A proxy with older secrets accepts the certificate of a proxy with newer ones, and vice versa."""
    held: list[tuple[str, str]] = []
    real = rig.proxies.lagging

    def lagging(credentials):
        found = real(credentials)
        held.extend((item.chain, item.roots) for item in rig.proxies.holding.values())
        return found

    rig.proxies.lagging = lagging
    old = rig.issuer.roots.get()
    for step in range(2):
        rig.proxies.slow = {"sidecar/default/a"}
        rig.rotation.request.set(f"request {step}")
        await rig.reach(RotationPhase.TRUST_NEW, "sidecar/default/a")
        pairs = [(chain, roots) for chain, _ in held for _, roots in held]
        for chain, roots in dict.fromkeys(pairs):
            assert verify(tmp_path, chain, roots, "-attime", str(int(START))) == ""
        held.clear()
        rig.proxies.catch_up()
        await rig.done(old)
        held.clear()
        old = rig.issuer.roots.get()
        lagging(rig.credentials.current.get())


@pytest.mark.parametrize("saves", [1, 2, 3])
async def test_a_rotation_continues_after_a_crash_in_any_step(saves: int) -> None:
    time, proxies, keys = Time(), Holders(), MemoryKeyStore()
    first = RotationRig(keys, time, proxies)
    await first.start()
    old = first.issuer.roots.get()
    begun = len(keys.saved)
    first.rotation.request.set("please")
    reached = asyncio.Event()
    real = keys.save

    async def save(stored: StoredAuthority) -> None:
        await real(stored)
        if len(keys.saved) == begun + saves:
            reached.set()
            await asyncio.Event().wait()  # the crash: nothing runs after this write

    keys.save = save
    waiting = asyncio.create_task(first.wait_for_connections())
    await reached.wait()
    waiting.cancel()
    await first.stop()
    keys.save = real
    second = RotationRig(keys, time, proxies)
    await second.start()
    second.rotation.request.set("please")  # the same text as that of the handled request
    await second.done(old)
    assert count(second.issuer.roots.get()) == 1
    assert len(keys.saved) == begun + 3
    await second.stop()


async def test_a_request_is_handled_once_and_a_new_text_is_a_new_request(rig: RotationRig) -> None:
    old = rig.issuer.roots.get()
    rig.rotation.request.set("one")
    await rig.done(old)
    saves, new = len(rig.keys.saved), rig.issuer.roots.get()
    rig.rotation.request.set("")
    await settle()
    rig.rotation.request.set("one")
    await settle()
    assert (len(rig.keys.saved), rig.issuer.roots.get()) == (saves, new)
    rig.rotation.request.set("two")
    await rig.done(new)


async def test_a_rotation_begins_at_four_fifths_of_the_roots_lifetime(rig: RotationRig) -> None:
    old = rig.issuer.roots.get()
    rig.time.now = START + 0.79 * 365 * DAY
    await rig.time.advance(DAY)
    assert rig.issuer.roots.get() == old
    rig.time.now = START + 0.8 * 365 * DAY
    await rig.time.advance(700)
    await rig.done(old)


async def test_an_expired_root_is_replaced_at_the_start() -> None:
    """No proxy has a valid certificate then, so a rotation must not wait for acknowledgments."""
    time = Time()
    time.now = START + 400 * DAY
    old = root()
    rig = RotationRig(MemoryKeyStore(StoredAuthority(signing=old)), time, Holders())
    real = rig.proxies.lagging
    rig.proxies.lagging = lambda found: [node for node in NODES if node not in found] or real(found)
    rig.credentials.set_wanted(NODES)
    tasks = [asyncio.create_task(work) for work in (rig.credentials.run(), rig.rotation.run())]
    await until(lambda: len(rig.credentials.current.get()) == len(NODES), rig.credentials.current)
    await rig.done("")
    assert rig.issuer.roots.get() != old.certificate
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_keys_that_cannot_be_saved_stop_the_rotation_with_an_error(rig: RotationRig) -> None:
    old = rig.issuer.roots.get()
    rig.keys.fault = "no space left on the device"
    rig.rotation.request.set("please")
    progress = rig.rotation.progress
    await until(
        lambda: progress.get() == RotationProgress(phase=RotationPhase.STABLE, fault="no space left on the device"),
        progress,
    )
    assert rig.issuer.roots.get() == old
    rig.keys.fault = ""
    await rig.time.advance(60)
    await rig.done(old)
