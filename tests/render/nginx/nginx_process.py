"""A real nginx with rendered files, in a directory of its own; tests that need it skip without the program."""

import asyncio
import contextlib
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headgate.render.output import Rendered

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
needs_nginx = pytest.mark.skipif(NGINX is None, reason="needs nginx with its stream module")
DEADLINE_S = 30.0


def write(rendered: Rendered, directory: Path) -> None:
    for name, text in rendered.files.items():
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def check(directory: Path) -> str:
    """Return the messages of `nginx -t`; empty if the configuration is valid."""
    done = subprocess.run([*command(directory), "-t", "-q"], capture_output=True, text=True, check=False)
    return done.stderr + done.stdout


def command(directory: Path) -> list[str]:
    assert NGINX
    return [NGINX, "-p", str(directory), "-e", "stderr", "-c", "nginx.conf"]


@contextlib.asynccontextmanager
async def serving(rendered: Rendered, directory: Path) -> AsyncIterator[int]:
    """Run nginx with rendered files; yield the process ID of its master process, which listens on all ports."""
    write(rendered, directory)
    with (directory / "log").open("w") as log:
        # The program forks the daemon when all ports are open, and then ends.
        started = await asyncio.create_subprocess_exec(*command(directory), stdout=log, stderr=log)
        assert await started.wait() == 0, (directory / "log").read_text()
    pid = int((directory / "nginx.pid").read_text())
    try:
        yield pid
    finally:
        stopping = await asyncio.create_subprocess_exec(*command(directory), "-s", "stop")
        await stopping.wait()
        async with asyncio.timeout(DEADLINE_S):
            while Path(f"/proc/{pid}").exists():  # the daemon is no child of this process
                await asyncio.sleep(0.01)
