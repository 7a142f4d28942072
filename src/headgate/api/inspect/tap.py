"""Live requests as the inspect API streams them: a TapEvent or a TapNotice in each line, until the client leaves.

`.../{deployments,pods,...}/NAME/tap` redacts the values of headers and of queries; `.../tapvalues` shows them, and is a
resource of its own so that a Role can allow the one without the other.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping

import msgspec

from headgate.api.http_server import StreamResponse
from headgate.api.inspect.query import TAP_VALUES, InspectPath
from headgate.api.status import ApiError
from headgate.plane.inspector import Inspector
from headgate.plane.tap.taps import TapQuery
from headgate.resources.inspect import TapEvent, TapNotice

LIMIT, HIGHEST_LIMIT = 100, 1000
"""Events a second: by itself, and at most."""
BREATH_S = 10.0
"""After so long without an event an empty line shows that the stream lives; it also notices that its reader left."""


async def answer(
    inspector: Inspector, path: InspectPath, query: Mapping[str, str], closing: asyncio.Event
) -> StreamResponse:
    """Begin a stream. Raises ApiError 400, 404."""
    wanted = TapQuery(
        kind=path.resource.kind,
        namespace=path.namespace,
        name=path.name,
        values=path.subresource == TAP_VALUES,
        limit=_limit(query.get("limit", "")),
    )
    events = await inspector.tap(wanted)
    if events is None:
        raise ApiError(404, f"{wanted.kind} {'/'.join(filter(None, (path.namespace, path.name)))} not found")
    return StreamResponse(_lines(events), closing, media_type="application/json;stream=tap")


async def _lines(events: AsyncGenerator[TapEvent | TapNotice]) -> AsyncGenerator[bytes]:
    pending = asyncio.ensure_future(anext(events))
    try:
        while True:
            await asyncio.wait({pending}, timeout=BREATH_S)
            if not pending.done():
                yield b"\n"
                continue
            yield msgspec.json.encode(pending.result()) + b"\n"
            pending = asyncio.ensure_future(anext(events))
    finally:
        pending.cancel()
        await asyncio.gather(pending, return_exceptions=True)
        await events.aclose()


def _limit(text: str) -> int:
    if not text:
        return LIMIT
    if not text.isdecimal() or not 1 <= int(text) <= HIGHEST_LIMIT:
        raise ApiError(400, f"limit must be a whole number from 1 to {HIGHEST_LIMIT}, not {text!r}")
    return int(text)
