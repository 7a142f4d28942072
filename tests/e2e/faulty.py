"""The program of a pod that answers as the path demands: `GET /503/900` gets status 503 after 900 milliseconds."""

import asyncio
import re

from path_server import serve

PATH = re.compile(rb"[A-Z]+ /(\d+)/(\d+) ")


async def answer(found: re.Match[bytes]) -> int:
    """Wait for the milliseconds in the path; return the status in the path."""
    status, milliseconds = map(int, found.groups())
    await asyncio.sleep(milliseconds / 1000)
    return status


asyncio.run(serve(PATH, answer))
