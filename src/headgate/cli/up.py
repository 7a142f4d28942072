"""`headgate up`: run manifests on this machine."""

import asyncio
import errno
import logging
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from msgspec import structs

from headgate import event_loop
from headgate.cli.arguments import DEFAULT_STATE, check_paths
from headgate.cli.common_options import duration
from headgate.cli.live import watch_table
from headgate.cli.mesh_options import with_mesh_options
from headgate.cli.messages import Messages
from headgate.cli.output import EndedCalls, OncePerReason, PrintableFormatter, note, usage_error
from headgate.cli.reporter import JsonReporter, Reporter, TextReporter
from headgate.cli.up_tasks import UpTasks
from headgate.dashboard.local import serving_state
from headgate.errors import HeadgateError, Unavailable, single_errors
from headgate.identity.pem import Files
from headgate.kubernetes.credentials import Kubeconfig
from headgate.options import OPTIONS, By, GivenOptions
from headgate.standalone.app import Running, running
from headgate.standalone.gateway import GATEWAY
from headgate.standalone.listeners import LOOPBACK
from headgate.standalone.network.choice import NetworkOption, enter_user_namespace
from headgate.standalone.options import MachineOptions
from headgate.standalone.pods.leftovers import gateway_pid
from headgate.standalone.processes import accept_quit
from headgate.standalone.request_counters import RequestCounters

REPORT_S = 2.0  # seconds between two reports of the processes that the shutdown waits for
REFUSED_BY_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG, errno.EACCES})
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

SHORTEST_LIFETIME_S, LONGEST_LIFETIME_S = 10, 30 * 24 * 60 * 60

CertificateLifetime = Annotated[
    str,
    typer.Option(
        "--certificate-lifetime",
        metavar="DURATION",
        help="Lifetime of certificates, 10s to 720h; proxies get a new certificate after half of it.",
    ),
]
CaCert = Annotated[
    Path | None,
    typer.Option("--ca-cert", metavar="FILE", help="PEM file with the certificate and chain of your own CA."),
]
CaKey = Annotated[Path | None, typer.Option("--ca-key", metavar="FILE", help="PEM file with the key of --ca-cert.")]
MetricsAddress = Annotated[
    str,
    typer.Option(
        "--metrics-address",
        metavar="HOST:PORT",
        help="Address of /metrics for Prometheus; port 0 chooses a free port. By default /metrics is off.",
        show_default=False,
    ),
]
ProxyAddress = Annotated[
    str,
    typer.Option("--proxy-address", metavar="HOST:PORT", help="Address of the HTTP proxy; port 0 chooses a free port."),
]
NetworkChoice = Annotated[
    NetworkOption,
    typer.Option(
        "--network",
        help="host: pods share the machine's network. pod: each pod has a network of its own, for programs with fixed ports; needs"
        " root or user namespaces. auto: pod where this machine allows it.",
    ),
]
LocalhostPort = Annotated[
    int,
    typer.Option(
        "--localhost-port",
        metavar="NUMBER",
        min=0,
        max=65535,
        help="Port of http://SERVICE.NAMESPACE.localhost on this machine; 0 chooses 18080, or another one if that is in use.",
    ),
]
UpFormat = Literal["text", "json"]
Output = Annotated[
    UpFormat,
    typer.Option(
        "-o",
        "--output",
        help="text: readable text. json: a JSON object in each line, the first when headgate is ready, then one for each change.",
    ),
]


@with_mesh_options(*(field for field, declared in OPTIONS.items() if not declared.option.cluster), sidecars="all")
def up(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR|FILE...",
            help="Directories or files of manifests, kustomizations, or charts; changes to files are applied. - reads standard input.",
        ),
    ],
    *,
    state: Annotated[
        Path, typer.Option("--state", metavar="DIR", help="State directory: objects, logs and the kubeconfig.")
    ] = DEFAULT_STATE,
    ephemeral: Annotated[bool, typer.Option("--ephemeral", help="Keep objects in memory only.")] = False,
    api_address: Annotated[
        str, typer.Option("--api-address", metavar="HOST:PORT", help="Address of the API; port 0 chooses a free port.")
    ] = f"{LOOPBACK}:0",
    proxy_address: ProxyAddress = f"{LOOPBACK}:0",
    concurrency: Annotated[
        int, typer.Option("--concurrency", metavar="NUMBER", min=1, help="Worker threads of the gateway's Envoy.")
    ] = 1,
    given: GivenOptions,
    certificate_lifetime: CertificateLifetime = "24h",
    ca_cert: CaCert = None,
    ca_key: CaKey = None,
    metrics_address: MetricsAddress = "",
    localhost_port: LocalhostPort = 0,
    network: NetworkChoice = "host",
    table: Annotated[bool, typer.Option("-w", "--watch", help="Show a live table of every split.")] = False,
    output: Output = "text",
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Write a detailed log to stderr.")] = False,
) -> None:
    """Run manifests on this machine: API, workloads and Envoy.

    By default, other machines reach nothing of it: it listens on loopback and, with --network pod, in the network of the pods.
    Ctrl-C stops all processes. The objects stay for the next start, except with --ephemeral.
    """
    check_paths(paths)
    messages = Messages(note)
    messages.addFilter(EndedCalls())
    if not verbose:
        messages.addFilter(OncePerReason())
    messages.setFormatter(PrintableFormatter("%(message)s"))
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[messages])
    check_metrics_by(given.mesh.metrics_by, metrics_address)
    fault = enter_user_namespace(network, gateway_pid(state.absolute(), GATEWAY))
    options = MachineOptions(
        state=state.absolute(),
        mesh=structs.replace(given.mesh, certificate_seconds=parse_lifetime(certificate_lifetime)),
        authority=parse_authority(ca_cert, ca_key),
        ephemeral=ephemeral,
        api_address=api_address,
        proxy_address=proxy_address,
        concurrency=concurrency,
        metrics_address=metrics_address,
        localhost_port=localhost_port,
        network=network,
        network_fault=fault,
    )
    reporter = _reporter(output, messages, table=table)
    _run(_up(paths, options, reporter, table=messages if table else None))


