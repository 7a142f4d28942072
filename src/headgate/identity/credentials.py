"""Every proxy's certificate: issued when it is wanted, renewed at half of its life, and at once when the authority changes.

The one that a proxy has stays until there is a new one. When nothing can be issued for so long that it expires, it stays all
the same: peers refuse it, so calls fail, which is safe; without one, a proxy might fall back to plaintext.
"""

import asyncio
import hashlib
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec import structs

from headgate.errors import HeadgateError
from headgate.identity.certificates import expiry
from headgate.identity.issuers import LIFETIME, CertificateSpec, Clock, Issuer
from headgate.latest import Latest, wait_for_change
from headgate.model.identities import Credential
from headgate.resources.meta import Value, timestamp

Sleep = Callable[[float], Coroutine[Any, Any, None]]
AT_ONCE = 16
"""How many certificates are asked for at the same time: an external issuer takes seconds for each."""
RENEWAL_SHARE = 0.5
RENEWAL_JITTER = 0.1  # of the life: so much later than at half of it a certificate may be renewed
FIRST_RETRY_S, LAST_RETRY_S = 1.0, 60.0
LEAST_PAUSE_S = 1.0
TOGETHER_S = 0.1
"""Certificates that come one after the other are shown together: each time, everybody's configuration is made anew."""
LONGEST_SLEEP_S = 600.0
"""A sleeping machine's timers stand still while certificates age; so late may renewal be after it woke up."""


class Schedule(Value, frozen=True, kw_only=True):
    """When things happen: certificates live for `lifetime`; the clock and sleeping are given, so that tests take no time."""

    clock: Clock
    sleep: Sleep = asyncio.sleep
    lifetime: timedelta = LIFETIME


class _Held(NamedTuple):
    """A certificate that a proxy has, the authority that signed it, and when it ends."""

    credential: Credential
    signer: str
    expires: float


