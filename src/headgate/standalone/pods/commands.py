"""Commands in containers, for probes and hooks: in the mounts and with the user of the container."""

import asyncio
from signal import SIGKILL
from subprocess import DEVNULL

from msgspec.structs import replace

from headgate.standalone.processes import Launch, StandardFiles, StartError, start


async def run_command(command: tuple[str, ...], launch: Launch) -> str:
    """Run a command in the container with this launch; return the fault, empty if it succeeds.

    Raises ValueError with a message for the user if it can't be started. A canceled command is killed.
    """
    if not command:
        raise ValueError("exec: command is empty")
    try:
        process = start(replace(launch, command=command), StandardFiles(DEVNULL, DEVNULL, DEVNULL))
        process.ends_group = False  # what a hook starts in the background continues
        try:
            await process.executed()
            code = await process.exited()
        except asyncio.CancelledError:  # the probe timed out, or the container ends
            process.signal(SIGKILL)
            await process.exited()
            raise
    except StartError as error:
        raise ValueError(str(error)) from error
    return "" if code == 0 else f"{command[0]} ended with exit code {code}"
