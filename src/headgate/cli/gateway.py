"""`headgate gateway`: the program and the preStop hook of the pods that run the proxy of a Gateway on Kubernetes.

Like `headgate.cli.sidecar`, this module imports little.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence

from headgate.cli.sidecar import POLL_S, QUIET_S, calls_of, check_inotify_limit, exec_envoy, variables
from headgate.envoy.node_ids import GATEWAY, PROBE_PORT, SIDECAR
from headgate.envoy.proxy_container import WITHDRAWAL_S
from headgate.errors import HeadgateError


def main(words: Sequence[str]) -> None:
    """Run a program of the pods that headgate creates for a Gateway or a Service: the proxy, its preStop hook, or nginx."""
    programs: Mapping[Sequence[str], Callable[[str], None]] = {("run",): _run, ("drain",): _end, ("nginx",): _nginx}
    if (program := programs.get(tuple(words))) is None:
        raise HeadgateError(f"`headgate gateway` runs one of: {', '.join(map(' '.join, programs))}")
    (pod,) = variables(os.environ, "POD_NAME")
    program(pod)


def _run(pod: str) -> None:
    check_inotify_limit()
    exec_envoy(os.environ, f"{GATEWAY}/{pod}")


def _end(pod: str) -> None:
    """Wait until clients have closed their connections, and requests are counted."""
    _drain()
    from headgate.cli.proxy_calls import report_last_requests

    report_last_requests(calls_of(f"{GATEWAY}/{pod}"))


def _nginx(pod: str) -> None:
    from headgate.cli.nginx_gateway import run_nginx
    from headgate.resources.meta import SYSTEM_NAMESPACE

    run_nginx(calls_of(f"{SIDECAR}/{SYSTEM_NAMESPACE}/{pod}"))


def _drain() -> None:
    """Make Envoy close its clients' connections; wait until no connection has been open for QUIET_S seconds.

    The kubelet kills the container at the end of the pod's grace period.
    """
    from headgate.cli.refusal import ESTABLISHED, LISTEN, post_to_envoy, sockets

    post_to_envoy("/drain_listeners?graceful")
    began = quiet_since = time.monotonic()
    while (now := time.monotonic()) < max(began + WITHDRAWAL_S, quiet_since + QUIET_S):
        open_sockets = list(sockets())
        ports = {port for port, state in open_sockets if state == LISTEN} - {PROBE_PORT}
        if any(port in ports and state == ESTABLISHED for port, state in open_sockets):
            quiet_since = now
        time.sleep(POLL_S)
