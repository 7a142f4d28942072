"""`headgate up`: run a directory of manifests on this machine, and say what is in force."""

import asyncio
import errno
import logging
import re
import signal
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from headgate.admission.injection import Mode
from headgate.cli.arguments import DEFAULT_STATE
from headgate.cli.live import watch_table
from headgate.cli.messages import Messages
from headgate.cli.output import Format, OncePerReason, note, usage_error
from headgate.cli.reporter import JsonReporter, Reporter, TextReporter
from headgate.cli.up_tasks import UpTasks
from headgate.durations import milliseconds
from headgate.envoy.collector_export import Collector
from headgate.errors import HeadgateError, TelemetryError, Unavailable
from headgate.identity.pem import Files
from headgate.model.identities import parse_id, spiffe_id
from headgate.settings import Settings
from headgate.standalone.app import Running, running
from headgate.standalone.listeners import LOOPBACK
from headgate.standalone.options import By, Options
from headgate.standalone.request_counters import RequestCounters
from headgate.telemetry.counters.flows import Source
from headgate.telemetry.prometheus_source import parse_source

REPORT_S = 2.0  # seconds of an end until what it waits for is named, and again
REFUSED_BY_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG, errno.EACCES})
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

SHORTEST_LIFETIME_S, LONGEST_LIFETIME_S = 10, 30 * 24 * 60 * 60
LAST_PORT = 65535
# A name or an address, and no URL: that has a scheme, and may want TLS.
_HOST = re.compile(r"[0-9A-Za-z._-]+|[0-9A-Fa-f:.]+")

Sidecars = Annotated[Mode, typer.Option(help="Which pods get an Envoy of their own; labelled: those that ask for it.")]
Mtls = Annotated[
    Literal["off", "permissive", "strict"],
    typer.Option(help="What pods with a sidecar take that no TLSConfig selects; permissive: also plaintext."),
]
Access = Annotated[
    Literal["selected", "deny"],
    typer.Option(help="Who may call pods that no TrafficTarget selects: selected: every caller, deny: none."),
]
TrustDomain = Annotated[str, typer.Option(help="Begins every identity: spiffe://TRUST_DOMAIN/...")]
CertificateLifetime = Annotated[
    str, typer.Option(help="How long a workload's certificate lives; it is renewed at half of that: 10s to 720h.")
]
CaCert = Annotated[
    Path | None, typer.Option(help="PEM file: an authority's certificate and its chain, instead of headgate's own.")
]
CaKey = Annotated[Path | None, typer.Option(help="PEM file: the key of --ca-cert.")]
MetricsAddress = Annotated[
    str, typer.Option(help="HOST:PORT of /metrics for Prometheus; port 0 takes a free one. Without it there is none.")
]
MetricsBy = Annotated[By, typer.Option(help="What /metrics tells traffic apart by; pod: many more series.")]
MetricsSource = Annotated[
    str,
    typer.Option(help="prometheus=URL: the metrics API answers from this Prometheus, not from headgate's own counts."),
]
OtlpCollector = Annotated[
    str,
    typer.Option(help="HOST:PORT of an OpenTelemetry collector (gRPC, plaintext) that every proxy reports to too."),
]


