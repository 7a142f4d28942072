"""`pods/log`: what the query asks for, and the stream of bytes that answers it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import NamedTuple, TypeAlias

from headgate.api.media import flag
from headgate.api.status import ApiError
from headgate.resources.meta import Key, Object
from headgate.standalone.apiserver.requests import number

_REFUSED = ("timestamps", "limitBytes", "sinceSeconds", "sinceTime", "stream")  # lines are kept as written, undated

_SILENCE = 0.2  # seconds


class LogOptions(NamedTuple):
    """Which part of a pod's output is wanted. `container` is always named; `tail_lines` is None for all lines."""

    container: str
    follow: bool = False
    previous: bool = False
    tail_lines: int | None = None


LogSource: TypeAlias = Callable[[Key, LogOptions], AsyncIterator[bytes]]
"""Yields the output of a container as it is written, without end when following. Raises StoreError."""


def log_options(query: Mapping[str, str], pod: Object) -> LogOptions:
    """Read the query of a request. Raises ApiError 400."""
    for name in _REFUSED:
        if query.get(name) not in (None, "", "false", "0", "All"):
            raise ApiError(400, f"{name} is not supported for logs here; leave it out")
    return LogOptions(
        container=_container(query.get("container", ""), pod),
        follow=flag(query, "follow"),
        previous=flag(query, "previous"),
        tail_lines=number(query, "tailLines"),
    )


async def begun(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Start to read, so that what is missing is an error and not an empty answer. Raises what the source raises."""
    first = asyncio.ensure_future(anext(pieces, b""))
    await asyncio.wait({first}, timeout=_SILENCE)  # a source that waits for output has nothing to complain about
    if first.done():
        first.result()
    return _from(first, pieces)


async def _from(first: asyncio.Future[bytes], pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield await first
    async for piece in pieces:
        yield piece


def _container(wanted: str, pod: Object) -> str:
    spec = pod.get("spec") or {}
    names = [one["name"] for field in ("containers", "initContainers") for one in spec.get(field) or ()]
    name = pod["metadata"]["name"]
    if wanted:
        if wanted not in names:
            raise ApiError(400, f"container {wanted} is not valid for pod {name}; it has {', '.join(names)}")
        return wanted
    if len(spec.get("containers") or ()) > 1:
        raise ApiError(400, f"a container name must be specified for pod {name}, choose one of: [{' '.join(names)}]")
    return names[0] if names else ""
