"""The state storage of one machine (`objects.ports.StateStorage`): one file for each named state."""

import asyncio
from pathlib import Path

from headgate.atomic_file import write_private
from headgate.errors import Unavailable


class StateFiles:
    """Stores each state in a file of mode 0600 in the state directory, under the name of the state."""

    interval_s = 2.0

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def load(self, name: str) -> bytes | None:
        """Return the content of a file; None if it does not exist. Raises Unavailable."""
        try:
            return await asyncio.to_thread((self._directory / name).read_bytes)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Unavailable(str(error)) from error

    async def save(self, name: str, state: bytes) -> None:
        """Replace a file atomically. Raises Unavailable; then the old file remains."""
        try:
            await asyncio.to_thread(write_private, self._directory / name, state)
        except OSError as error:
            raise Unavailable(str(error)) from error