def up(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory of manifests; edits are applied.")],
    state: Annotated[Path, typer.Option(help="Where the API's objects, logs and sockets are kept.")] = DEFAULT_STATE,
    ephemeral: Annotated[bool, typer.Option("--ephemeral", help="Keep no objects after the end.")] = False,
    api_address: Annotated[str, typer.Option(help="HOST:PORT of the API; port 0 takes a free one.")] = f"{LOOPBACK}:0",
    proxy_address: Annotated[
        str, typer.Option(help="HOST:PORT of the HTTP proxy; port 0 takes a free one.")
    ] = f"{LOOPBACK}:0",
    concurrency: Annotated[int, typer.Option(min=1, help="Worker threads of the gateway's Envoy.")] = 1,
    sidecars: Sidecars = "all",
    mtls: Mtls = "permissive",
    access: Access = "selected",
    trust_domain: TrustDomain = "cluster.local",
    certificate_lifetime: CertificateLifetime = "24h",
    ca_cert: CaCert = None,
    ca_key: CaKey = None,
    metrics_address: MetricsAddress = "",
    metrics_by: MetricsBy = "workload",
    metrics_source: MetricsSource = "",
    otlp_collector: OtlpCollector = "",
    table: Annotated[bool, typer.Option("--watch", "-w", help="Show a live table of every split.")] = False,
    output: Annotated[
        Format, typer.Option("-o", "--output", help="json: one line when ready, one for each change.")
    ] = Format.TABLE,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log what happens to stderr.")] = False,
) -> None:
    """Run a directory of manifests on this machine: API, workloads and Envoy.

    Everything listens on loopback only. Ctrl-C ends all that was started; the objects stay for the next start, unless
    --ephemeral is given.
    """
    if not directory.is_dir():
        raise usage_error(f"{directory} is not a directory", option="DIR")
    messages = Messages(note)
    if not verbose:
        messages.addFilter(OncePerReason())
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[messages], format="%(message)s")
    options = Options(
        state=state.absolute(),
        sidecars=sidecars,
        settings=Settings(
            mtls=mtls,
            access=access,
            trust_domain=check_trust_domain(trust_domain),
            certificate_seconds=parse_lifetime(certificate_lifetime),
        ),
        authority=parse_authority(ca_cert, ca_key),
        ephemeral=ephemeral,
        api_address=api_address,
        proxy_address=proxy_address,
        concurrency=concurrency,
        metrics_address=metrics_address,
        metrics_by=check_metrics_by(metrics_by, metrics_address),
        metrics_source=parse_metrics_source(metrics_source),
        collector=parse_collector(otlp_collector),
    )
    reporter = _reporter(output, messages, table=table)
    _run(_up(directory, options, reporter, table=messages if table else None))


def parse_authority(certificate: Path | None, key: Path | None) -> Files | None:
    """Return the user's own authority, if there is one."""
    if (certificate is None) != (key is None):
        raise usage_error("--ca-cert and --ca-key belong together; give both, or none", option="--ca-cert")
    return Files(certificate, key) if certificate and key else None


def check_trust_domain(trust_domain: str) -> str:
    """Return a trust domain that identities can begin with."""
    if parse_id(spiffe_id(trust_domain, "default", "default")) is None:
        raise usage_error(
            f"{trust_domain!r} is not a trust domain; write it like a DNS name, in small letters",
            option="--trust-domain",
        )
    return trust_domain


def parse_lifetime(text: str) -> int:
    """Return seconds. Shorter ones could not be renewed in time, and longer ones are no protection against theft."""
    try:
        seconds = milliseconds(text) // 1000
    except ValueError as error:
        raise usage_error(str(error), option="--certificate-lifetime") from None
    if not SHORTEST_LIFETIME_S <= seconds <= LONGEST_LIFETIME_S:
        raise usage_error(
            f"{text} is not between {SHORTEST_LIFETIME_S} s and {LONGEST_LIFETIME_S // 3600} h",
            option="--certificate-lifetime",
        )
    return seconds


def check_metrics_by(by: By, address: str) -> By:
    """Return what /metrics tells traffic apart by; to say so without an address would have no effect."""
    if by == "pod" and not address:
        raise usage_error(
            "it is for /metrics, which has no address; give --metrics-address too, such as 127.0.0.1:9900",
            option="--metrics-by",
        )
    return by


def parse_metrics_source(text: str) -> Source | None:
    """Return where the metrics API answers from, when it is not headgate's own counts."""
    try:
        return parse_source(text) if text else None
    except TelemetryError as error:
        raise usage_error(str(error), option="--metrics-source") from error


