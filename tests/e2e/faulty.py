"""A pod that does what the path says: `GET /503/900` is answered with 503 after 900 milliseconds."""

import asyncio
import re

from path_server import serve

PATH = re.compile(rb"[A-Z]+ /(\d+)/(\d+) ")


async def answer(found: re.Match[bytes]) -> int:
    """Return the wanted status after the wanted time."""
    status, milliseconds = map(int, found.groups())
    await asyncio.sleep(milliseconds / 1000)
    return status


asyncio.run(serve(PATH, answer))
