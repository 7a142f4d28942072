"""Creates and connects the parts of the certificate authority: the issuer, proxies' certificates and root rotation."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta

from headgate.envoy.config import SECRET
from headgate.envoy.names import IDENTITY, ROOTS
from headgate.identity.ca_status import CaStatusPublisher
from headgate.identity.credentials import Credentials, Schedule
from headgate.identity.embedded import EmbeddedIssuer
from headgate.identity.issuers import Issuer
from headgate.identity.rotation import Rotation
from headgate.latest import Latest, until
from headgate.model.identities import Credential
from headgate.objects.ports import Ports
from headgate.plane.loop import Loop
from headgate.settings import Settings
from headgate.xds.fleet import Fleet, FleetProxy


class Trust:
    """The certificate authority, and the credentials that it issues to proxies.

    The control loop reads `credentials`.
    """

    def __init__(self, issuer: Issuer, settings: Settings, trusted: Latest[str] | None = None) -> None:
        """Use an issuer. If it is the embedded issuer, `run` also rotates its root.

        `trusted` has the roots that all clients of the control plane's servers trust; None if no client uses TLS.
        """
        self._schedule = Schedule(clock=time.time, lifetime=timedelta(seconds=settings.certificate_seconds))
        self._issuer = issuer
        self._trusted = trusted
        self.credentials = Credentials(issuer, self._schedule)

    @property
    def replaces_roots(self) -> bool:
        """Whether the control plane itself replaces an expired root certificate: it has read the keys of its own authority."""
        return isinstance(self._issuer, EmbeddedIssuer) and self._issuer.stored.get() is not None

    async def run(self, ports: Ports, loop: Loop, fleet: Fleet, fleet_known: asyncio.Event) -> None:
        """Wait until this control plane is active. Then renew certificates, rotate the root and publish the status.

        The rotation begins when the fleet has the proxies of an earlier process: it waits for them too.
        """
        await until(ports.active.get, ports.active)
        rotation = (
            Rotation(self._issuer, self.credentials, CertificateHolders(loop, fleet), self._schedule, self._trusted)
            if isinstance(self._issuer, EmbeddedIssuer)
            else None
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._issuer.run(), name="authority")
            tasks.create_task(self.credentials.run(), name="certificates")
            board = CaStatusPublisher(ports.objects, self._issuer, self.credentials, self._schedule, rotation)
            tasks.create_task(board.run(), name="status of the authority")
            if rotation:
                await fleet_known.wait()
                tasks.create_task(rotation.run(), name="rotation of the authority")


class CertificateHolders:
    """Tracks which proxies use their current certificate and the current root certificates."""

    def __init__(self, loop: Loop, fleet: Fleet) -> None:
        self.change_count = fleet.change_count
        self._loop = loop
        self._fleet = fleet

    def lagging(self, credentials: Mapping[str, Credential]) -> Sequence[str]:
        """Return the node IDs of serving proxies that have not acknowledged these credentials yet.

        A disconnected proxy counts too: it would reject peers with certificates of a new root.
        """
        return sorted(
            proxy.id
            for proxy in self._fleet.configured()
            if self._loop.credential_of(proxy.id) != credentials.get(proxy.id) or _lags(proxy)
        )


def _lags(proxy: FleetProxy) -> bool:
    """Return whether a proxy has not acknowledged a secret to which it subscribes.

    A proxy without TLS subscribes to no secret, and does not lag.
    """
    if proxy.session is None or not proxy.has_reported_all():
        return True
    subscription = proxy.session.subscriptions[SECRET]
    return any(subscription.includes(name) and proxy.is_out_of_sync(SECRET, name) for name in (IDENTITY, ROOTS))
