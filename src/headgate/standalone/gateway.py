"""The gateway of one machine: its Envoy, its token, and the wait until it takes traffic."""

import asyncio
import logging
import os
from pathlib import Path

from headgate.envoy.bootstrap import bootstrap, token_source
from headgate.envoy.exporting import exported
from headgate.errors import HeadgateError
from headgate.latest import Latest, until
from headgate.objects.events import EventRecorder
from headgate.plane.trust import Trust
from headgate.private import write_private
from headgate.resources.meta import Key
from headgate.standalone.instance import Instance
from headgate.standalone.node import NODE
from headgate.standalone.options import Options
from headgate.standalone.proxies.envoy import EnvoyFlags, EnvoyProcess, EnvoyState, find_envoy
from headgate.xds.proofs import LocalTokens

GATEWAY = "gateway"
"""The id of the gateway among proxies, and the name of its directory in the state directory."""
TOKEN_FILE = "token"  # noqa: S105  # a file's name, as the next one
TOKEN_SOURCE = "token.json"  # noqa: S105
REPAIR_S = 3.0  # an authority that can't sign may be mended by then: an expired root is replaced

log = logging.getLogger(__name__)


def gateway_process(
    options: Options, instance: Instance, tokens: LocalTokens, *, xds: Path, inherited: tuple[int, ...]
) -> EnvoyProcess:
    """Return the gateway's Envoy, which is not started yet. `inherited` are file descriptors."""
    directory = options.state / GATEWAY
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(directory / TOKEN_SOURCE, token_source(str(directory / TOKEN_FILE)))
    tokens.write(GATEWAY, directory / TOKEN_FILE)
    return EnvoyProcess(
        find_envoy(os.environ),
        exported(
            bootstrap(
                node_id=GATEWAY,
                xds_socket=str(xds),
                admin_socket=instance.admin,
                token=str(directory / TOKEN_SOURCE),
            ),
            options.collector,
        ),
        directory=directory,
        admin=Path(instance.admin),
        flags=EnvoyFlags(concurrency=options.concurrency, pass_fds=inherited),
    )


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


def death(state: EnvoyState) -> str:
    """Say how the gateway's Envoy ended, and what happens next."""
    return f"the gateway's {state.failure}; headgate starts it again, and requests through it fail until then"


async def report_deaths(state: Latest[EnvoyState], events: EventRecorder) -> None:
    """Write an Event on the Node whenever the gateway's Envoy ended by itself, until cancelled."""
    restarts = state.get().restarts
    async for current in state.changes():
        if current.restarts > restarts:
            restarts = current.restarts
            node = Key("", "Node", "", NODE)
            await events.record(node, type="Warning", reason="EnvoyEnded", message=death(current))


async def keep_token(tokens: LocalTokens, state: Path) -> None:
    """Renew the gateway's token well before it expires, until cancelled; retry sooner while the disk refuses it."""
    pause = tokens.lifetime.total_seconds() / 2
    while True:
        await asyncio.sleep(pause)
        pause = tokens.lifetime.total_seconds() / 2
        try:
            tokens.write(GATEWAY, state / GATEWAY / TOKEN_FILE)
        except OSError as error:
            pause /= 20
            log.warning("the gateway's token can't be renewed, and is tried again in %d s: %s", pause, error)


async def answers(path: Path) -> bool:
    """Return whether a process listens on a unix socket."""
    try:
        _, writer = await asyncio.open_unix_connection(path)
    except OSError:
        return False
    writer.close()
    return True
