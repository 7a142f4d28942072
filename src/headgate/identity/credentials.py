"""The certificates of all proxies: issued on demand, renewed at half of their lifetime or when the authority changes.

A proxy keeps its certificate until there is a new one, even if it expires meanwhile. Peers reject an expired certificate, so
calls fail, which is safe; without a certificate, a proxy might fall back to plaintext.
"""

import asyncio
import hashlib
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec import structs

from headgate.backoff import Backoff
from headgate.errors import HeadgateError
from headgate.identity.certificates import expiry
from headgate.identity.issuers import LIFETIME, CertificateSpec, Clock, Issuer
from headgate.latest import Latest, wait_for_change
from headgate.model.identities import Credential
from headgate.resources.meta import Value, timestamp

Sleep = Callable[[float], Coroutine[Any, Any, None]]
MAX_CONCURRENT = 16
"""The largest number of concurrent requests for certificates. An external issuer needs seconds for each request."""
RENEWAL_SHARE = 0.5  # the share of its lifetime after which a certificate is renewed
RENEWAL_JITTER = 0.1  # the share of the lifetime over which renewals are spread
FIRST_RETRY_S, LAST_RETRY_S = 1.0, 60.0
MIN_RENEWAL_S = 1.0
PUBLISH_DELAY_S = 0.1
"""Certificates that are issued within this number of seconds are published together, because each publication builds
the configuration of all proxies again."""
LONGEST_SLEEP_S = 600.0
"""The longest sleep before the due time is checked, in seconds. Timers stop while a laptop sleeps, so a renewal is at
most this late after the laptop wakes up."""


class Schedule(Value, frozen=True, kw_only=True):
    """The lifetime of certificates, and a clock and a sleep function, which tests replace."""

    clock: Clock
    sleep: Sleep = asyncio.sleep
    lifetime: timedelta = LIFETIME


class _Issued(NamedTuple):
    """A proxy's current certificate, the fingerprint of its signer, and when it expires."""

    credential: Credential
    signer: str
    expires: float