def parse_collector(text: str) -> Collector | None:
    """Return the collector that proxies report to besides."""
    place, _, port = text.rpartition(":")
    host = place.strip("[]")
    if text and not (_HOST.fullmatch(host) and port.isdecimal() and 0 < int(port) <= LAST_PORT):
        raise usage_error(
            f"{text!r} is no place of a collector; write HOST:PORT without http://, such as 127.0.0.1:4317",
            option="--otlp-collector",
        )
    return Collector(host=host, port=int(port)) if text else None


def _reporter(output: Format, messages: Messages, *, table: bool) -> Reporter:
    """Return the writer of an output. Raises BadParameter for one that `up` lacks, or that a table would mix with."""
    if output is Format.YAML:
        raise usage_error("changes are printed as text or as lines of JSON; write -o json, or omit it", option="-o")
    if output is Format.TABLE:
        return TextReporter(messages)
    if table:
        raise usage_error("a live table and lines of JSON do not mix; give one of the two", option="--watch")
    return JsonReporter()


def _run(work: Any) -> None:
    """Run on uvloop; an error that a task raised on purpose needs no traceback."""
    import uvloop  # noqa: PLC0415  # only this command needs it

    try:
        uvloop.run(work)
    except (OSError, Unavailable, BaseExceptionGroup) as error:
        # Not `except*`: before Python 3.11.4, what is raised there is in a group again.
        meant = _user_error(error)
        if meant is None:
            raise
        raise meant from None


def _user_error(error: BaseException) -> HeadgateError | None:
    """Return the first error that the user can do something about; None when any part of the error is a bug."""
    if isinstance(error, BaseExceptionGroup):
        parts = [_user_error(part) for part in error.exceptions]
        return parts[0] if all(parts) else None
    if isinstance(error, OSError) and error.errno in REFUSED_BY_DISK:
        where = error.filename or "a file in its state directory"
        return HeadgateError(
            f"headgate can't write {where}: {error.strerror}. It has ended all that it started, and stored objects stay as "
            "they are: free space or mend the disk, and start it again"
        )
    if isinstance(error, Unavailable):  # the store: there is no API yet that could not be reached
        return HeadgateError(str(error))
    return error if isinstance(error, HeadgateError) else None


async def _up(directory: Path, options: Options, reporter: Reporter, *, table: Messages | None) -> None:
    """Run until the first signal, which ends headgate; a second one ends the workloads at once."""
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
    reporter.starting()
    ending: asyncio.Task[None] | None = None
    try:
        async with running(options) as current:
            try:
                await _serve(directory, current, reporter, table=table)
            except asyncio.CancelledError:
                if not signals or not main:
                    raise
                main.uncancel()
            finally:
                main = None  # no signal interrupts the end
            reporter.stopping()
            ending = asyncio.create_task(_report_shutdown(current, force, reporter), name="the end")
    except asyncio.CancelledError:  # of the start
        if not signals:
            raise
    finally:
        if ending:
            ending.cancel()


async def _report_shutdown(current: Running, force: asyncio.Event, reporter: Reporter) -> None:
    """Name what the end waits for every few seconds; end all processes at once when the user is in a hurry."""
    while not force.is_set():
        try:
            async with asyncio.timeout(REPORT_S):
                await force.wait()
        except TimeoutError:
            reporter.waiting(current.runtime.running())
    current.runtime.kill()


async def _serve(directory: Path, current: Running, reporter: Reporter, *, table: Messages | None) -> None:
    up_tasks = UpTasks(directory, current, reporter)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(up_tasks.report_pods(), name="pods")
        tasks.create_task(up_tasks.report_envoy(), name="envoy")
        await up_tasks.start()
        tasks.create_task(up_tasks.watch_files(), name="files")
        tasks.create_task(up_tasks.report_changes(), name="changes")
        if table:
            tasks.create_task(watch_table(current.live_state, RequestCounters(current.admins), table), name="table")