class _Entry:
    """One proxy: its certificate, when to ask for the next one, and the task that does so."""

    def __init__(self, wanted: CertificateSpec, held: _Held | None = None) -> None:
        self.wanted = wanted
        self.held = held
        self.fault = ""
        self.due = 0.0
        self.is_resting = False
        self.task: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Cancel the task, and with it a request that is on its way."""
        if self.task:
            self.task.cancel()
            self.task = None


class Credentials:
    """Certificates of all proxies. `current` is by node id; `faults` says, by node id, why one has none or an old one."""

    def __init__(self, issuer: Issuer, schedule: Schedule) -> None:
        self.current: Latest[Mapping[str, Credential]] = Latest(MappingProxyType({}))
        self.faults: Latest[Mapping[str, str]] = Latest(MappingProxyType({}))
        self._issuer = issuer
        self._schedule = schedule
        self._entries: dict[str, _Entry] = {}
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._asking = 0
        self._tasks: asyncio.TaskGroup | None = None  # while `run` runs
        self._showing: asyncio.TimerHandle | None = None

    def set_wanted(self, wanted: Mapping[str, CertificateSpec]) -> None:
        """Set the certificates of all proxies: new ones are issued at once, those of other proxies are forgotten.

        A proxy whose names change keeps its certificate until the new one is there, unless that has another identity.
        """
        if {node: entry.wanted for node, entry in self._entries.items()} == wanted:
            return
        for node in self._entries.keys() - wanted.keys():
            self._entries.pop(node).stop()
        for node, item in wanted.items():
            before = self._entries.get(node)
            if before and before.wanted == item:
                continue
            if before:
                before.stop()
            keeps = before and before.wanted.identity == item.identity
            entry = self._entries[node] = _Entry(item, before.held if before and keeps else None)
            self._start(node, entry)
        self._publish()

    def discard(self, nodes: Iterable[str]) -> None:
        """Forget proxies whose ids other proxies have from now on: their next certificates have new keys."""
        for node in self._entries.keys() & set(nodes):
            self._entries.pop(node).stop()

    def outdated(self) -> Sequence[str]:
        """Return the proxies whose certificate is not of the authority that signs now."""
        signer = self._issuer.signer.get()
        return sorted(node for node, entry in self._entries.items() if entry.held and entry.held.signer != signer)

    async def run(self) -> None:
        """Issue and renew, until cancelled. One proxy's failure stops no other; nothing is polled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            try:
                for node, entry in self._entries.items():
                    self._start(node, entry)
                while True:
                    await wait_for_change(self._issuer.signer, self._issuer.roots)
                    self._publish()
                    self._renew_outdated()
            finally:
                for entry in self._entries.values():
                    entry.stop()
                self._tasks = None

    def _renew_outdated(self) -> None:
        """Ask at once for everything that the authority of now has not signed."""
        signer = self._issuer.signer.get()
        for node, entry in self._entries.items():
            if entry.is_resting and (entry.held is None or entry.held.signer != signer):
                entry.due, entry.fault = 0.0, ""
                self._start(node, entry)

    def _start(self, node: str, entry: _Entry) -> None:
        if self._tasks:
            entry.stop()
            entry.task = self._tasks.create_task(self._keep(node, entry), name=f"certificate of {node}")

    async def _keep(self, node: str, entry: _Entry) -> None:
        """Issue the certificate of a proxy when it is due, for ever; after failures ever more rarely."""
        retry = FIRST_RETRY_S
        while True:
            await self._rest(entry)
            signer, found = await self._ask(entry.wanted)
            now = self._schedule.clock()
            if signer not in ("", self._issuer.signer.get()):  # replaced meanwhile: peers will soon refuse it
                retry = FIRST_RETRY_S
                continue
            if isinstance(found, Credential):
                entry.held, entry.fault = _Held(found, signer, expiry(found.chain)), ""
                life = (entry.held.expires - now) * (RENEWAL_SHARE + RENEWAL_JITTER * jitter(node))
                entry.due, retry = now + max(life, LEAST_PAUSE_S), FIRST_RETRY_S
            else:
                entry.fault = f"{found}{_consequence(entry.held, now)}"
                entry.due, retry = now + retry * (1 + jitter(node)) / 2, min(2 * retry, LAST_RETRY_S)
            self._show()

    async def _rest(self, entry: _Entry) -> None:
        entry.is_resting = True
        while (left := entry.due - self._schedule.clock()) > 0:
            await self._schedule.sleep(min(left, LONGEST_SLEEP_S))
        entry.is_resting = False

    async def _ask(self, wanted: CertificateSpec) -> tuple[str, Credential | HeadgateError]:
        """Return the authority that signed before the answer came, and the answer."""
        self._asking += 1
        try:
            async with self._turns:
                signer = self._issuer.signer.get()
                credential = await self._issuer.issue(wanted, self._schedule.lifetime)
                return signer or self._issuer.signer.get(), credential  # the first one makes the authority ready
        except HeadgateError as error:
            return signer, error
        finally:
            self._asking -= 1

    def _show(self) -> None:
        """Publish an answer at once when no other is awaited, else together with those that come soon."""
        if not self._asking:
            self._publish()
        elif self._showing is None:
            self._showing = asyncio.get_running_loop().call_later(TOGETHER_S, self._publish)

    def _publish(self) -> None:
        """Show all certificates, each with the roots of now."""
        if self._showing is not None:
            self._showing.cancel()
            self._showing = None
        roots, before = self._issuer.roots.get(), self.current.get()
        held = {node: entry.held.credential for node, entry in self._entries.items() if entry.held}
        self.current.set(
            MappingProxyType({node: _with_roots(before.get(node), one, roots) for node, one in held.items()})
        )
        self.faults.set(MappingProxyType({node: entry.fault for node, entry in self._entries.items() if entry.fault}))


def jitter(node: str) -> float:
    """Return a number from 0 to 1 that is always the same for a node, so that not all renew at the same moment."""
    return int.from_bytes(hashlib.blake2b(node.encode(), digest_size=4).digest()) / 2**32


def _consequence(held: _Held | None, now: float) -> str:
    if held is None:
        return (
            "; it has no certificate of this headgate: its calls with mutual TLS are refused, at the latest when one of an"
            " earlier headgate expires"
        )
    if held.expires <= now:
        return f"; its certificate expired at {timestamp(held.expires)}, so its calls with mutual TLS are refused"
    return f"; its certificate is good until {timestamp(held.expires)}"


def _with_roots(before: Credential | None, credential: Credential, roots: str) -> Credential:
    """Return a credential with the roots of now; the very same object when nothing is new, which compares fast."""
    if before is not None and before.chain == credential.chain and before.roots == roots:
        return before
    return structs.replace(credential, roots=roots)
