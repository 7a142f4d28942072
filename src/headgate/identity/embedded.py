"""The embedded authority: headgate's own root, made at the first start and replaced in three steps (rotation).

It reads its keys when it is first needed, and again at each attempt while they can't be used: what the user repairs is
found by itself. KeyStore that are damaged are never replaced by new ones: those nobody would believe.
"""

import asyncio
import contextlib
from typing import NamedTuple

from headgate.errors import HeadgateError
from headgate.identity.authority import Signer, SigningIssuer, make_signer, new_root
from headgate.identity.certificates import read_certificates
from headgate.identity.issuers import Clock, IssueError
from headgate.identity.keys import KeyStore, StoredAuthority
from headgate.latest import Latest


class _InForce(NamedTuple):
    kept: StoredAuthority
    signer: Signer


class EmbeddedIssuer(SigningIssuer):
    """Signs with a root of its own. `kept` is nothing until the keys could be read."""

    def __init__(self, keys: KeyStore, trust_domain: str, *, clock: Clock) -> None:
        super().__init__(trust_domain, clock)
        self.stored: Latest[StoredAuthority | None] = Latest(None)
        self._keys = keys
        self._in_force: _InForce | None = None
        self._loading = asyncio.Lock()

    async def run(self) -> None:
        """Read the keys, or make them. While that fails, `fault` says so, and each certificate asked for tries again."""
        with contextlib.suppress(IssueError):
            await self.load()

    async def load(self) -> _InForce:
        """Return the authority as it is kept, made now when there is none. Raises IssueError."""
        async with self._loading:
            if self._in_force is not None:
                return self._in_force
            try:
                return self._take(await self._keys.load() or await self._begin())
            except IssueError as error:
                self.fault.set(str(error))
                raise

    async def announce(self, request: str) -> None:
        """Make the next root, for everybody to believe; `request` is what asked for it. Raises IssueError."""
        kept = (await self.load()).kept
        following = await asyncio.to_thread(new_root, self._trust_domain, self._clock())
        await self._replace(StoredAuthority(signing=kept.signing, next=following, answered=request or kept.answered))

    async def promote(self) -> None:
        """Sign with the next root from now on; the key of the old one is forgotten. Raises IssueError."""
        kept = (await self.load()).kept
        if kept.next is None:
            raise AssertionError("there is no next root to sign with")
        await self._replace(
            StoredAuthority(signing=kept.next, previous=kept.signing.certificate, answered=kept.answered)
        )

    async def retire(self) -> None:
        """Believe the old root no longer. Raises IssueError."""
        kept = (await self.load()).kept
        await self._replace(StoredAuthority(signing=kept.signing, answered=kept.answered))

    async def _begin(self) -> StoredAuthority:
        kept = StoredAuthority(signing=await asyncio.to_thread(new_root, self._trust_domain, self._clock()))
        try:
            await self._keys.save(kept)
        except IssueError:
            other = await self._keys.load()  # somebody else may have begun at the same time
            if other is None:
                raise
            return other
        return kept

    async def _replace(self, kept: StoredAuthority) -> None:
        async with self._loading:
            try:
                await self._keys.save(kept)
            except HeadgateError:
                self._in_force = None  # what is kept may be another's now: it is read again
                raise
            self._take(kept)

    async def _ready(self) -> Signer:
        return (await self.load()).signer

    def _take(self, kept: StoredAuthority) -> _InForce:
        """Check all parts of what is kept, and put it into force. Raises IssueError."""
        signer = make_signer(kept.signing, self._keys.place)
        if kept.next:
            make_signer(kept.next, self._keys.place)
        if kept.previous:
            read_certificates(kept.previous, self._keys.place)
        self._in_force = _InForce(kept, signer)
        self._put_in_force(signer, kept.roots)
        self.stored.set(kept)
        return self._in_force
