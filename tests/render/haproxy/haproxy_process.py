"""A real HAProxy with rendered files, in a directory of its own; tests that need it skip without the program."""

import asyncio
import contextlib
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headgate.model.identities import PrivateText
from headgate.render.output import Rendered

HAPROXY = shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
needs_haproxy = pytest.mark.skipif(HAPROXY is None, reason="needs haproxy 2.6 or newer")
DEADLINE_S = 30.0
UNRESOLVED = "could not resolve address"  # a warning about names that only exist in golden cases


def write(rendered: Rendered, directory: Path) -> None:
    for name, text in rendered.files.items():
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.reveal() if isinstance(text, PrivateText) else text)


def check(directory: Path) -> str:
    """Return the warnings and errors of `haproxy -c`; empty if the configuration is valid."""
    done = subprocess.run([*command(directory), "-c"], capture_output=True, text=True, check=False)
    found = (done.stderr + done.stdout).splitlines()
    return "\n".join(line for line in found if line.startswith(("[WARNING]", "[ALERT]")) and UNRESOLVED not in line)


def command(directory: Path) -> list[str]:
    assert HAPROXY
    return [HAPROXY, "-f", str(directory / "haproxy.cfg")]


class HaproxyProcess:
    """HAProxy as a master process with a worker, which listens on all ports when `start` returns."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        assert self._process
        return self._process.pid

    async def start(self, rendered: Rendered) -> None:
        write(rendered, self._directory)
        path = self._directory / "notify"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready, (self._directory / "log").open("w") as log:
            ready.bind(str(path))
            ready.setblocking(False)
            self._process = await asyncio.create_subprocess_exec(
                *command(self._directory), "-Ws", env={"NOTIFY_SOCKET": str(path)}, stdout=log, stderr=log
            )
            ended = asyncio.ensure_future(self._process.wait())
            notified = asyncio.ensure_future(asyncio.get_running_loop().sock_recv(ready, 1024))
            await asyncio.wait((ended, notified), timeout=DEADLINE_S, return_when=asyncio.FIRST_COMPLETED)
            assert notified.done(), (self._directory / "log").read_text()
            ended.cancel()
        path.unlink()

    async def stop(self) -> None:
        if self._process and self._process.returncode is None:
            self._process.terminate()
            await self._process.wait()


@contextlib.asynccontextmanager
async def serving(rendered: Rendered, directory: Path) -> AsyncIterator[HaproxyProcess]:
    """Run HAProxy with rendered files."""
    found = HaproxyProcess(directory)
    await found.start(rendered)
    try:
        yield found
    finally:
        await found.stop()
