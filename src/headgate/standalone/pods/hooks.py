"""Lifecycle hooks of containers: postStart and preStop, by exec, httpGet or sleep, as in Kubernetes."""

import asyncio
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from headgate.atomic_file import write_private
from headgate.http_failures import describe
from headgate.resources.core.pod_spec import LifecycleHandler
from headgate.standalone.pods.probes import ProbeTarget, http_fault
from headgate.standalone.processes import Launch, Process, StartError, spawn
from headgate.standalone.supervisor import ProgramRecord


async def run_hook(handler: LifecycleHandler, target: ProbeTarget, record: Path) -> str:
    """Run a hook to its end, without a time limit; return the fault, empty on success.

    `record` is the file with the record of a command while it runs, so that it can be ended when headgate is killed.
    """
    try:
        if handler.exec:
            return await _run(msgspec.structs.replace(target.launch, command=handler.exec.command), record)
        if handler.http_get:
            return await http_fault(handler.http_get, target)
    except OSError as error:
        return describe(error)
    except (StartError, ValueError) as error:
        return str(error)
    if handler.sleep:
        await asyncio.sleep(handler.sleep.seconds)
    return ""


async def _run(launch: Launch, record: Path) -> str:
    """Run a command; return the fault, empty if it succeeds. A canceled command is killed. Raises StartError and OSError."""
    if not launch.command:
        return "exec: command is empty"
    process = spawn(launch, Path(os.devnull))
    try:
        with _recorded(process, record):
            await process.executed()
            code = await process.exited()
    except (asyncio.CancelledError, OSError):
        process.forget_launcher()
        await process.end(0)
        raise
    return "" if code == 0 else f"{launch.command[0]} ended with exit code {code}"


@contextlib.contextmanager
def _recorded(process: Process, record: Path) -> Iterator[None]:
    """Keep the record of a process in a file during the `with` block."""
    record.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(record, msgspec.json.encode(ProgramRecord(identity=process.identity)), durable=False)
    try:
        yield
    finally:
        record.unlink(missing_ok=True)
