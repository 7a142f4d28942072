"""A real nginx with rendered files, in a directory of its own; tests that need it skip without the program."""

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headgate.proxy_programs.files import write_files
from headgate.proxy_programs.nginx import stream_module
from headgate.proxy_programs.programs import find_program
from headgate.render.output import Rendered

NGINX = find_program("nginx")
STREAM_MODULE = stream_module(NGINX)
needs_nginx = pytest.mark.skipif(
    not NGINX or (STREAM_MODULE != "" and not Path(STREAM_MODULE).exists()),
    reason="needs nginx with its stream module (Debian: nginx, libnginx-mod-stream)",
)
DEADLINE_S = 60.0


def check(directory: Path) -> str:
    """Return the messages of `nginx -t`; empty if the configuration is valid."""
    done = subprocess.run([*command(directory), "-t", "-q"], capture_output=True, text=True, check=False)
    return done.stderr + done.stdout


def command(directory: Path) -> list[str]:
    return [NGINX, "-p", str(directory), "-e", "stderr", "-c", "nginx.conf"]


@contextlib.asynccontextmanager
async def serving(rendered: Rendered, directory: Path) -> AsyncIterator[int]:
    """Run nginx with rendered files; yield the process ID of its master process, which listens on all ports."""
    write_files(rendered, directory)
    async with running(directory) as pid:
        yield pid


@contextlib.asynccontextmanager
async def running(directory: Path) -> AsyncIterator[int]:
    """Run nginx with the files of a directory; yield the process ID of its master process."""
    pid_file = directory / "nginx.pid"
    pid_file.unlink(missing_ok=True)
    with (directory / "log").open("w") as log:
        process = await asyncio.create_subprocess_exec(*command(directory), "-g", "daemon off;", stdout=log, stderr=log)
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not pid_file.exists() or not pid_file.read_text():  # nginx writes it when all ports are open
                assert process.returncode is None, (directory / "log").read_text()
                await asyncio.sleep(0.002)
        yield process.pid
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
