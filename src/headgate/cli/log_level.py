"""`headgate proxies PROXY --log-level`: let a proxy log more, or less, for a time."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator
from subprocess import PIPE
from typing import cast

import msgspec
from msgspec import structs

from headgate.admission.sidecar_containers import CONTAINER
from headgate.cli.held_log_level import PROGRAM, Order
from headgate.cli.inspect_client import InspectClient, display_name
from headgate.cli.output import stdout
from headgate.cli.senders import failure
from headgate.errors import HeadgateError, ProxyError
from headgate.kubernetes.pod_programs import PodContainer, ProgramFailed, run_program
from headgate.resources.inspect import Proxy


async def set_log_level(inspect_client: InspectClient, proxy: Proxy, level: str, seconds: float) -> None:
    """Set the log level of a proxy, wait, and let it return. Raises HeadgateError when the proxy can't be reached."""
    name = display_name(proxy.node)
    order = Order(level=level, seconds=seconds)
    if process := proxy.status.process:
        if not process.pid:
            raise ProxyError(f"the Envoy of {name} does not run")
        output = _run_here(structs.replace(order, socket=process.admin))
    else:
        container = PodContainer(proxy.metadata.namespace, proxy.metadata.name, CONTAINER)
        line = msgspec.json.encode(order) + b"\n"
        output = run_program(inspect_client.client, container, ("headgate", *PROGRAM), stdin=line)
    console = stdout()
    try:
        async with contextlib.aclosing(output):
            async for _ in output:
                console.print(f"{name} logs at the level {level} for {seconds:g} s, or until Ctrl-C", soft_wrap=True)
    except ProgramFailed as error:
        raise HeadgateError(f"can't set the log level of {name}: {failure(error)}") from error
    console.print(f"{name} logs at its usual level again", soft_wrap=True)


async def _run_here(order: Order) -> AsyncGenerator[bytes]:
    """Run the program on this machine, like `run_program`.

    It has a session of its own, so that Ctrl-C does not end it before the level has returned.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "headgate", *PROGRAM), stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True
    )
    stdin = cast("asyncio.StreamWriter", process.stdin)
    lines, errors = (cast("asyncio.StreamReader", reader) for reader in (process.stdout, process.stderr))
    try:
        stdin.write(msgspec.json.encode(order) + b"\n")
        while line := await lines.readline():
            yield line
    finally:
        stdin.close()
        message = await errors.read()
        code = await process.wait()
    if code:
        raise ProgramFailed(message.decode(errors="replace").strip(), code)
