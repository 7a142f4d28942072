"""`headgate sidecar log-level`: set the log level of an Envoy for a time, for `headgate proxies --log-level`.

The standard input is an `Order`, a line of JSON; an empty line on the standard output says that the level is set. The
level returns after the time, and when the standard input is closed: then the command has ended, however it ended.
"""

import asyncio
import contextlib
import os
import sys
from pathlib import Path

import msgspec

from headgate.cli.admin_socket import post
from headgate.envoy.proxy_container import ADMIN_SOCKET, DIRECTORY
from headgate.errors import HeadgateError
from headgate.resources.meta import Value

PROGRAM = ("sidecar", "log-level")
"""The arguments of `headgate` that run this program."""


class Order(Value, frozen=True, kw_only=True):
    """The level, and the time. `socket` is that of Envoy's admin interface; by default the one in a pod on Kubernetes."""

    level: str
    seconds: float
    socket: str = f"{DIRECTORY}/{ADMIN_SOCKET}"


async def hold_level() -> None:
    """Carry out the order of the standard input. Raises ProxyError when Envoy does not answer."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    try:
        order = msgspec.json.decode(await reader.readline(), type=Order)
    except msgspec.DecodeError as error:
        raise HeadgateError(f"`headgate proxies --log-level` writes a line of JSON to this program: {error}") from error
    admin = Path(order.socket)
    post(admin, f"/logging?level={order.level}")
    try:
        with contextlib.suppress(BrokenPipeError):  # the command has ended at once
            sys.stdout.write("\n")
            sys.stdout.flush()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(reader.read(), order.seconds)
    finally:
        post(admin, f"/logging?level={os.environ.get('HEADGATE_LOG_LEVEL') or 'warning'}")
