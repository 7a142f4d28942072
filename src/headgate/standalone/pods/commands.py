"""Commands in containers, for probes and hooks: in the mounts and with the user of the container."""

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import DEVNULL
from pathlib import Path

from msgspec.structs import replace

from headgate.standalone.isolation import launcher_command, read_failure
from headgate.standalone.processes import Launch, launch_fault, start_fault


async def run_command(command: tuple[str, ...], launch: Launch) -> str:
    """Run a command in the container with this launch; return the fault, empty if it succeeds.

    Raises ValueError with a message for the user if it can't be started. A canceled command is killed.
    """
    if not command:
        raise ValueError("exec: command is empty")
    launched = replace(launch, command=command)
    if launch.isolation is None:
        code = await _run(launched)
    else:
        reading, writing = os.pipe()
        try:
            isolated = launcher_command(launch.isolation, command, directory=launch.cwd, pipe=writing)
            code = await _run(replace(launched, command=isolated, cwd="", pass_fds=(writing,)))
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        if failure := read_failure(reading):
            raise ValueError(launch_fault(launched, failure))
    return "" if code == 0 else f"{command[0]} ended with exit code {code}"


async def _run(launch: Launch) -> int:
    try:
        process = await asyncio.create_subprocess_exec(
            *launch.command,
            env=launch.env,
            cwd=Path(launch.cwd) if launch.cwd else None,
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=DEVNULL,
            pass_fds=launch.pass_fds,
            start_new_session=True,
        )
    except OSError as error:
        raise ValueError(start_fault(launch, error)) from error
    try:
        return await process.wait()
    except asyncio.CancelledError:  # the probe timed out, or the container ends
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        raise
