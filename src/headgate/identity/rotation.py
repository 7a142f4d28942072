"""Replacing the embedded root without a lost call, in three steps (docs/certificates.md).

1. trust-new: the next root is made and believed by everybody; the old one still signs.
2. sign-new: the next root signs, and every certificate is renewed; both are believed.
3. drop-old: the old root is believed no longer.

A step begins when every proxy that serves holds what the step before has given it; the last one a moment later, when the
handshakes are over that began with a certificate of before. Where a rotation is, is read off the kept keys alone, so one
that was interrupted goes on. It begins on request, and by itself at 80 % of the root's life.
"""

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from headgate.envoy.clusters import CONNECT_SECONDS
from headgate.errors import HeadgateError
from headgate.identity.certificates import read_certificates, validity
from headgate.identity.credentials import LAST_RETRY_S, LONGEST_SLEEP_S, Credentials, Schedule
from headgate.identity.embedded import EmbeddedIssuer
from headgate.identity.keys import StoredAuthority
from headgate.latest import Latest, until, wait_for_any
from headgate.model.identities import Credential
from headgate.resources.meta import Value

LIFE_SHARE = 0.8
HANDSHAKE_GRACE_S = float(CONNECT_SECONDS)
"""A connection shows the certificate that its proxy had when it was opened; a busy peer may look at it as late as this."""


class Phase(enum.StrEnum):
    """Which step of a rotation is being done."""

    STABLE = "stable"
    TRUST_NEW = "trust-new"
    SIGN_NEW = "sign-new"
    DROP_OLD = "drop-old"


class Progress(Value, frozen=True, kw_only=True):
    """Where the rotation is, whom it waits for (node ids), and what stops it."""

    phase: Phase = Phase.STABLE
    waiting: tuple[str, ...] = ()
    fault: str = ""


class Proxies(Protocol):
    """What the control plane knows of its proxies. `change_count` changes whenever `lagging` may say something else."""

    change_count: Latest[int]

    def lagging(self, credentials: Mapping[str, Credential]) -> Sequence[str]:
        """Return the proxies that serve and do not hold their certificate and roots as they are given here, by node id."""


class Rotation:
    """Replaces the root. `asked` is the text of the last request; a text that was answered before asks for nothing."""

    def __init__(self, issuer: EmbeddedIssuer, credentials: Credentials, proxies: Proxies, schedule: Schedule) -> None:
        self.asked: Latest[str] = Latest("")
        self.progress: Latest[Progress] = Latest(Progress())
        self._issuer = issuer
        self._credentials = credentials
        self._proxies = proxies
        self._schedule = schedule

    async def run(self) -> None:
        """Go on with a rotation that has begun; else wait until one is due. For ever."""
        while True:
            try:
                await self._step()
            except HeadgateError as error:  # the place of the keys can't be written
                self._say(fault=str(error))
                await self._schedule.sleep(LAST_RETRY_S)

    async def _step(self) -> None:
        await until(lambda: self._issuer.stored.get() is not None, self._issuer.stored)
        kept = self._issuer.stored.get()
        match phase_of(kept):
            case Phase.TRUST_NEW if kept:
                if self._left(kept.signing.certificate):  # else it signs nothing that proxies could be told to hold
                    await self._until_none(Phase.TRUST_NEW, self._lagging)
                await self._issuer.promote()
            case Phase.SIGN_NEW if kept:
                await self._until_none(Phase.SIGN_NEW, self._unsigned)
                await self._schedule.sleep(min(HANDSHAKE_GRACE_S, self._left(kept.previous)))
                await self._issuer.retire()
                await self._until_none(Phase.DROP_OLD, self._lagging)
                self._say()
            case _:
                await self._begin()

    def _left(self, root: str) -> float:
        """Return for how many seconds a root is still valid; of one that has ended, nobody takes a certificate."""
        _, end = validity(read_certificates(root, "the authority")[0])
        return max(0.0, end - self._schedule.clock())

    async def _begin(self) -> None:
        """Wait until a rotation is asked for, or the root is old; make the next root then."""
        self._say()
        kept = self._issuer.stored.get()
        if kept is None:
            return
        asked, left = self.asked.get(), begins_at(kept) - self._schedule.clock()
        if asked in ("", kept.answered) and left > 0:
            await wait_for_any(self.asked.next_change().wait(), self._schedule.sleep(min(left, LONGEST_SLEEP_S)))
            return
        await self._issuer.announce(asked)

    async def _until_none(self, phase: Phase, waiting: Callable[[], Sequence[str]]) -> None:
        """Wait until there is nobody to wait for, and tell whom it is waited for meanwhile."""

        def none_left() -> bool:
            names = tuple(waiting())
            self._say(phase, names)
            return not names

        await until(none_left, self._proxies.change_count, self._credentials.current)

    def _lagging(self) -> Sequence[str]:
        current = self._credentials.current.get()
        roots = self._issuer.roots.get()
        untold = (node for node, credential in current.items() if credential.roots != roots)
        return sorted({*untold, *self._proxies.lagging(current)})

    def _unsigned(self) -> Sequence[str]:
        return sorted({*self._credentials.outdated(), *self._lagging()})

    def _say(self, phase: Phase | None = None, waiting: tuple[str, ...] = (), fault: str = "") -> None:
        here = phase or phase_of(self._issuer.stored.get())
        self.progress.set(Progress(phase=here, waiting=waiting, fault=fault))


def phase_of(kept: StoredAuthority | None) -> Phase:
    """Return the step that kept keys are at."""
    if kept and kept.next:
        return Phase.TRUST_NEW
    return Phase.SIGN_NEW if kept and kept.previous else Phase.STABLE


def begins_at(kept: StoredAuthority) -> float:
    """Return when the root is so old that it is to be replaced, in seconds since the epoch."""
    begin, end = validity(read_certificates(kept.signing.certificate, "the authority")[0])
    return begin + LIFE_SHARE * (end - begin)
