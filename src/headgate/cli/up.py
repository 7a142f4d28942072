"""`headgate up`: run a directory of manifests on this machine, and say what is in force."""

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from headgate.cli.arguments import DEFAULT_STATE
from headgate.cli.live import watch_table
from headgate.cli.mesh_options import (
    Access,
    CaCert,
    CaKey,
    CertificateLifetime,
    Mtls,
    Sidecars,
    TrustDomain,
    authority,
    checked,
    lifetime,
)
from headgate.cli.metrics_options import (
    MetricsAddress,
    MetricsBy,
    MetricsSource,
    OtlpCollector,
    chosen,
    collector,
    source,
)
from headgate.cli.output import Format
from headgate.cli.voice import JsonVoice, TextVoice, Voice
from headgate.compiler.report import Compiled
from headgate.control.app import Running, running
from headgate.control.instance import LOOPBACK
from headgate.control.machine import Machine
from headgate.control.observed import Counters
from headgate.control.options import Options
from headgate.errors import HeadgateError
from headgate.latest import Latest, until
from headgate.settings import Settings
from headgate.store.applied import apply
from headgate.store.files import Manifests, Problem, read, watch

READY_SECONDS = 30.0
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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
        raise typer.BadParameter(f"{directory} is not a directory", param_hint="'DIR'")
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, stream=sys.stderr, format="%(message)s")
    options = Options(
        state=state.absolute(),
        sidecars=sidecars,
        settings=Settings(
            mtls=mtls,
            access=access,
            trust_domain=checked(trust_domain),
            certificate_seconds=lifetime(certificate_lifetime),
        ),
        authority=authority(ca_cert, ca_key),
        ephemeral=ephemeral,
        api_address=api_address,
        proxy_address=proxy_address,
        concurrency=concurrency,
        metrics_address=metrics_address,
        metrics_by=chosen(metrics_by, metrics_address),
        metrics_source=source(metrics_source),
        collector=collector(otlp_collector),
    )
    voice = JsonVoice() if output is Format.JSON else TextVoice(quiet=table)
    _run(_up(directory, options, voice, table=table))


def _run(work: Any) -> None:
    """Run on uvloop; an error that a task raised on purpose needs no traceback."""
    import uvloop  # noqa: PLC0415  # only this command needs it

    try:
        uvloop.run(work)
    except BaseExceptionGroup as errors:
        # Not `except*`: before Python 3.11.4, what is raised there is in a group again.
        meant, others = errors.split(HeadgateError)
        if meant is None or others:
            raise
        raise _first(meant) from None


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


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


async def _changed(*seen: tuple[Latest[Any], object]) -> None:
    """Wait until one of the cells has another value than the one beside it."""
    await until(lambda: any(cell.get() is not value for cell, value in seen), *(cell for cell, _ in seen))


async def _follow_changes(machine: Machine, voice: Voice) -> None:
    """Say what is in force, and what there is to tell: about the objects, and about proxies without a certificate."""
    builds, faults = machine.loop.compiled, machine.loop.credentials.faults
    known = frozenset(machine.findings())
    told: Mapping[str, str] = faults.get()
    compiled: Compiled | None = None
    while True:
        await _changed((builds, compiled), (faults, told))
        before, compiled, told = compiled, builds.get(), faults.get()
        if compiled is None:
            continue
        await machine.in_force(compiled.revision)
        now = frozenset(machine.findings())
        if compiled is not before or now != known:
            voice.change(compiled.revision, new=sorted(now - known, key=str), gone=sorted(known - now, key=str))
        known = now
