"""The embedded authority: headgate's own root, made at the first start and replaced in three steps (rotation).

It reads its keys when it is first needed, and again at each attempt while they can't be used: what the user repairs is
found by itself. Keys that are damaged are never replaced by new ones: those nobody would believe.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

from headgate.errors import HeadgateError
from headgate.identity.authority import ROOT_LIFETIME, Authority, Signer, check_domain, new_root, sign, signer_of
from headgate.identity.certificates import fingerprint, read_certificates
from headgate.identity.issuers import IssueError, Wanted
from headgate.identity.keys import Kept, Keys
from headgate.latest import Latest
from headgate.model.identities import Credential

Clock = Callable[[], float]
"""Says what time it is, in seconds since the epoch."""


class _Ready(NamedTuple):
    kept: Kept
    signer: Signer


class EmbeddedIssuer:
    """Signs with a root of its own (see `issuers.Issuer`). `kept` is nothing until the keys could be read."""

    def __init__(
        self, keys: Keys, trust_domain: str, *, clock: Clock, root_lifetime: timedelta = ROOT_LIFETIME
    ) -> None:
        self.roots: Latest[str] = Latest("")
        self.signer: Latest[str] = Latest("")
        self.fault: Latest[str] = Latest("")
        self.kept: Latest[Kept | None] = Latest(None)
        self._keys = keys
        self._trust_domain = trust_domain
        self._clock = clock
        self._root_lifetime = root_lifetime
        self._ready: _Ready | None = None
        self._loading = asyncio.Lock()

    async def issue(self, wanted: Wanted, lifetime: timedelta) -> Credential:
        """Return a new key with its certificate. Raises IssueError."""
        check_domain(wanted, self._trust_domain)
        ready = await self.load()
        leaf = await asyncio.to_thread(sign, ready.signer, wanted, self._clock(), lifetime)
        return Credential(chain=leaf.chain, key=leaf.key, roots=self.roots.get())

    async def run(self) -> None:
        """Read the keys, or make them. While that fails, `fault` says so, and each certificate asked for tries again."""
        try:
            await self.load()
        except IssueError:
            return

    async def load(self) -> _Ready:
        """Return the authority as it is kept, made now when there is none. Raises IssueError."""
        async with self._loading:
            if self._ready is not None:
                return self._ready
            try:
                kept = await self._keys.load() or await self._begin()
                return self._take(kept)
            except IssueError as error:
                self.fault.set(str(error))
                raise

    async def announce(self, request: str) -> None:
        """Make the next root, for everybody to believe; `request` is what asked for it. Raises IssueError."""
        kept = (await self.load()).kept
        following = await asyncio.to_thread(new_root, self._trust_domain, self._clock(), self._root_lifetime)
        await self._replace(Kept(signing=kept.signing, next=following, answered=request or kept.answered))

    async def promote(self) -> None:
        """Sign with the next root from now on; the key of the old one is forgotten. Raises IssueError."""
        kept = (await self.load()).kept
        if kept.next is None:
            raise AssertionError("there is no next root to sign with")
        await self._replace(Kept(signing=kept.next, previous=kept.signing.certificate, answered=kept.answered))

    async def retire(self) -> None:
        """Believe the old root no longer. Raises IssueError."""
        kept = (await self.load()).kept
        await self._replace(Kept(signing=kept.signing, answered=kept.answered))

    async def _begin(self) -> Kept:
        root: Authority = await asyncio.to_thread(new_root, self._trust_domain, self._clock(), self._root_lifetime)
        kept = Kept(signing=root)
        try:
            await self._keys.save(kept)
        except IssueError:
            other = await self._keys.load()  # somebody else may have begun at the same time
            if other is None:
                raise
            return other
        return kept

    async def _replace(self, kept: Kept) -> None:
        async with self._loading:
            try:
                await self._keys.save(kept)
            except HeadgateError:
                self._ready = None  # what is kept may be another's now: it is read again
                raise
            self._take(kept)

    def _take(self, kept: Kept) -> _Ready:
        """Put keys into force: what they are to believe first, so that nothing is signed that nobody believes."""
        signer = signer_of(kept.signing, self._keys.place)
        if kept.next:
            signer_of(kept.next, self._keys.place)
        if kept.previous:
            read_certificates(kept.previous, self._keys.place)
        self._ready = _Ready(kept, signer)
        self.roots.set(kept.roots)
        self.signer.set(fingerprint(signer.chain[0]))
        self.kept.set(kept)
        self.fault.set("")
        return self._ready
