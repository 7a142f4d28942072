"""`headgate sidecar`: the programs of the containers that injection adds to pods on Kubernetes.

Each start of a pod runs three of them. So this module imports little, and each program imports what only it needs.
"""

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.envoy.node_ids import PROBE_PORT
from headgate.envoy.node_ids import SIDECAR as NODE_PREFIX
from headgate.envoy.pod_bootstrap import BOOTSTRAP, pod_bootstrap
from headgate.envoy.proxy_container import (
    COLLECTOR,
    CONCURRENCY,
    DIRECTORY,
    EXCLUDED_INBOUND_PORTS,
    JOB,
    LOG_LEVEL,
    NETWORK_NAMESPACE,
    NODE_NAME,
    PROXY_USER,
    READY_PATH,
    ROOTS_KEY,
    SECRETS,
    TRY_SOCKET,
)
from headgate.errors import HeadgateError
from headgate.inotify import ENVOY_INSTANCES, missing_instances
from headgate.standalone.proxies.envoy_binary import find_envoy
from headgate.standalone.proxies.envoy_flags import EnvoyFlags

if TYPE_CHECKING:
    from headgate.cli.proxy_calls import Calls

POLL_S = 0.1
QUIET_S = 2.0
"""The sidecar ends when the application has had no connection for this many seconds."""
READY_S = 600.0


def main(words: Sequence[str]) -> None:
    """Run a program of a sidecar's container. Injection adds the first six ones; commands of users run the last two."""
    programs: Mapping[Sequence[str], Callable[[], None]] = {
        ("redirect",): _redirect,
        ("wait-redirected",): _wait_redirected,
        ("run",): _run,
        ("run", JOB): lambda: _run(job=True),
        ("wait",): _wait,
        ("drain",): _end,
        ("try",): _try,
        ("log-level",): _hold_level,
    }
    if (program := programs.get(tuple(words))) is None:
        raise HeadgateError(f"`headgate sidecar` runs one of: {', '.join(map(' '.join, programs))}")
    program()


def _redirect() -> None:
    """Redirect the pod's connections to the sidecar, but for the ports that an annotation of the pod excludes.

    The node agent runs this program outside the pod, and names the pod's network namespace.
    """
    from headgate.redirection.exclusions import parse_exclusions
    from headgate.redirection.iptables import apply
    from headgate.redirection.rules import rules

    (user,) = variables(os.environ, PROXY_USER)
    if namespace := os.environ.get(NETWORK_NAMESPACE):
        from headgate.redirection.network_namespaces import enter

        enter(int(namespace))
    apply(rules(parse_exclusions(inbound_ports=os.environ.get(EXCLUDED_INBOUND_PORTS, "")), int(user)))


def _wait_redirected() -> None:
    """Wait until the node agent has redirected the pod's connections. Raises HeadgateError after READY_S seconds."""
    import signal

    from headgate.redirection.verification import wait_until_redirected

    signal.signal(
        signal.SIGTERM, lambda *_: os._exit(143)
    )  # the kernel ignores SIGTERM for the first process of a container
    (node,) = variables(os.environ, NODE_NAME)
    wait_until_redirected(node, READY_S)


def _try() -> None:
    import asyncio

    from headgate.cli.sidecar_try import send_batch

    asyncio.run(send_batch(Path(TRY_SOCKET)))


def _hold_level() -> None:
    import asyncio

    from headgate.cli.held_log_level import hold_level

    asyncio.run(hold_level())


def _run(*, job: bool = False) -> None:
    """Replace this process by Envoy. In a pod that ends by itself, a child process ends Envoy after the application.

    Envoy is the main process in both cases, so that it gets the signals and its exit code is that of the container.
    """
    check_inotify_limit()
    envoy = os.getpid()
    if job and os.fork() == 0:
        from headgate.cli.job_sidecar import end_with_application, pause_randomly

        end_with_application(calls_of(_node_id()), envoy, pause_randomly)
    else:
        exec_envoy(os.environ, _node_id())


