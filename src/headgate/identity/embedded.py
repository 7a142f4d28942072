"""The embedded authority: headgate's own root, created at the first start and replaced in three steps (`rotation`).

It reads its keys when they are first needed. While they are unusable, each attempt reads them again, so a repair takes
effect without a restart. Damaged keys are never replaced by new ones, which no proxy would trust.
"""

import asyncio
import contextlib
from typing import NamedTuple

from headgate.errors import HeadgateError
from headgate.identity.authority import Signer, SigningIssuer, make_signer, new_root
from headgate.identity.certificates import check_permits, read_certificates
from headgate.identity.issuers import Clock, IssueError
from headgate.identity.keys import KeyStore, StoredAuthority
from headgate.latest import Latest


class _Active(NamedTuple):
    stored: StoredAuthority
    signer: Signer


class EmbeddedIssuer(SigningIssuer):
    """Signs with headgate's own root. `stored` is None until the keys have been read."""

    def __init__(self, keys: KeyStore, trust_domain: str, *, clock: Clock) -> None:
        super().__init__(trust_domain, clock)
        self.stored: Latest[StoredAuthority | None] = Latest(None)
        self._keys = keys
        self._active: _Active | None = None
        self._loading = asyncio.Lock()

    async def run(self) -> None:
        """Read the keys, or create them. After a failure `fault` has the reason, and each request for a certificate tries again."""
        with contextlib.suppress(IssueError):
            await self.load()

    async def load(self) -> _Active:
        """Return the stored authority; create it if there is none. Raises IssueError."""
        async with self._loading:
            if self._active is not None:
                return self._active
            try:
                return self._use(await self._keys.load() or await self._create())
            except IssueError as error:
                self.fault.set(str(error))
                raise

    async def reload(self) -> None:
        """Read the keys again, because another process may have replaced them. Raises IssueError."""
        async with self._loading:
            stored = await self._keys.load()
            if stored is not None:
                self._use(stored)

    async def add_next(self, request: str) -> None:
        """Create the next root for proxies to trust; `request` is the text of the annotation. Raises IssueError."""
        stored = (await self.load()).stored
        following = await asyncio.to_thread(new_root, self._trust_domain, self._clock())
        await self._replace(
            StoredAuthority(signing=stored.signing, next=following, answered=request or stored.answered)
        )

    async def promote_next(self) -> None:
        """Sign with the next root from now on, and delete the key of the old one. Raises IssueError."""
        stored = (await self.load()).stored
        if stored.next is None:
            raise AssertionError("there is no next root to sign with")
        await self._replace(
            StoredAuthority(signing=stored.next, previous=stored.signing.certificate, answered=stored.answered)
        )

    async def remove_previous(self) -> None:
        """Remove the old root from the trusted roots. Raises IssueError."""
        stored = (await self.load()).stored
        await self._replace(StoredAuthority(signing=stored.signing, answered=stored.answered))

    async def _create(self) -> StoredAuthority:
        stored = StoredAuthority(signing=await asyncio.to_thread(new_root, self._trust_domain, self._clock()))
        try:
            await self._keys.save(stored)
        except IssueError:
            other = await self._keys.load()  # another process may have created the authority at the same time
            if other is None:
                raise
            return other
        return stored

    async def _replace(self, stored: StoredAuthority) -> None:
        async with self._loading:
            try:
                await self._keys.save(stored)
            except HeadgateError:
                self._active = None  # another process may have written the keys: read them again
                raise
            self._use(stored)

    async def _ready(self) -> Signer:
        return (await self.load()).signer

    def _use(self, stored: StoredAuthority) -> _Active:
        """Check all parts of a stored authority, and use it from now on. Raises IssueError."""
        signer = make_signer(stored.signing, self._keys.location)
        check_permits(signer.chain, self._trust_domain, signer.source)
        if stored.next:
            make_signer(stored.next, self._keys.location)
        if stored.previous:
            read_certificates(stored.previous, self._keys.location)
        self._active = _Active(stored, signer)
        self._activate(signer, stored.roots)
        self.stored.set(stored)
        return self._active
