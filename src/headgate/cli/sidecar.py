"""`headgate sidecar`: the program and the hooks of the container that injection adds to pods on Kubernetes."""

import asyncio
import http.client
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from headgate.admission.sidecar_containers import COLLECTOR, JOB, ROOTS_KEY, SECRETS, TRY_SOCKET
from headgate.cli.job_sidecar import end_with_application, pause_randomly
from headgate.cli.output import usage_error
from headgate.cli.proxy_calls import Calls, report_last_requests
from headgate.cli.refusal import (
    ADMIN_SOCKET,
    ESTABLISHED,
    OWN_PORTS,
    listeners_of_application,
    refuse_after_application,
    sockets,
)
from headgate.envoy.bootstrap import XdsAddress, bootstrap, roots_source, token_source
from headgate.envoy.collector_export import with_collector
from headgate.envoy.node_ids import DIRECTORY, PROBE_PORT
from headgate.envoy.node_ids import SIDECAR as NODE_PREFIX
from headgate.envoy.probes import READY_PATH
from headgate.errors import HeadgateError
from headgate.inotify import ENVOY_INSTANCES, missing_instances
from headgate.option import parse_collector
from headgate.standalone.proxies.envoy_binary import find_envoy
from headgate.standalone.proxies.envoy_process import EnvoyFlags

Action = Literal["run", "wait", "drain", "try", "log-level"]
POLL_S = 0.1
QUIET_S = 2.0
"""The sidecar ends when the application has had no connection for this many seconds."""
READY_S = 600.0


def sidecar(
    action: Annotated[
        Action,
        typer.Argument(
            metavar="run|wait|drain|try|log-level",
            help="run: start Envoy. wait: wait until Envoy has its configuration. "
            "drain: wait until the application has ended, and its requests are counted. "
            "try: send the requests of `headgate try`. log-level: for `headgate proxies --log-level`.",
        ),
    ],
    job: Annotated[
        bool,
        typer.Option(
            JOB,
            help="The pod ends by itself. run: end Envoy after the application.",
        ),
    ] = False,
) -> None:
    """Run the sidecar of a pod. The container that injection adds runs the first ones, and users' commands the last two."""
    if action == "run":
        _run(job=job)
    elif action == "wait":
        _wait()
    elif action == "try":
        from headgate.cli.sidecar_try import send_batch  # its imports would delay the start of Envoy

        asyncio.run(send_batch(Path(TRY_SOCKET)))
    elif action == "log-level":
        from headgate.cli.held_log_level import hold_level  # as above

        asyncio.run(hold_level())
    else:
        _drain()
        report_last_requests(calls_of(_node_id()))


def _run(*, job: bool) -> None:
    """Replace this process by Envoy. In a pod that ends by itself, a child process ends Envoy after the application.

    Envoy is the main process in both cases, so that it gets the signals and its exit code is that of the container.
    """
    check_inotify_limit()
    envoy = os.getpid()
    if job and os.fork() == 0:
        end_with_application(calls_of(_node_id()), envoy, pause_randomly)
    else:
        exec_envoy(os.environ, _node_id())


def calls_of(node_id: str) -> Calls:
    """Return the calls of a proxy to the control plane."""
    (xds,) = variables(os.environ, "HEADGATE_XDS")
    secrets = Path(SECRETS)
    return Calls(xds, node_id, token=secrets / "token", roots=secrets / ROOTS_KEY)


def _node_id() -> str:
    namespace, pod = variables(os.environ, "POD_NAMESPACE", "POD_NAME")
    return f"{NODE_PREFIX}/{namespace}/{pod}"


def variables(environ: Mapping[str, str], *names: str) -> Sequence[str]:
    """Return the values of environment variables. Raises a usage error if one is missing."""
    missing = [name for name in names if not environ.get(name)]
    if missing:
        raise usage_error(
            f"the environment has no {' and '.join(missing)}: run the command in a container that headgate creates",
            option="run",
        )
    return [environ[name] for name in names]


def check_inotify_limit() -> None:
    """Raise HeadgateError when the node's limit of inotify instances is reached: Envoy would abort with a backtrace."""
    if message := missing_instances(ENVOY_INSTANCES, "the node"):
        raise HeadgateError(f"Envoy can't start: {message}")


def exec_envoy(environ: Mapping[str, str], node_id: str) -> None:
    """Write the bootstrap of a proxy and replace this process by Envoy."""
    (xds,) = variables(environ, "HEADGATE_XDS")
    host, _, port = xds.rpartition(":")
    directory, secrets = Path(DIRECTORY), Path(SECRETS)
    sources = directory / "sources"  # Envoy watches this directory, so nothing else is written there
    sources.mkdir(exist_ok=True)
    content = bootstrap(
        node_id=node_id,
        admin_socket=str(directory / ADMIN_SOCKET),
        xds=XdsAddress(host=host, port=int(port), name=host, roots=str(sources / "roots.json")),
        token=str(sources / "token.json"),
    )
    files = {
        sources / "token.json": token_source(str(secrets / "token")),
        sources / "roots.json": roots_source(str(secrets / ROOTS_KEY)),
        directory / "bootstrap.json": with_collector(content, parse_collector(environ.get(COLLECTOR, ""))),
    }
    for path, written in files.items():
        path.write_bytes(written)
    binary = str(find_envoy(environ))
    flags = EnvoyFlags(log_level=environ.get("HEADGATE_LOG_LEVEL") or "warning")
    os.execv(binary, [binary, "-c", str(directory / "bootstrap.json"), *flags.arguments()])  # noqa: S606 - Envoy replaces this process


def _wait() -> None:
    """Wait until Envoy has its first configuration. Raises HeadgateError after READY_S seconds."""
    end = time.monotonic() + READY_S
    while not _is_ready():
        if time.monotonic() > end:
            raise HeadgateError(f"the sidecar has no configuration after {READY_S:.0f} s; see the log of its container")
        time.sleep(POLL_S)


def _is_ready() -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", PROBE_PORT, timeout=1)
    try:
        connection.request("GET", READY_PATH)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _drain() -> None:
    """Refuse connections once the application has closed its listeners; wait until none has been open for QUIET_S seconds.

    The kubelet kills the container at the end of the pod's grace period.
    """
    refuse_after_application()
    quiet_since = time.monotonic()
    while time.monotonic() - quiet_since < QUIET_S:
        time.sleep(POLL_S)
        if any(listeners_of_application()) or any(_connections_of_sidecar()):
            quiet_since = time.monotonic()


def _connections_of_sidecar() -> Iterator[int]:
    """Yield the port of each connection to the sidecar, without those of probes."""
    return (port for port, state in sockets() if state == ESTABLISHED and port in OWN_PORTS - {PROBE_PORT})
