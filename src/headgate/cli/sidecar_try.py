"""`headgate sidecar try`: send a batch of requests from a sidecar's container, for `headgate try` on a cluster.

The standard input is a `Batch`, a line of JSON; the standard output has `ProbeProgress`, also in lines.
"""

import asyncio
import sys
from pathlib import Path

import msgspec

from headgate.cli.probe import Batch, ProbeProgress, RequestBatch
from headgate.errors import HeadgateError

PROGRESS_S = 0.2
LONGEST_BATCH = 1 << 26  # bytes
_HINT = "the control plane is of an older headgate: upgrade it with `headgate install`"


async def send_batch(socket: Path) -> None:
    """Send the batch that the standard input names; end when it is closed, because the user has ended `headgate try`.

    Raises ProxyError when Envoy does not listen on the socket.
    """
    reader = asyncio.StreamReader(limit=LONGEST_BATCH)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    try:
        batch = msgspec.json.decode(await reader.readline(), type=Batch)
    except msgspec.DecodeError as error:
        raise HeadgateError(f"`headgate try` writes a line of JSON to this program: {error}") from error
    probe = RequestBatch(socket, batch, hint=_HINT)
    sending, canceled = asyncio.create_task(probe.run()), asyncio.create_task(reader.read())
    while not sending.done() and not canceled.done():
        await asyncio.wait((sending, canceled), timeout=PROGRESS_S, return_when=asyncio.FIRST_COMPLETED)
        _print(ProbeProgress(finished=probe.tally.requests))
    canceled.cancel()
    if sending.done():
        _print(ProbeProgress(finished=probe.tally.requests, counts=sending.result().counts))
    sending.cancel()
    await asyncio.gather(sending, canceled, return_exceptions=True)


def _print(progress: ProbeProgress) -> None:
    sys.stdout.write(f"{msgspec.json.encode(progress).decode()}\n")
    sys.stdout.flush()
