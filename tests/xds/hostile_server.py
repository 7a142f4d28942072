"""A program that serves xDS on a Unix socket, for tests that measure its memory: the path of the socket is its argument."""

import asyncio
import sys

from headgate.xds.authentication import SECRET_BYTES, LocalTokens
from headgate.xds.fleet import Fleet
from headgate.xds.server import XdsServer
from headgate.xds.unary_methods import CheckNode

UNARY_METHOD = "/reports/Export"


async def report(_data: bytes, check_node: CheckNode) -> bytes:
    """Accept each report."""
    check_node("sidecar/default/web")
    return b""


async def main(path: str) -> None:
    """Serve until standard input ends."""
    xds = XdsServer(Fleet(), LocalTokens(bytes(SECRET_BYTES)), unary_methods={UNARY_METHOD: report})
    await xds.start(f"unix:{path}")
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    await xds.stop()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
