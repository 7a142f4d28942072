"""Attachments to the process of a container, for `kubectl attach`: its output from now on, and its stdin.

The stdin of a container with `stdin: true` is a named pipe in its directory, so that it outlives headgate.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator
from pathlib import Path

from headgate.standalone.pods.exec import STDOUT

STDIN_PIPE = "stdin"


def stdin_pipe(directory: Path) -> Path:
    """Create the pipe for the stdin of a container, if it does not exist; return its path."""
    path = directory / STDIN_PIPE
    with contextlib.suppress(FileExistsError):
        os.mkfifo(path, 0o600)
    return path


class ProcessAttachment:
    """A client's connection to a container. `output` ends with the container; without `stdin`, input is not possible."""

    streams = (STDOUT,)

    def __init__(self, output: AsyncGenerator[bytes], stdin: Path | None) -> None:
        self._output = output
        # Raises OSError (ENXIO) if no process has the pipe as its stdin: the container has ended meanwhile.
        self._stdin = os.open(stdin, os.O_WRONLY | os.O_NONBLOCK) if stdin else None

    async def exited(self) -> int:
        """Return 0: what the container ends with is in its pod's status."""
        return 0

    async def read(self, _stream: int) -> bytes:
        """Return the next output; empty when the container has ended."""
        return await anext(self._output, b"")

    async def write(self, data: bytes) -> None:
        """Write to stdin, as fast as the process reads."""
        loop = asyncio.get_running_loop()
        while data and self._stdin is not None:
            try:
                data = data[os.write(self._stdin, data) :]
            except BlockingIOError:
                is_writable = asyncio.Event()
                loop.add_writer(self._stdin, is_writable.set)
                try:
                    await is_writable.wait()
                finally:
                    loop.remove_writer(self._stdin)
            except BrokenPipeError:  # the container has ended
                return

    async def close_stdin(self) -> None:
        """Leave stdin open for the next client."""

    def resize(self, columns: int, rows: int) -> None:
        """Ignore the size of the client's terminal: containers have none."""

    async def end(self) -> None:
        """Detach from the container, which continues."""
        await self._output.aclose()
        if self._stdin is not None:
            os.close(self._stdin)
