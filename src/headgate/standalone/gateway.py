"""The gateway of one machine: its Envoy, its token, and the wait until it takes traffic."""

import asyncio
import logging
from collections.abc import AsyncIterator

from headgate.errors import HeadgateError
from headgate.latest import Latest, until
from headgate.objects.events import EventRecorder
from headgate.plane.trust import Trust
from headgate.standalone.machine_node import NODE_KEY
from headgate.standalone.proxies.envoy_process import EnvoyProcess, EnvoyState, MeshEnvoy

GATEWAY = "gateway"
"""The id of the gateway among proxies, and the name of its directory in the state directory."""
REPAIR_S = 3.0  # an authority that can't sign may be mended by then: an expired root is replaced

log = logging.getLogger(__name__)


async def serving(envoy: EnvoyProcess, trust: Trust) -> None:
    """Wait until the gateway takes traffic. Raises HeadgateError; it is about its certificate when that is missing."""
    faults = trust.credentials.faults
    ready = asyncio.create_task(envoy.ready(), name="the gateway")
    lacking = asyncio.create_task(until(lambda: GATEWAY in faults.get(), faults), name="its certificate")
    try:
        await asyncio.wait({ready, lacking}, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait({ready}, timeout=REPAIR_S if lacking.done() else None)
        if not ready.done() and (fault := faults.get().get(GATEWAY)):
            raise HeadgateError(f"the gateway does not start: {fault}")
        await ready
    finally:
        ready.cancel()
        lacking.cancel()
        await asyncio.gather(ready, lacking, return_exceptions=True)


async def deaths(state: Latest[EnvoyState]) -> AsyncIterator[str]:
    """Yield how the gateway's Envoy ended by itself, and what happens next, each time that it does."""
    restarts = state.get().restarts
    async for current in state.changes():
        if current.restarts > restarts:
            restarts = current.restarts
            yield f"the gateway's {current.failure}; headgate starts it again, and requests through it fail until then"


async def report_deaths(state: Latest[EnvoyState], events: EventRecorder) -> None:
    """Write an Event on the Node each time that the gateway's Envoy ended by itself, until cancelled."""
    async for message in deaths(state):
        await events.record(NODE_KEY, type="Warning", reason="EnvoyEnded", message=message)


async def keep_token(envoy: MeshEnvoy) -> None:
    """Renew the gateway's token, until cancelled."""
    async for error, pause in envoy.renewals():
        log.warning("the gateway's token can't be renewed, and is tried again in %d s: %s", pause, error)
