"""The root is replaced in three steps; each waits for every proxy, and a crash between any two loses nothing."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.identity.world import DAY, DOMAIN, START, Holders, MemoryKeyStore, Time, root, settle, verify, wanted

from headgate.identity.certificates import read_certificates
from headgate.identity.credentials import Credentials
from headgate.identity.embedded import EmbeddedIssuer
from headgate.identity.keys import StoredAuthority
from headgate.identity.rotation import HANDSHAKE_GRACE_S, Phase, Progress, Rotation
from headgate.latest import until

NODES = {f"sidecar/default/{name}": wanted(name) for name in ("a", "b", "c")}


class World:
    """A headgate's authority: keys that outlive it, and proxies that believe what they hold."""

    def __init__(self, keys: MemoryKeyStore, time: Time, proxies: Holders) -> None:
        self.keys, self.time, self.proxies = keys, time, proxies
        self.issuer = EmbeddedIssuer(keys, DOMAIN, clock=time.clock)
        self.credentials = Credentials(self.issuer, time.schedule())
        self.rotation = Rotation(self.issuer, self.credentials, proxies, time.schedule())
        self.phases: list[Phase] = []
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

    async def reach(self, phase: Phase, *waiting: str) -> None:
        progress = self.rotation.progress
        await until(lambda: (progress.get().phase, progress.get().waiting) == (phase, waiting), progress)

    async def done(self, before: str) -> None:
        cells = (self.rotation.progress, self.issuer.roots)
        waiting = asyncio.create_task(self.wait_for_connections())
        await until(
            lambda: self.rotation.progress.get().phase is Phase.STABLE and self.issuer.roots.get() != before, *cells
        )
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    async def wait_for_connections(self) -> None:
        """Let time pass before the last step."""
        await self.reach(Phase.SIGN_NEW)
        await self.time.advance(HANDSHAKE_GRACE_S)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World(MemoryKeyStore(), Time(), Holders())
    await world.start()
    yield world
    await world.stop()


def count(roots: str) -> int:
    return len(read_certificates(roots, "the test"))


async def test_the_new_root_is_believed_first_then_signs_then_the_old_one_leaves(world: World) -> None:
    old = world.issuer.roots.get()
    slow = "sidecar/default/b"
    world.proxies.slow.add(slow)
    world.rotation.asked.set("please")
    await world.reach(Phase.TRUST_NEW, slow)
    assert count(world.issuer.roots.get()) == 2
    assert world.keys.kept is not None
    assert world.keys.kept.signing.certificate == old  # who lags may not know the new one
    world.proxies.catch_up()
    await world.done(old)
    new = world.issuer.roots.get()
    assert count(new) == 1
    assert world.keys.kept == StoredAuthority(signing=world.keys.kept.signing, answered="please")
    assert all(item.roots == new for item in world.proxies.holding.values())
    phases = [Phase.STABLE, Phase.TRUST_NEW, Phase.SIGN_NEW, Phase.STABLE]
    assert [phase for phase in world.phases if phase is not Phase.DROP_OLD] == phases


async def test_the_old_root_stays_until_every_proxy_holds_a_certificate_of_the_new_one(world: World) -> None:
    old = world.issuer.roots.get()
    world.rotation.asked.set("please")
    await until(lambda: world.rotation.progress.get().phase is Phase.SIGN_NEW, world.rotation.progress)
    world.proxies.slow.update(NODES)  # nobody takes anything from here on
    await world.reach(Phase.SIGN_NEW, *NODES)
    assert old in world.issuer.roots.get()
    world.proxies.slow = {"sidecar/default/c"}
    world.proxies.change_count.set(world.proxies.change_count.get() + 1)
    await world.reach(Phase.SIGN_NEW, "sidecar/default/c")
    assert old in world.issuer.roots.get()
    world.proxies.catch_up()
    await world.done(old)
    assert old not in world.issuer.roots.get()


async def test_the_old_root_stays_while_connections_are_opened_that_show_its_certificates(world: World) -> None:
    """Every proxy has a new one by then; but who opened a connection before shows the old one, once he is asked."""
    old = world.issuer.roots.get()
    world.rotation.asked.set("please")
    await world.reach(Phase.SIGN_NEW)
    await world.time.advance(HANDSHAKE_GRACE_S / 2)
    assert old in world.issuer.roots.get()
    await world.time.advance(HANDSHAKE_GRACE_S / 2)
    await until(lambda: old not in world.issuer.roots.get(), world.issuer.roots)