def parse_authority(certificate: Path | None, key: Path | None) -> Files | None:
    """Return the files of the user's CA, or None. Raises BadParameter when only one of them is set."""
    if (certificate is None) != (key is None):
        raise usage_error("--ca-cert and --ca-key belong together; set both or none", option="--ca-cert")
    return Files(certificate, key) if certificate and key else None


def parse_lifetime(text: str) -> int:
    """Return a certificate lifetime in seconds. Raises BadParameter.

    A lifetime below 10 s leaves no time for the rotation. Above 30 days, a stolen key stays usable for too long.
    """
    seconds = duration(text, "--certificate-lifetime")
    if not SHORTEST_LIFETIME_S <= seconds <= LONGEST_LIFETIME_S:
        raise usage_error(
            f"{text} is not between {SHORTEST_LIFETIME_S} s and {LONGEST_LIFETIME_S // 3600} h",
            option="--certificate-lifetime",
        )
    return int(seconds)


def check_metrics_by(by: By, address: str) -> None:
    """Check that --metrics-by has an effect. Raises BadParameter when /metrics is off."""
    if by == "pod" and not address:
        raise usage_error(
            "/metrics is off; also set --metrics-address, for example to 127.0.0.1:9900",
            option="--metrics-by",
        )


def _reporter(output: UpFormat, messages: Messages, *, table: bool) -> Reporter:
    """Return the reporter of an output format. Raises BadParameter for JSON with a live table."""
    if output == "text":
        return TextReporter(messages)
    if table:
        raise usage_error("--watch and -o json exclude each other; set only one", option="--watch")
    return JsonReporter()


def _run(work: Any) -> None:
    """Run a control plane. Raises HeadgateError for an error that the user can act on, so that it prints no traceback."""
    try:
        event_loop.run(work)
    except (OSError, Unavailable, BaseExceptionGroup) as error:
        # Not `except*`: before Python 3.11.4 it wraps the raised error in a group again.
        messages = [_user_error(single) for single in single_errors(error)]
        if messages[0] is None or not all(messages):
            raise
        raise messages[0] from None


def _user_error(error: BaseException) -> HeadgateError | None:
    """Return an error that the user can act on; None if the error is a bug."""
    if isinstance(error, OSError) and error.errno in REFUSED_BY_DISK:
        where = error.filename or "a file in its state directory"
        return HeadgateError(
            f"headgate can't write {where}: {error.strerror}. It has stopped all its processes and kept the stored objects. "
            "Free space on the disk or repair it, then start headgate again"
        )
    if isinstance(error, Unavailable):  # raised by the store; the API has not started yet
        return HeadgateError(str(error))
    return error if isinstance(error, HeadgateError) else None


async def _up(paths: Sequence[Path], options: MachineOptions, reporter: Reporter, *, table: Messages | None) -> None:
    """Run until the first signal, which shuts headgate down; a second one kills the workloads."""
    main, force, signals = asyncio.current_task(), asyncio.Event(), 0

    def take() -> None:
        nonlocal signals
        signals += 1
        if signals == 1 and main:
            main.cancel()
        elif signals > 1:
            force.set()

    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, take)
    accept_quit()
    reporter.starting()
    shutdown: asyncio.Task[None] | None = None
    try:
        async with running(options) as current:
            try:
                await _serve(paths, current, reporter, table=table)
            except asyncio.CancelledError:
                if not signals or not main:
                    raise
                main.uncancel()
            finally:
                main = None  # so that no signal interrupts the shutdown
            reporter.stopping()
            shutdown = asyncio.create_task(_report_shutdown(current, force, reporter), name="shutdown")
    except asyncio.CancelledError:  # the signal arrived during the start
        if not signals:
            raise
    finally:
        if shutdown:
            shutdown.cancel()


async def _report_shutdown(current: Running, force: asyncio.Event, reporter: Reporter) -> None:
    """Every REPORT_S, report the processes that the shutdown waits for; kill them when `force` is set."""
    while not force.is_set():
        try:
            async with asyncio.timeout(REPORT_S):
                await force.wait()
        except TimeoutError:
            reporter.waiting(current.runtime.running())
    current.runtime.kill()


async def _serve(paths: Sequence[Path], current: Running, reporter: Reporter, *, table: Messages | None) -> None:
    up_tasks = UpTasks(paths, current, reporter)
    kubeconfig = Path(current.info.kubeconfig)
    async with (
        serving_state(kubeconfig.parent, Kubeconfig([kubeconfig])) as dashboard_url,
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(up_tasks.report_pods(), name="pods")
        tasks.create_task(up_tasks.report_envoy(), name="envoy")
        await up_tasks.apply_at_start()
        tasks.create_task(up_tasks.watch_files(), name="files")
        tasks.create_task(up_tasks.retry_rejected(), name="rejected objects")
        await up_tasks.report_ready(dashboard_url)
        tasks.create_task(up_tasks.report_changes(), name="changes")
        if table:
            tasks.create_task(watch_table(current.live_state, RequestCounters(current.admins), table), name="table")
