"""`headgate agent`: the node agent, which the DaemonSet of an installation runs on each node of Kubernetes."""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Sequence

from headgate.cli.sidecar import variables
from headgate.envoy.proxy_container import NODE_NAME
from headgate.errors import HeadgateError, single_errors
from headgate.kubernetes.credentials import InCluster
from headgate.kubernetes.node_agent import run


def main(words: Sequence[str]) -> None:
    """Run the agent of the pod's node until SIGTERM."""
    if words:
        raise HeadgateError("`headgate agent` takes no arguments; the node is in the variable NODE_NAME")
    (node,) = variables(os.environ, NODE_NAME)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("headgate.kubernetes.node_agent").setLevel(logging.INFO)
    asyncio.run(_until_signal(node))


async def _until_signal(node: str) -> None:
    running = asyncio.ensure_future(run(node, InCluster(os.environ)))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    try:
        with contextlib.suppress(asyncio.CancelledError):
            await running
    except BaseExceptionGroup as group:
        raise single_errors(group)[0] from None
