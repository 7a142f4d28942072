"""Every proxy's certificate: issued when it is wanted, renewed at half of its life, and at once when the authority changes.

The one that a proxy has stays until there is a new one. When nothing can be issued for so long that it expires, it stays all
the same: peers refuse it, so calls fail, which is safe; without one, a proxy might fall back to plaintext.
"""

import asyncio
import hashlib
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec import structs

from headgate.errors import HeadgateError
from headgate.identity.certificates import expiry
from headgate.identity.embedded import Clock
from headgate.identity.issuers import LIFETIME, Issuer, Wanted
from headgate.latest import Latest
from headgate.model.identities import Credential
from headgate.resources.meta import Value
from headgate.resources.times import timestamp

Sleep = Callable[[float], Coroutine[Any, Any, None]]
AT_ONCE = 16
"""How many certificates are asked for at the same time: an external issuer takes seconds for each."""
HALF = 0.5
SPREAD = 0.1  # of the life: so much later than at half of it a certificate may be renewed
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
    at_once: int = AT_ONCE


class _Held(NamedTuple):
    """A certificate that a proxy has: of which authority, and when it ends."""

    credential: Credential
    identity: str
    signer: str
    expires: float


class _Answer(NamedTuple):
    """What came of asking an authority: something new, or a fault."""

    signer: str
    held: _Held | None
    fault: str = ""


class _Entry:
    """What is known of one proxy. A certificate is asked for when `due` has come."""

    def __init__(self, wanted: Wanted, now: float) -> None:
        self.wanted = wanted
        self.due = now
        self.failures = 0
        self.fault = ""
        self.held: _Held | None = None

    def change(self, wanted: Wanted, now: float) -> None:
        """Want something else. Names may come later; a certificate of another identity is taken away at once."""
        self.wanted = wanted
        self.start_over(now)
        if self.held and self.held.identity != wanted.identity:
            self.held = None

    def start_over(self, now: float) -> None:
        """Ask at once, whatever happened before."""
        self.due, self.failures, self.fault = now, 0, ""