async def test_at_every_moment_each_proxy_believes_every_other(world: World, tmp_path: Path) -> None:
    """Whatever two proxies hold, at whatever moment: the one believes the other's certificate."""
    held: list[tuple[str, str]] = []
    real = world.proxies.lagging

    def lagging(credentials):
        found = real(credentials)
        held.extend((item.chain, item.roots) for item in world.proxies.holding.values())
        return found

    world.proxies.lagging = lagging
    old = world.issuer.roots.get()
    for step in range(2):
        world.proxies.slow = {"sidecar/default/a"}
        world.rotation.asked.set(f"request {step}")
        await world.reach(Phase.TRUST_NEW, "sidecar/default/a")
        pairs = [(chain, roots) for chain, _ in held for _, roots in held]
        for chain, roots in dict.fromkeys(pairs):
            assert verify(tmp_path, chain, roots, "-attime", str(int(START))) == ""
        held.clear()
        world.proxies.catch_up()
        await world.done(old)
        held.clear()
        old = world.issuer.roots.get()
        lagging(world.credentials.current.get())


@pytest.mark.parametrize("saves", [1, 2, 3])
async def test_a_crash_after_any_step_goes_on_from_there(saves: int) -> None:
    time, proxies, keys = Time(), Holders(), MemoryKeyStore()
    first = World(keys, time, proxies)
    await first.start()
    old = first.issuer.roots.get()
    begun = len(keys.saved)
    first.rotation.asked.set("please")
    reached = asyncio.Event()
    real = keys.save

    async def save(kept: StoredAuthority) -> None:
        await real(kept)
        if len(keys.saved) == begun + saves:
            reached.set()
            await asyncio.Event().wait()  # the process ends here

    keys.save = save
    waiting = asyncio.create_task(first.wait_for_connections())
    await reached.wait()
    waiting.cancel()
    await first.stop()
    keys.save = real
    second = World(keys, time, proxies)
    await second.start()
    second.rotation.asked.set("please")  # the annotation is still there, and already answered
    await second.done(old)
    assert count(second.issuer.roots.get()) == 1
    assert len(keys.saved) == begun + 3
    await second.stop()


async def test_a_request_is_answered_once_and_a_new_text_is_a_new_request(world: World) -> None:
    old = world.issuer.roots.get()
    world.rotation.asked.set("one")
    await world.done(old)
    saves, new = len(world.keys.saved), world.issuer.roots.get()
    world.rotation.asked.set("")
    await settle()
    world.rotation.asked.set("one")
    await settle()
    assert (len(world.keys.saved), world.issuer.roots.get()) == (saves, new)
    world.rotation.asked.set("two")
    await world.done(new)


async def test_it_begins_by_itself_at_four_fifths_of_the_roots_life(world: World) -> None:
    old = world.issuer.roots.get()
    world.time.now = START + 0.79 * 365 * DAY
    await world.time.advance(DAY)
    assert world.issuer.roots.get() == old
    world.time.now = START + 0.8 * 365 * DAY
    await world.time.advance(700)
    await world.done(old)


async def test_an_expired_root_is_replaced_at_the_start() -> None:
    """Proxies have no certificate before, so they are given nothing, and can't tell what they hold."""
    time = Time()
    time.now = START + 400 * DAY
    old = root()
    world = World(MemoryKeyStore(StoredAuthority(signing=old)), time, Holders())
    real = world.proxies.lagging
    world.proxies.lagging = lambda found: [node for node in NODES if node not in found] or real(found)
    world.credentials.set_wanted(NODES)
    tasks = [asyncio.create_task(work) for work in (world.credentials.run(), world.rotation.run())]
    await until(lambda: len(world.credentials.current.get()) == len(NODES), world.credentials.current)
    await world.done("")
    assert world.issuer.roots.get() != old.certificate
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_keys_that_can_not_be_written_hold_the_rotation_up_and_say_why(world: World) -> None:
    old = world.issuer.roots.get()
    world.keys.fault = "no space left on the device"
    world.rotation.asked.set("please")
    progress = world.rotation.progress
    await until(lambda: progress.get() == Progress(fault="no space left on the device"), progress)
    assert world.issuer.roots.get() == old
    world.keys.fault = ""
    await world.time.advance(60)
    await world.done(old)
