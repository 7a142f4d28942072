"""The messages of a command that runs in the test's process, in the order in which it prints them."""

import asyncio
import io


class Printed(io.StringIO):
    """A stream in the place of stderr."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: asyncio.Queue[str] = asyncio.Queue()

    def write(self, text: str) -> int:
        self.messages.put_nowait(text)
        return len(text)
