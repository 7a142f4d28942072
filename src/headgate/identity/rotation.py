"""Rotation of the embedded root in three steps, without failed requests (docs/tasks/certificates.md).

1. trust-new: headgate creates the next root, and every proxy trusts both; the old root still signs.
2. sign-new: the next root signs, and every certificate is renewed; proxies trust both roots.
3. drop-old: proxies no longer trust the old root.

A step begins when every configured proxy has acknowledged the secrets of the step before. The second step also waits until
the clients of the control plane's own servers trust the new root, because these servers get new certificates then. The last
step also waits for handshakes that began with an old certificate. The phase follows from the stored keys alone, so an interrupted rotation
continues. A rotation begins on request, and at 80 % of the root's lifetime.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from headgate.backoff import Backoff, until_done
from headgate.envoy.clusters import CONNECT_SECONDS
from headgate.errors import HeadgateError
from headgate.identity.certificates import read_certificates, validity
from headgate.identity.credentials import FIRST_RETRY_S, LAST_RETRY_S, LONGEST_SLEEP_S, Credentials, Schedule
from headgate.identity.embedded import EmbeddedIssuer
from headgate.identity.keys import StoredAuthority
from headgate.latest import Latest, until, wait_for_any
from headgate.model.identities import Credential
from headgate.resources.authority_status import RotationPhase
from headgate.resources.meta import Value

ROTATION_SHARE = 0.8  # the share of the root's lifetime after which a rotation begins
HANDSHAKE_GRACE_S = float(CONNECT_SECONDS)
"""The number of seconds that the last step waits for handshakes. A connection uses the certificate that its proxy had
when the connection was opened, and a busy peer may verify it this much later."""


class RotationProgress(Value, frozen=True, kw_only=True):
    """The phase of the rotation, the node IDs of the proxies that it waits for, and the error that stops it.

    `distributing` is True while it waits until all clients of the control plane's servers trust the new root.
    """

    phase: RotationPhase = RotationPhase.UNKNOWN
    waiting: tuple[str, ...] = ()
    distributing: bool = False
    fault: str = ""


class Proxies(Protocol):
    """The proxies that acknowledge certificates. `change_count` changes when the result of `lagging` may change."""

    change_count: Latest[int]

    def lagging(self, credentials: Mapping[str, Credential]) -> Sequence[str]:
        """Return the node IDs of configured proxies that have not acknowledged these certificates and roots."""


class Rotation:
    """Rotates the root. `request` is the text of the last request; a text that was handled before has no effect.

    `trusted` has the roots that all clients of the control plane's servers trust, if their certificates have the same root.
    """

    def __init__(
        self,
        issuer: EmbeddedIssuer,
        credentials: Credentials,
        proxies: Proxies,
        schedule: Schedule,
        trusted: Latest[str] | None = None,
    ) -> None:
        self.request: Latest[str] = Latest("")
        self.progress: Latest[RotationProgress] = Latest(RotationProgress())
        self._issuer = issuer
        self._credentials = credentials
        self._proxies = proxies
        self._schedule = schedule
        self._trusted = trusted or issuer.roots

    async def run(self) -> None:
        """Continue a rotation that has begun, else wait until one is due; never returns."""
        while True:  # the keys may not be stored
            backoff = Backoff(first_s=FIRST_RETRY_S, longest_s=LAST_RETRY_S)
            await until_done(self._step, self._wait_after, on=HeadgateError, backoff=backoff)

    async def _wait_after(self, error: Exception, seconds: float) -> None:
        self._publish(fault=str(error))
        await self._schedule.sleep(seconds)

    async def _step(self) -> None:
        await until(lambda: self._issuer.stored.get() is not None, self._issuer.stored)
        stored = self._issuer.stored.get()
        match phase_of(stored):
            case RotationPhase.TRUST_NEW if stored:
                if self._left(stored.signing.certificate):  # an expired root can't sign certificates
                    await self._until_none(RotationPhase.TRUST_NEW, self._lagging)
                await self._issuer.promote_next()
            case RotationPhase.SIGN_NEW if stored:
                await self._until_none(RotationPhase.SIGN_NEW, self._without_new_certificate)
                await self._schedule.sleep(min(HANDSHAKE_GRACE_S, self._left(stored.previous)))
                await self._issuer.remove_previous()
                await self._until_none(RotationPhase.DROP_OLD, self._lagging)
                self._publish()
            case _:
                await self._wait_and_begin()

    def _left(self, root: str) -> float:
        """Return for how many seconds a root is still valid; 0 if it has expired."""
        _, end = validity(read_certificates(root, "the authority")[0])
        return max(0.0, end - self._schedule.clock())

    async def _wait_and_begin(self) -> None:
        """Wait until a rotation is requested or the root is old enough, then create the next root."""
        self._publish()
        stored = self._issuer.stored.get()
        if stored is None:
            return
        request, left = self.request.get(), due_at(stored) - self._schedule.clock()
        if request in ("", stored.answered) and left > 0:
            await wait_for_any(self.request.next_change().wait(), self._schedule.sleep(min(left, LONGEST_SLEEP_S)))
            return
        await self._issuer.add_next(request)

    async def _until_none(self, phase: RotationPhase, waiting: Callable[[], Sequence[str]]) -> None:
        """Wait until `waiting` returns no node IDs; until then, publish the returned IDs."""

        def is_done() -> bool:
            names = tuple(waiting())
            distributing = phase is RotationPhase.TRUST_NEW and self._trusted.get() != self._issuer.roots.get()
            self.progress.set(RotationProgress(phase=phase, waiting=names, distributing=distributing))
            return not names and not distributing

        await until(is_done, self._proxies.change_count, self._credentials.current, self._trusted)

    def _lagging(self) -> Sequence[str]:
        current = self._credentials.current.get()
        roots = self._issuer.roots.get()
        outdated = (node for node, credential in current.items() if credential.roots != roots)
        return sorted({*outdated, *self._proxies.lagging(current)})

    def _without_new_certificate(self) -> Sequence[str]:
        return sorted({*self._credentials.outdated(), *self._lagging()})

    def _publish(self, fault: str = "") -> None:
        self.progress.set(RotationProgress(phase=phase_of(self._issuer.stored.get()), fault=fault))


def phase_of(stored: StoredAuthority | None) -> RotationPhase:
    """Return the phase that follows from the stored keys."""
    if stored is None:
        return RotationPhase.UNKNOWN
    if stored.next:
        return RotationPhase.TRUST_NEW
    return RotationPhase.SIGN_NEW if stored.previous else RotationPhase.STABLE


def due_at(stored: StoredAuthority) -> float:
    """Return when the rotation of the root is due, in seconds since the epoch."""
    begin, end = validity(read_certificates(stored.signing.certificate, "the authority")[0])
    return begin + ROTATION_SHARE * (end - begin)