class Credentials:
    """Certificates of all proxies. `current` is by node id; `faults` says, by node id, why one has none or an old one."""

    def __init__(self, issuer: Issuer, schedule: Schedule) -> None:
        self.current: Latest[Mapping[str, Credential]] = Latest(MappingProxyType({}))
        self.faults: Latest[Mapping[str, str]] = Latest(MappingProxyType({}))
        self._issuer = issuer
        self._schedule = schedule
        self._entries: dict[str, _Entry] = {}
        self._asked: dict[str, asyncio.Task[_Answer]] = {}
        self._queue: deque[str] = deque()  # what is due, those first that have waited longest
        self._signer = ""
        self._woken: Latest[int] = Latest(0)
        self._showing: asyncio.TimerHandle | None = None

    def want(self, wanted: Mapping[str, Wanted]) -> None:
        """Say which proxies are to have which certificate, all of them. New ones are issued at once, others are forgotten."""
        if {node: entry.wanted for node, entry in self._entries.items()} == wanted:
            return
        now = self._schedule.clock()
        for node in self._entries.keys() - wanted.keys():
            self._forget(node)
        for node, item in wanted.items():
            entry = self._entries.get(node)
            if entry is None:
                self._entries[node] = _Entry(item, now)
            elif entry.wanted != item:
                self._stop(node)
                entry.change(item, now)
        self._publish()
        self._woken.set(self._woken.get() + 1)

    def begin_anew(self, nodes: Iterable[str]) -> None:
        """Say that other proxies have these ids from now on: what is wanted of them next is issued, with new keys."""
        for node in self._entries.keys() & set(nodes):
            self._forget(node)

    def outdated(self) -> Sequence[str]:
        """Return the proxies whose certificate is not of the authority that signs now."""
        signer = self._issuer.signer.get()
        return sorted(node for node, entry in self._entries.items() if entry.held and entry.held.signer != signer)

    async def run(self) -> None:
        """Issue and renew, for ever. One proxy's failure stops no other; nothing is polled."""
        try:
            while True:
                news = [cell.change() for cell in (self._woken, self._issuer.signer, self._issuer.roots)]
                self._follow_authority()
                next_due = self._look()
                self._ask()
                await self._rest(news, next_due)
                self._show(answered=self._collect(), news=any(event.is_set() for event in news))
        finally:
            for node in list(self._asked):
                self._stop(node)

    def _follow_authority(self) -> None:
        """When another authority signs, ask for all that it has not signed."""
        signer, now = self._issuer.signer.get(), self._schedule.clock()
        if signer == self._signer:
            return
        self._signer = signer
        for entry in self._entries.values():
            if entry.held is None or entry.held.signer != signer:
                entry.start_over(now)

    def _look(self) -> float:
        """Put what is due into the queue, unless it is not empty yet; return when something more will be."""
        now = self._schedule.clock()
        if self._queue:
            return now + LONGEST_SLEEP_S
        rest = [(entry.due, node) for node, entry in self._entries.items() if node not in self._asked]
        self._queue.extend(node for due, node in sorted(rest) if due <= now)
        return min((due for due, _ in rest if due > now), default=now + LONGEST_SLEEP_S)

    def _ask(self) -> None:
        """Ask for what is in the queue, a few at a time."""
        now = self._schedule.clock()
        while self._queue and len(self._asked) < self._schedule.at_once:
            node = self._queue.popleft()
            entry = self._entries.get(node)
            if entry is not None and node not in self._asked and entry.due <= now:
                self._asked[node] = asyncio.create_task(self._answer(entry.wanted), name=f"certificate of {node}")

    async def _answer(self, wanted: Wanted) -> _Answer:
        signer = self._issuer.signer.get()  # before: when it changes meanwhile, the certificate counts as old
        try:
            credential = await self._issuer.issue(wanted, self._schedule.lifetime)
        except HeadgateError as error:
            return _Answer(signer, None, str(error))
        signer = signer or self._issuer.signer.get()  # the first one makes the authority ready
        return _Answer(signer, _Held(credential, wanted.identity, signer, expiry(credential.chain)))

    async def _rest(self, news: Sequence[asyncio.Event], next_due: float) -> None:
        """Wait until something is wanted, answered or due."""
        pause = min(max(next_due - self._schedule.clock(), 0.0), LONGEST_SLEEP_S)
        waits = [
            asyncio.ensure_future(wait) for wait in (*(event.wait() for event in news), self._schedule.sleep(pause))
        ]
        try:
            await asyncio.wait([*waits, *self._asked.values()], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    def _collect(self) -> bool:
        """Take the answers that are there; say whether there are any."""
        done = [node for node, task in self._asked.items() if task.done()]
        for node in done:
            answer = self._asked.pop(node).result()
            entry = self._entries[node]
            if answer.signer not in ("", self._issuer.signer.get()):  # replaced meanwhile: soon, nobody may believe it
                entry.start_over(self._schedule.clock())
            elif answer.held:
                self._renewed(node, entry, answer.held)
            else:
                self._failed(node, entry, answer.fault)
        return bool(done)

    def _renewed(self, node: str, entry: _Entry, held: _Held) -> None:
        now = self._schedule.clock()
        life = (held.expires - now) * (HALF + SPREAD * share_of(node))
        entry.held, entry.fault, entry.failures = held, "", 0
        entry.due = now + max(life, LEAST_PAUSE_S)

    def _failed(self, node: str, entry: _Entry, fault: str) -> None:
        now = self._schedule.clock()
        pause = min(FIRST_RETRY_S * 2**entry.failures, LAST_RETRY_S)
        entry.failures += 1
        entry.due = now + pause * (1 + share_of(node)) / 2
        entry.fault = fault + _consequence(entry.held, now)

    def _show(self, *, answered: bool, news: bool) -> None:
        """Publish at once what is not one of many, and many together."""
        if news or (answered and not self._asked and not self._queue):
            self._publish()
        elif answered and self._showing is None:
            self._showing = asyncio.get_running_loop().call_later(TOGETHER_S, self._publish)

    def _publish(self) -> None:
        """Show what everybody has; all of them with the roots that are believed now."""
        if self._showing is not None:
            self._showing.cancel()
            self._showing = None
        roots, before = self._issuer.roots.get(), self.current.get()
        self.current.set(
            MappingProxyType(
                {
                    node: _with_roots(before.get(node), entry.held.credential, roots)
                    for node, entry in self._entries.items()
                    if entry.held
                }
            )
        )
        self.faults.set(MappingProxyType({node: entry.fault for node, entry in self._entries.items() if entry.fault}))

    def _forget(self, node: str) -> None:
        self._stop(node)
        del self._entries[node]

    def _stop(self, node: str) -> None:
        """Ask no longer: the answer would be to another question."""
        if asked := self._asked.pop(node, None):
            asked.cancel()


def share_of(node: str) -> float:
    """Return a number from 0 to 1 that is always the same for a node, so that not all renew at the same moment."""
    return int.from_bytes(hashlib.blake2b(node.encode(), digest_size=4).digest()) / 2**32


def _consequence(held: _Held | None, now: float) -> str:
    if held is None:
        return "; it has none of this headgate, so its calls with mutual TLS are refused, or will be when an earlier one ends"
    if held.expires <= now:
        return f"; its certificate expired at {timestamp(held.expires)}, so its calls with mutual TLS are refused"
    return f"; its certificate is good until {timestamp(held.expires)}"


def _with_roots(before: Credential | None, credential: Credential, roots: str) -> Credential:
    """Return a credential with the roots of now; the very same object when nothing is new, which compares fast."""
    if before is not None and before.chain == credential.chain and before.roots == roots:
        return before
    return structs.replace(credential, roots=roots)
