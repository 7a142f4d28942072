"""A real HAProxy with rendered files, in a directory of its own; tests that need it skip without the program."""

import asyncio
import contextlib
import socket
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headgate.proxy_programs.files import write_files
from headgate.proxy_programs.haproxy import MAIN, PID_FILE
from headgate.proxy_programs.programs import find_program
from headgate.render.output import Rendered

HAPROXY = find_program("haproxy")
needs_haproxy = pytest.mark.skipif(not HAPROXY, reason="needs haproxy 2.6 or newer (Debian: haproxy)")
DEADLINE_S = 60.0
UNRESOLVED = "could not resolve address"  # a warning about names that only exist in golden cases


def check(directory: Path) -> str:
    """Return the warnings and errors of `haproxy -c`; empty if the configuration is valid."""
    done = subprocess.run([*command(directory), "-c"], capture_output=True, text=True, check=False)
    found = (done.stderr + done.stdout).splitlines()
    return "\n".join(line for line in found if line.startswith(("[WARNING]", "[ALERT]")) and UNRESOLVED not in line)


def command(directory: Path) -> list[str]:
    return [HAPROXY, "-f", str(directory / MAIN)]


@contextlib.asynccontextmanager
async def serving(rendered: Rendered, directory: Path) -> AsyncIterator[int]:
    """Run HAProxy with rendered files; yield the process ID of its master process when the worker listens."""
    write_files(rendered, directory)
    async with running(directory) as pid:
        yield pid


@contextlib.asynccontextmanager
async def running(directory: Path) -> AsyncIterator[int]:
    """Run HAProxy with the files of a directory; yield the process ID of its master process."""
    notify = directory / "notify"
    notify.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready, (directory / "log").open("w") as log:
        ready.bind(str(notify))
        ready.setblocking(False)
        process = await asyncio.create_subprocess_exec(
            *command(directory),
            "-Ws",  # as -W, and HAProxy sends a message to the socket when the worker listens
            "-p",
            str(directory / PID_FILE),
            env={"NOTIFY_SOCKET": str(notify)},
            stdout=log,
            stderr=log,
        )
        try:
            await _first(process, ready, directory / "log")
            ready.close()  # HAProxy would wait when the messages of later reloads fill the socket
            yield process.pid
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


async def _first(process: asyncio.subprocess.Process, ready: socket.socket, log: Path) -> None:
    """Wait for the message of HAProxy; fail with its log if it ends before."""
    ended = asyncio.ensure_future(process.wait())
    notified = asyncio.ensure_future(asyncio.get_running_loop().sock_recv(ready, 1024))
    await asyncio.wait((ended, notified), timeout=DEADLINE_S, return_when=asyncio.FIRST_COMPLETED)
    ended.cancel()
    assert notified.done(), log.read_text()
