"""`headgate gateway`: the program and the preStop hook of the pods that run the proxy of a Gateway on Kubernetes."""

import os
import time
from typing import Annotated, Literal

import typer

from headgate.cli.proxy_calls import report_last_requests
from headgate.cli.refusal import ESTABLISHED, LISTEN, post_to_envoy, sockets
from headgate.cli.sidecar import POLL_S, QUIET_S, calls_of, check_inotify_limit, exec_envoy, variables
from headgate.envoy.node_ids import GATEWAY, PROBE_PORT, SIDECAR
from headgate.kubernetes.gateway_pods import WITHDRAWAL_S
from headgate.resources.meta import SYSTEM_NAMESPACE


def gateway(
    action: Annotated[
        Literal["run", "drain", "nginx"],
        typer.Argument(
            metavar="run|drain|nginx",
            help="run: start Envoy. drain: wait until clients have closed their connections, and requests are counted. "
            "nginx: run nginx as the gateway of a Service.",
        ),
    ],
) -> None:
    """Run the proxy of a Gateway or a Service. The pods that headgate creates for them run these commands."""
    (pod,) = variables(os.environ, "POD_NAME")
    node_id = f"{GATEWAY}/{pod}"
    if action == "nginx":
        from headgate.cli.nginx_gateway import run_nginx  # its imports would delay the start of Envoy

        run_nginx(calls_of(f"{SIDECAR}/{SYSTEM_NAMESPACE}/{pod}"))
    elif action == "run":
        check_inotify_limit()
        exec_envoy(os.environ, node_id)
    else:
        _drain()
        report_last_requests(calls_of(node_id))


def _drain() -> None:
    """Let Envoy ask its clients to close their connections; wait until no connection has been open for QUIET_S seconds.

    The kubelet kills the container at the end of the pod's grace period.
    """
    post_to_envoy("/drain_listeners?graceful")
    began = quiet_since = time.monotonic()
    while (now := time.monotonic()) < max(began + WITHDRAWAL_S, quiet_since + QUIET_S):
        found = list(sockets())
        ports = {port for port, state in found if state == LISTEN} - {PROBE_PORT}
        if any(port in ports and state == ESTABLISHED for port, state in found):
            quiet_since = now
        time.sleep(POLL_S)
