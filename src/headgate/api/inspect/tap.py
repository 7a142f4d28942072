"""A stream of live requests: a TapEvent or a TapNotice in each line, until the client disconnects.

`.../{deployments,pods,...}/NAME/tap` redacts the values of headers and query parameters; `.../tapvalues` shows them. They are
two subresources, so that a Role can allow `tap` without `tapvalues`.
"""

import asyncio
import functools
from collections.abc import AsyncGenerator, Mapping

import msgspec

from headgate.api.http_server import StreamResponse
from headgate.api.inspect.resource import InspectCall, Subresource
from headgate.api.status import ApiError
from headgate.plane.tap.taps import TapQuery
from headgate.resources.inspect import TapEvent, TapNotice

LIMIT, HIGHEST_LIMIT = 100, 1000
"""The default and the highest number of events per second."""
KEEPALIVE_S = 10.0
"""Seconds without an event before an empty line is sent, which also detects a disconnected client."""


async def _tap(call: InspectCall, *, values: bool = False) -> StreamResponse:
    """Start a stream of a workload's requests. Raises ApiError 400, 404."""
    path = call.path
    query = TapQuery(
        kind=path.resource.kind,
        namespace=path.namespace,
        name=path.name,
        values=values,
        limit=_limit(call.query.get("limit", "")),
    )
    events = await call.inspector.tap(query)
    if events is None:
        raise ApiError(404, f"{query.kind} {'/'.join(filter(None, (path.namespace, path.name)))} not found")
    return StreamResponse(_lines(events), call.sources.closing, media_type="application/json;stream=tap")


async def _lines(events: AsyncGenerator[TapEvent | TapNotice]) -> AsyncGenerator[bytes]:
    pending = asyncio.ensure_future(anext(events))
    try:
        while True:
            await asyncio.wait({pending}, timeout=KEEPALIVE_S)
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
    if not text.isdecimal() or len(text) > len(str(HIGHEST_LIMIT)) or not 1 <= int(text) <= HIGHEST_LIMIT:
        raise ApiError(400, f"limit: Invalid value: {text[:100]!r}: must be an integer between 1 and {HIGHEST_LIMIT}")
    return int(text)


TAPS: Mapping[str, Subresource] = {
    "tap": Subresource("TapEvent", connect=_tap),
    "tapvalues": Subresource("TapEvent", connect=functools.partial(_tap, values=True)),
}
