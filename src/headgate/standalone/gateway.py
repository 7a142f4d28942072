"""The gateway of one machine: its readiness, its restarts and its token."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import NamedTuple

from headgate.errors import HeadgateError
from headgate.latest import Latest, until
from headgate.objects.events import EventRecorder
from headgate.plane.trust import Trust
from headgate.standalone.machine_node import NODE_KEY
from headgate.standalone.proxies.envoy_process import EnvoyProcess, EnvoyState, MeshEnvoy

GATEWAY = "gateway"
"""The node ID of the gateway, and the name of its directory in the state directory."""
START_S = 60.0  # the longest wait for the gateway in seconds, for busy machines; an exit of Envoy ends it at once
REPAIR_S = 20.0  # the longest wait in seconds while headgate replaces the expired root of its own CA
EDIT_S = 3.0  # the same while the user replaces the files of a CA

log = logging.getLogger(__name__)


async def serving(envoy: EnvoyProcess, trust: Trust) -> None:
    """Wait until the gateway is ready. Raises HeadgateError with the reason, such as a certificate that can't be issued.

    An adopted Envoy serves with its last configuration, also while it is too busy to answer. An error would end it.
    """
    try:
        await _ready(envoy, trust)
    except HeadgateError as error:
        if not envoy.state.get().adopted:
            raise
        log.warning("the gateway's Envoy of an earlier headgate serves with its last configuration: %s", error)


async def _ready(envoy: EnvoyProcess, trust: Trust) -> None:
    faults = trust.credentials.faults
    ready = asyncio.create_task(envoy.ready(START_S), name="the gateway")
    faulty = asyncio.create_task(until(lambda: GATEWAY in faults.get(), faults), name="its certificate")
    try:
        await asyncio.wait({ready, faulty}, return_when=asyncio.FIRST_COMPLETED)
        if faulty.done():
            await asyncio.wait({ready}, timeout=REPAIR_S if trust.replaces_roots else EDIT_S)
        if not ready.done() and (fault := faults.get().get(GATEWAY)):
            raise HeadgateError(f"the gateway can't start without a certificate: {fault}")
        await ready
    finally:
        ready.cancel()
        faulty.cancel()
        await asyncio.gather(ready, faulty, return_exceptions=True)


class EnvoyChange(NamedTuple):
    """A message for users: the gateway's Envoy has exited, or it runs again."""

    message: str
    runs: bool


async def exits(state: Latest[EnvoyState]) -> AsyncIterator[EnvoyChange]:
    """Yield a change each time that the gateway's Envoy exits unexpectedly, and when it runs again."""
    restarts, is_down = state.get().restarts, False
    async for current in state.changes():
        if current.restarts > restarts:
            restarts, is_down = current.restarts, True
            message = f"the gateway's {current.failure}; requests through it fail until headgate has restarted it"
            yield EnvoyChange(message, runs=False)
        if is_down and current.pid:
            is_down = False
            yield EnvoyChange(f"the gateway's Envoy runs again (process {current.pid})", runs=True)


async def report_exits(state: Latest[EnvoyState], events: EventRecorder) -> None:
    """Record an Event on the Node for each unexpected exit and restart of the gateway's Envoy, until canceled."""
    async for change in exits(state):
        if change.runs:
            await events.record(NODE_KEY, type="Normal", reason="EnvoyRestarted", message=change.message)
        else:
            await events.record(NODE_KEY, type="Warning", reason="EnvoyEnded", message=change.message)


async def keep_token(envoy: MeshEnvoy) -> None:
    """Renew the gateway's token until canceled."""
    async for error, pause in envoy.renewals():
        log.warning("can't renew the gateway's token, next attempt in %d s: %s", pause, error)
