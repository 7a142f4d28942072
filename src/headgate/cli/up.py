"""`headgate up`: run a directory of manifests on this machine, and say what is in force."""

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from headgate.cli.arguments import DEFAULT_STATE
from headgate.cli.live import watch_table
from headgate.cli.output import Format
from headgate.cli.voice import JsonVoice, TextVoice, Voice
from headgate.control.app import Options, Running, running
from headgate.control.instance import LOOPBACK
from headgate.control.machine import Machine
from headgate.control.observed import Counters
from headgate.envoy.exporting import Collector
from headgate.errors import HeadgateError, TelemetryError
from headgate.identity.pem import Files
from headgate.local.injection import Mode
from headgate.model.identities import parse_id, spiffe_id
from headgate.settings import Settings
from headgate.store.applied import apply
from headgate.store.files import Manifests, Problem, read, watch
from headgate.telemetry.flows import Source
from headgate.telemetry.prometheus import parse_source

READY_SECONDS = 30.0
LAST_PORT = 65535
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

TrustDomain = Annotated[str, typer.Option(help="Begins every identity: spiffe://TRUST_DOMAIN/...")]
CaCert = Annotated[
    Path | None, typer.Option(help="PEM file: an authority's certificate and its chain, instead of headgate's own.")
]
MetricsAddress = Annotated[
    str,
    typer.Option(help="HOST:PORT of /metrics for Prometheus; port 0 takes a free one. Without it there is none."),
]
MetricsBy = Annotated[
    Literal["workload", "pod"], typer.Option(help="What /metrics tells traffic apart by; pod: many more series.")
]
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
    sidecars: Annotated[
        Mode, typer.Option(help="Which pods get an Envoy of their own; labelled: those that ask for it.")
    ] = "all",
    mtls: Annotated[
        Literal["off", "permissive", "strict"],
        typer.Option(help="What pods with a sidecar take that no TLSConfig selects; permissive: also plaintext."),
    ] = "permissive",
    access: Annotated[
        Literal["selected", "deny"],
        typer.Option(help="Who may call pods that no TrafficTarget selects: selected: everybody, deny: nobody."),
    ] = "selected",
    trust_domain: TrustDomain = "cluster.local",
    ca_cert: CaCert = None,
    ca_key: Annotated[Path | None, typer.Option(help="PEM file: the key of --ca-cert.")] = None,
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
        raise typer.BadParameter(f"{directory} is not a directory", param_hint="'DIR'")
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, stream=sys.stderr, format="%(message)s")
    if (ca_cert is None) != (ca_key is None):
        raise typer.BadParameter("--ca-cert and --ca-key belong together; give both, or none", param_hint="'--ca-cert'")
    options = Options(
        state=state.absolute(),
        sidecars=sidecars,
        settings=Settings(mtls=mtls, access=access, trust_domain=_checked(trust_domain)),
        authority=Files(ca_cert, ca_key) if ca_cert and ca_key else None,
        ephemeral=ephemeral,
        api_address=api_address,
        proxy_address=proxy_address,
        concurrency=concurrency,
        metrics_address=metrics_address,
        metrics_by=metrics_by,
        metrics_source=_source(metrics_source),
        collector=_collector(otlp_collector),
    )
    voice = JsonVoice() if output is Format.JSON else TextVoice(quiet=table)
    _run(_up(directory, options, voice, table=table))


def _checked(trust_domain: str) -> str:
    if parse_id(spiffe_id(trust_domain, "default", "default")) is None:
        raise typer.BadParameter(
            f"{trust_domain!r} is not a trust domain; write it like a DNS name, in small letters",
            param_hint="'--trust-domain'",
        )
    return trust_domain


def _source(text: str) -> Source | None:
    try:
        return parse_source(text) if text else None
    except TelemetryError as error:
        raise typer.BadParameter(str(error), param_hint="'--metrics-source'") from error


def _collector(text: str) -> Collector | None:
    host, _, port = text.rpartition(":")
    if text and not (host and port.isdecimal() and 0 < int(port) <= LAST_PORT):
        raise typer.BadParameter(
            f"{text!r} is no place of a collector; write HOST:PORT, such as 127.0.0.1:4317",
            param_hint="'--otlp-collector'",
        )
    return Collector(host=host.strip("[]"), port=int(port)) if text else None


def _run(work: Any) -> None:
    """Run on uvloop; an error that a task raised on purpose needs no traceback."""
    import uvloop  # noqa: PLC0415  # only this command needs it

    try:
        uvloop.run(work)
    except* HeadgateError as errors:
        raise _first(errors) from None


def _first(error: BaseException) -> HeadgateError:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error if isinstance(error, HeadgateError) else HeadgateError(str(error))


async def _up(directory: Path, options: Options, voice: Voice, *, table: bool) -> None:
    stop = asyncio.Event()
    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    voice.starting()
    async with running(options) as current:
        await _until_stopped(stop, _serve(directory, current, voice, table=table))
        voice.stopping()


async def _until_stopped(stop: asyncio.Event, work: Any) -> None:
    """Run `work` until it ends or a signal says stop. Raises what it raised."""
    tasks = {asyncio.create_task(work, name="up"), asyncio.create_task(stop.wait(), name="signals")}
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _serve(directory: Path, current: Running, voice: Voice, *, table: bool) -> None:
    machine = current.machine
    reading = read([directory])
    applied = await apply(machine.store, reading)
    problems = (*reading.problems, *applied.problems)
    if problems:
        voice.problems(problems)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(READY_SECONDS):
            await _available(machine)
    await machine.in_force(machine.store.revision)
    voice.ready(current)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_follow_files(directory, machine, voice, reading=reading, told=problems), name="files")
        tasks.create_task(_follow_changes(machine, voice), name="changes")
        tasks.create_task(_follow_envoy(current, voice), name="envoy")
        if table:
            tasks.create_task(watch_table(machine, Counters(current.admins)), name="table")


async def _available(machine: Machine) -> None:
    """Wait until every Deployment has the replicas that it wants, and the Services know them."""
    async for _ in machine.feed.read.changes():
        deployments = (await machine.store.list("apps", "Deployment")).items
        if all(_is_available(item) for item in deployments):
            return


def _is_available(deployment: Any) -> bool:
    status = deployment.get("status") or {}
    observed = status.get("observedGeneration", 0) >= deployment["metadata"]["generation"]
    return bool(observed and status.get("availableReplicas", 0) >= deployment["spec"].get("replicas", 1))


async def _follow_files(
    directory: Path, machine: Machine, voice: Voice, *, reading: Manifests, told: Sequence[Problem]
) -> None:
    async for current in watch(directory):
        if current == reading:
            continue
        reading = current
        applied = await apply(machine.store, current)
        voice.applied(applied)
        problems = (*current.problems, *applied.problems)
        if problems or told:
            voice.problems(problems)
        told = problems


async def _follow_envoy(current: Running, voice: Voice) -> None:
    restarts = current.envoy.state.get().restarts
    async for state in current.envoy.state.changes():
        if state.restarts > restarts:
            restarts = state.restarts
            voice.trouble(f"Envoy ended and was started again: {state.failure}")


async def _follow_changes(machine: Machine, voice: Voice) -> None:
    known = frozenset(machine.findings())
    async for compiled in machine.loop.compiled.changes():
        if compiled is None:
            continue
        await machine.in_force(compiled.revision)
        now = frozenset(machine.findings())
        voice.change(compiled.revision, new=sorted(now - known, key=str), gone=sorted(known - now, key=str))
        known = now
