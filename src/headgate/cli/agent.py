"""`headgate agent`: the node agent, which the DaemonSet of an installation runs on each node of Kubernetes."""

import asyncio
import logging
import os
from collections.abc import Sequence

from headgate.cli.sidecar import variables
from headgate.cli.until_signal import until_signal
from headgate.envoy.proxy_container import NODE_NAME
from headgate.errors import HeadgateError
from headgate.kubernetes.credentials import InCluster
from headgate.kubernetes.node_agent import run


def main(words: Sequence[str]) -> None:
    """Run the agent of the pod's node until SIGTERM."""
    if words:
        raise HeadgateError("`headgate agent` takes no arguments; the node is in the variable NODE_NAME")
    (node,) = variables(os.environ, NODE_NAME)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("headgate.kubernetes.node_agent").setLevel(logging.INFO)
    asyncio.run(until_signal(run(node, InCluster(os.environ)), plain=HeadgateError))