class _Entry:
    """One proxy: its certificate, when to renew it, and the task that does so."""

    def __init__(self, spec: CertificateSpec, issued: _Issued | None = None) -> None:
        self.wanted = spec
        self.issued = issued
        self.fault = ""
        self.due = 0.0
        self.is_sleeping = False
        self.task: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Cancel the task, and with it a request in progress."""
        if self.task:
            self.task.cancel()
            self.task = None


class Credentials:
    """The certificates of all proxies. `current` and `faults` have node IDs as keys.

    A fault says why a proxy has no new certificate.
    """

    def __init__(self, issuer: Issuer, schedule: Schedule) -> None:
        self.current: Latest[Mapping[str, Credential]] = Latest(MappingProxyType({}))
        self.faults: Latest[Mapping[str, str]] = Latest(MappingProxyType({}))
        self._issuer = issuer
        self._schedule = schedule
        self._entries: dict[str, _Entry] = {}
        self._limit = asyncio.Semaphore(MAX_CONCURRENT)
        self._requests = 0
        self._tasks: asyncio.TaskGroup | None = None  # None unless `run` is running
        self._publish_timer: asyncio.TimerHandle | None = None

    def set_wanted(self, specs: Mapping[str, CertificateSpec]) -> None:
        """Set the proxies that need certificates, and the content of each certificate. New certificates are issued at once.

        If a proxy's DNS names change, it keeps its certificate until the new one is issued. If its identity changes, it
        loses the certificate at once.
        """
        if {node: entry.wanted for node, entry in self._entries.items()} == specs:
            return
        for node in self._entries.keys() - specs.keys():
            self._entries.pop(node).stop()
        for node, spec in specs.items():
            before = self._entries.get(node)
            if before and before.wanted == spec:
                continue
            if before:
                before.stop()
            keeps = before and before.wanted.identity == spec.identity
            entry = self._entries[node] = _Entry(spec, before.issued if before and keeps else None)
            self._start(node, entry)
        self._publish()

    def discard(self, nodes: Iterable[str]) -> None:
        """Discard certificates of node IDs that now belong to other proxies: their next certificates get new keys."""
        for node in self._entries.keys() & set(nodes):
            self._entries.pop(node).stop()

    def outdated(self) -> Sequence[str]:
        """Return the node IDs whose certificate was not signed by the current authority."""
        signer = self._issuer.signer.get()
        return sorted(node for node, entry in self._entries.items() if entry.issued and entry.issued.signer != signer)

    async def run(self) -> None:
        """Issue and renew certificates until canceled. A failure for one proxy does not affect other proxies."""
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
        """Renew, at once, all certificates that the current authority has not signed."""
        signer = self._issuer.signer.get()
        for node, entry in self._entries.items():
            if entry.is_sleeping and (entry.issued is None or entry.issued.signer != signer):
                entry.due, entry.fault = 0.0, ""
                self._start(node, entry)

    def _start(self, node: str, entry: _Entry) -> None:
        if self._tasks:
            entry.stop()
            entry.task = self._tasks.create_task(self._keep(node, entry), name=f"certificate of {node}")

    async def _keep(self, node: str, entry: _Entry) -> None:
        """Issue the certificate of a proxy whenever it is due, forever; retry failures with backoff."""
        backoff = Backoff(first_s=FIRST_RETRY_S, longest_s=LAST_RETRY_S, draw=lambda: jitter(node))
        while True:
            await self._sleep_until_due(entry)
            signer, outcome = await self._issue(entry.wanted)
            now = self._schedule.clock()
            if signer not in (
                "",
                self._issuer.signer.get(),
            ):  # the root was replaced meanwhile: peers will soon reject the certificate
                backoff.reset()
                continue
            if isinstance(outcome, Credential):
                entry.issued, entry.fault = _Issued(outcome, signer, expiry(outcome.chain)), ""
                life = (entry.issued.expires - now) * (RENEWAL_SHARE + RENEWAL_JITTER * jitter(node))
                entry.due = now + max(life, MIN_RENEWAL_S)
                backoff.reset()
            else:
                entry.fault = f"{outcome}{_consequence(entry.issued, now)}"
                entry.due = now + backoff.next_pause()
            self._publish_soon()

    async def _sleep_until_due(self, entry: _Entry) -> None:
        entry.is_sleeping = True
        while (left := entry.due - self._schedule.clock()) > 0:
            await self._schedule.sleep(min(left, LONGEST_SLEEP_S))
        entry.is_sleeping = False

    async def _issue(self, spec: CertificateSpec) -> tuple[str, Credential | HeadgateError]:
        """Return the signer's fingerprint at the start of the request, and the certificate or the error."""
        self._requests += 1
        try:
            async with self._limit:
                signer = self._issuer.signer.get()
                credential = await self._issuer.issue(spec, self._schedule.lifetime)
                # `signer` is empty before the first request, which loads the authority.
                return signer or self._issuer.signer.get(), credential
        except HeadgateError as error:
            return signer, error
        finally:
            self._requests -= 1

    def _publish_soon(self) -> None:
        """Publish at once if no request is in progress, else a little later, together with other certificates."""
        if not self._requests:
            self._publish()
        elif self._publish_timer is None:
            self._publish_timer = asyncio.get_running_loop().call_later(PUBLISH_DELAY_S, self._publish)

    def _publish(self) -> None:
        """Publish all certificates, each with the current roots."""
        if self._publish_timer is not None:
            self._publish_timer.cancel()
            self._publish_timer = None
        roots, before = self._issuer.roots.get(), self.current.get()
        issued = {node: entry.issued.credential for node, entry in self._entries.items() if entry.issued}
        self.current.set(
            MappingProxyType(
                {node: _with_roots(before.get(node), credential, roots) for node, credential in issued.items()}
            )
        )
        self.faults.set(MappingProxyType({node: entry.fault for node, entry in self._entries.items() if entry.fault}))


def jitter(node: str) -> float:
    """Return a number from 0 to 1 that is constant for a node ID; it spreads the renewals of all proxies."""
    return int.from_bytes(hashlib.blake2b(node.encode(), digest_size=4).digest()) / 2**32


def _consequence(issued: _Issued | None, now: float) -> str:
    if issued is None:
        return (
            "; it has no certificate from this run of headgate: its calls with mutual TLS fail, at the latest when the"
            " certificate from an earlier run expires"
        )
    if issued.expires <= now:
        return f"; its certificate expired at {timestamp(issued.expires)}, so its calls with mutual TLS fail"
    return f"; its certificate is valid until {timestamp(issued.expires)}"


def _with_roots(before: Credential | None, credential: Credential, roots: str) -> Credential:
    """Return a credential with `roots`; `before` itself if it is equal, because identical objects compare fast."""
    if before is not None and before.chain == credential.chain and before.roots == roots:
        return before
    return structs.replace(credential, roots=roots)
