"""The Lease by which the replicas of the control plane elect the active one (D28).

The holder renews the Lease every RENEW_S seconds, tries again after RETRY_S seconds when the API server does not answer,
and stops if it can't renew the Lease for STOP_S seconds; then it aborts its requests in flight. Another replica acquires
the Lease LIFETIME_S seconds after the last renewal. STOP_S is shorter, so two replicas are never active at the same time.
Clocks may differ: each replica measures time from the moment at which it observed the last renewal.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from headgate.backoff import until_done
from headgate.errors import AlreadyExists, Conflict, HeadgateError, NotFound, Unavailable
from headgate.kubernetes.client import Client
from headgate.latest import Latest
from headgate.resources.meta import Object, micro_timestamp

LIFETIME_S = 15
STOP_S = 10.0
RENEW_S = 2.0
RETRY_S = 0.5

log = logging.getLogger(__name__)


class LeaseLost(HeadgateError):
    """A replica could not renew the Lease in time, or another replica holds it. The replica must stop."""


async def hold(lease: "Lease", *clients: Client) -> None:
    """Acquire and renew a Lease. When it is lost, abort the requests of `clients` at once, and raise LeaseLost.

    The API server could otherwise execute them after another replica has become active.
    """
    try:
        await lease.run()
    except LeaseLost:
        for client in clients:
            await client.abort()
        raise


class LeaseName(NamedTuple):
    """The namespace and the name of a Lease."""

    namespace: str
    name: str


class Lease:
    """Acquires and renews a Lease for one replica. `active` is True while the replica `identity` holds the Lease."""

    def __init__(
        self, client: Client, lease: LeaseName, identity: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.active: Latest[bool] = Latest(value=False)
        self._client = client
        self._name = lease
        self._identity = identity
        self._clock = clock
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{lease.namespace}/leases"
        self._path = f"{self._collection}/{lease.name}"
        self._seen: tuple[str, float] = (
            "",
            clock(),
        )  # the newest observed resource version, and when it was observed first
        self._held: Object | None = None
        """The Lease as this replica has written it last."""

    async def run(self) -> None:
        """Acquire the Lease and renew it, until canceled. Raises LeaseLost when this replica must stop."""
        renewed = 0.0
        while True:
            began = self._clock()
            is_held = await self._attempt(renewed + STOP_S - began if self.active.get() else STOP_S)
            if is_held:
                renewed = began
                self.active.set(value=True)
            elif self.active.get() and (is_held is False or self._clock() - renewed >= STOP_S - RETRY_S):
                self.active.set(value=False)
                raise LeaseLost(f"replica {self._identity} has lost the Lease {'/'.join(self._name)} and stops")
            if self.active.get():
                await asyncio.sleep(RENEW_S if is_held else RETRY_S)
            else:
                await self._wait_changed()

    async def _attempt(self, left: float) -> bool | None:
        """Acquire or renew the Lease within `left` seconds; return whether this replica holds it, None if that is unknown."""
        try:
            async with asyncio.timeout(min(STOP_S / 2, left)):
                return await self._try()
        except (TimeoutError, HeadgateError) as error:
            log.warning(
                "the Lease %s/%s can't be renewed: %s", *self._name, error if str(error) else "no answer in time"
            )
            return None

    async def _wait_changed(self) -> None:
        """Wait until the holder releases the Lease, at most RENEW_S seconds."""
        query = {
            "watch": "true",
            "fieldSelector": f"metadata.name={self._name.name}",
            "resourceVersion": self._seen[0] or "0",
        }
        end = self._clock() + RENEW_S
        with contextlib.suppress(TimeoutError, HeadgateError):
            async with (
                asyncio.timeout(RENEW_S),
                contextlib.aclosing(self._client.watch_at(self._collection, query)) as events,
            ):
                async for event in events:
                    if not event.object.get("spec", {}).get("holderIdentity"):
                        return
        await asyncio.sleep(max(0.0, end - self._clock()))

    async def release(self) -> None:
        """Release the Lease, so that another replica acquires it at once. Wait at most RENEW_S for the API server."""
        if not self.active.get():
            return
        try:
            async with asyncio.timeout(RENEW_S):
                await until_done(self._release, f"the Lease {'/'.join(self._name)} can't be released", on=Unavailable)
        except (TimeoutError, HeadgateError) as error:
            log.warning("the Lease %s/%s is not released: %s", *self._name, str(error) or "no answer in time")

    async def _release(self) -> None:
        lease = await self._client.get(self._path)
        if lease["spec"].get("holderIdentity") == self._identity:
            await self._client.put(self._path, {**lease, "spec": self._spec(lease, holder="", seconds=1)})

    async def _try(self) -> bool:
        """Acquire or renew the Lease; return whether this replica holds it."""
        if self._held:
            try:
                self._held = await self._renewed(self._held)
            except (Conflict, NotFound):  # another client has changed or deleted the Lease: read it again
                self._held = None
            else:
                return True
        try:
            lease = await self._client.get(self._path)
        except NotFound:
            return await self._create()
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if holder not in ("", self._identity) and not self._is_expired(
            lease, int(spec.get("leaseDurationSeconds") or 0)
        ):
            return False
        try:
            self._held = await self._renewed(lease)
        except Conflict:
            return False
        return True

    async def _renewed(self, lease: Object) -> Object:
        return await self._client.put(self._path, {**lease, "spec": self._spec(lease, holder=self._identity)})

    async def _create(self) -> bool:
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"namespace": self._name.namespace, "name": self._name.name},
            "spec": self._spec({}, holder=self._identity),
        }
        try:
            await self._client.post(self._collection, body)
        except AlreadyExists:
            return False
        return True

    def _is_expired(self, lease: Object, seconds: int) -> bool:
        version = str(lease["metadata"]["resourceVersion"])
        if version != self._seen[0]:
            self._seen = version, self._clock()
        return self._clock() - self._seen[1] > seconds

    def _spec(self, lease: Object, *, holder: str, seconds: int = LIFETIME_S) -> dict[str, Any]:
        before = lease.get("spec") or {}
        now = micro_timestamp(time.time())
        changes = holder != before.get("holderIdentity")
        return {
            "holderIdentity": holder,
            "leaseDurationSeconds": seconds,
            "acquireTime": now if changes else before.get("acquireTime", now),
            "renewTime": now,
            "leaseTransitions": int(before.get("leaseTransitions") or 0) + bool(changes and holder and before),
        }
