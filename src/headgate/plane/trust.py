"""The mesh's certificates, wired: who signs them, who gets which, and when the authority itself is replaced."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from headgate.envoy.config import SECRET
from headgate.envoy.names import IDENTITY, ROOTS
from headgate.identity.credentials import Credentials, Schedule
from headgate.identity.embedded import EmbeddedIssuer
from headgate.identity.issuers import Issuer
from headgate.identity.keys import FileKeys
from headgate.identity.notice import Board
from headgate.identity.pem import Files, PemIssuer
from headgate.identity.rotation import Rotation
from headgate.latest import until
from headgate.model.identities import Credential
from headgate.objects.ports import Ports
from headgate.plane.loop import Loop
from headgate.settings import Settings
from headgate.xds.fleet import Fleet, Proxy

KEYS = "authority"  # the directory in the state directory


class Trust:
    """The authority and what it signs; `run` needs the loop, and the loop needs `credentials`."""

    def __init__(self, state: Path, settings: Settings, files: Files | None = None) -> None:
        """With `files`, the authority is the user's own."""
        trust_domain = settings.trust_domain
        self._schedule = Schedule(clock=time.time, lifetime=timedelta(seconds=settings.certificate_seconds))
        self._own: EmbeddedIssuer | None = None
        self._issuer: Issuer
        if files:
            self._issuer = PemIssuer(files, trust_domain, clock=time.time)
        else:
            self._issuer = self._own = EmbeddedIssuer(FileKeys(state / KEYS), trust_domain, clock=time.time)
        self.credentials = Credentials(self._issuer, self._schedule)

    async def run(self, ports: Ports, loop: Loop, fleet: Fleet) -> None:
        """Issue, renew, rotate, and report it, until cancelled, while this control plane is the active one."""
        await until(ports.active.get, ports.active)
        rotation = (
            Rotation(self._own, self.credentials, CertificateHolders(loop, fleet), self._schedule)
            if self._own
            else None
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._issuer.run(), name="authority")
            tasks.create_task(self.credentials.run(), name="certificates")
            if rotation:
                tasks.create_task(rotation.run(), name="rotation of the authority")
            board = Board(ports.objects, self._issuer, self.credentials, self._schedule, rotation)
            tasks.create_task(board.run(), name="notice of the authority")


class CertificateHolders:
    """Which proxies hold the certificates that they are given."""

    def __init__(self, loop: Loop, fleet: Fleet) -> None:
        self.news = fleet.news
        self._loop = loop
        self._fleet = fleet

    def lagging(self, credentials: Mapping[str, Credential]) -> Sequence[str]:
        """Return the proxies that serve and do not hold their certificate and roots as they are given here, by node id.

        One that is away is not let behind: it would not believe the others when they have certificates of a new root.
        """
        return sorted(
            proxy.id
            for proxy in self._fleet.serving()
            if self._loop.credential_of(proxy.id) != credentials.get(proxy.id) or _lags(proxy)
        )


def _lags(proxy: Proxy) -> bool:
    """Say whether a proxy lacks a secret that it asked for; one that nobody calls by TLS asks for none."""
    if proxy.session is None or not proxy.has_told():
        return True
    shelf = proxy.session.shelves[SECRET]
    return any(shelf.asks_for(name) and proxy.lags(SECRET, name) for name in (IDENTITY, ROOTS))