def calls_of(node_id: str) -> "Calls":
    """Return the calls of a proxy to the control plane."""
    from headgate.cli.proxy_calls import Calls

    (xds,) = variables(os.environ, "HEADGATE_XDS")
    secrets = Path(SECRETS)
    return Calls(xds, node_id, token=secrets / "token", roots=secrets / ROOTS_KEY)


def _node_id() -> str:
    namespace, pod = variables(os.environ, "POD_NAMESPACE", "POD_NAME")
    return f"{NODE_PREFIX}/{namespace}/{pod}"


def variables(environ: Mapping[str, str], *names: str) -> Sequence[str]:
    """Return the values of environment variables. Raises HeadgateError if one is missing."""
    missing = [name for name in names if not environ.get(name)]
    if missing:
        raise HeadgateError(
            f"the environment has no {' and '.join(missing)}: run the command in a container that headgate creates"
        )
    return [environ[name] for name in names]


def check_inotify_limit() -> None:
    """Raise HeadgateError when the node's limit of inotify instances is reached: Envoy would abort with a backtrace."""
    if message := missing_instances(ENVOY_INSTANCES, "the node"):
        raise HeadgateError(f"Envoy can't start: {message}")


def exec_envoy(environ: Mapping[str, str], node_id: str) -> None:
    """Write the bootstrap of a proxy and replace this process by Envoy."""
    (xds,) = variables(environ, "HEADGATE_XDS")
    directory = Path(DIRECTORY)
    files = dict(pod_bootstrap(node_id, xds, directory=DIRECTORY, secrets=SECRETS))
    if collector := environ.get(COLLECTOR, ""):
        from headgate.envoy.collector_export import with_collector
        from headgate.option import parse_collector

        files[BOOTSTRAP] = with_collector(files[BOOTSTRAP], parse_collector(collector))
    for path, content in files.items():
        (directory / path).parent.mkdir(exist_ok=True)
        (directory / path).write_bytes(content)
    binary = str(find_envoy(environ))
    flags = EnvoyFlags(environ.get(LOG_LEVEL) or "warning", concurrency=int(environ.get(CONCURRENCY) or "1"))
    os.execv(binary, [binary, "-c", str(directory / BOOTSTRAP), *flags.arguments()])  # noqa: S606 - Envoy replaces this process


def _wait() -> None:
    """Wait until Envoy has its first configuration. Raises HeadgateError after READY_S seconds."""
    end = time.monotonic() + READY_S
    while not _is_ready():
        if time.monotonic() > end:
            raise HeadgateError(f"the sidecar has no configuration after {READY_S:.0f} s; see the log of its container")
        time.sleep(POLL_S)


def _is_ready() -> bool:
    """Return whether Envoy has its configuration. To import `http.client` would take as long as all else in `headgate sidecar wait`."""
    request = f"GET {READY_PATH} HTTP/1.1\r\nhost: sidecar\r\nconnection: close\r\n\r\n"
    try:
        with socket.create_connection(("127.0.0.1", PROBE_PORT), timeout=1) as connection:
            connection.sendall(request.encode())
            status_line = connection.makefile("rb").readline()
    except OSError:
        return False
    return status_line.split()[1:2] == [b"200"]


def _end() -> None:
    """Wait until the application has ended, and its requests are counted. The refusal of connections is urgent, so it is first."""
    _drain()
    from headgate.cli.proxy_calls import report_last_requests

    report_last_requests(calls_of(_node_id()))


def _drain() -> None:
    """Refuse connections once the application has closed its listeners; wait until none has been open for QUIET_S seconds.

    The kubelet kills the container at the end of the pod's grace period.
    """
    from headgate.cli.refusal import connections_of_sidecar, listeners_of_application, refuse_after_application

    refuse_after_application()
    quiet_since = time.monotonic()
    while time.monotonic() - quiet_since < QUIET_S:
        time.sleep(POLL_S)
        if any(listeners_of_application()) or any(connections_of_sidecar()):
            quiet_since = time.monotonic()
