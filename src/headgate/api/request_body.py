"""Reads and decodes the bodies of requests, within limits."""

import asyncio
from typing import TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from headgate.api.status import ApiError
from headgate.resources.meta import deeper_than

LARGEST_BODY = 3 * 1024 * 1024  # the longest body in bytes, as in kube-apiserver
DEEPEST = 200
"""The most levels of lists and objects in a value of a request. Functions that recurse over it stay far from Python's limit."""
_SMALL_BODY = 256 * 1024
_Decoded = TypeVar("_Decoded")


async def read_body(
    request: Request, largest: int = LARGEST_BODY, large_bodies: asyncio.Semaphore | None = None
) -> bytes:
    """Read a request's body. `large_bodies` limits how many bodies of more than 256 KiB are read at a time.

    Raises ApiError 413 when the body is longer than `largest`, and 400 when the client disconnects.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > largest:
        raise _too_large(largest)
    body, is_large = bytearray(), False
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > largest:
                raise _too_large(largest)
            if large_bodies and not is_large and len(body) > _SMALL_BODY:
                await large_bodies.acquire()
                is_large = True
    except ClientDisconnect as error:
        raise ApiError(400, "the client disconnected before the end of the body") from error
    finally:
        if large_bodies and is_large:
            large_bodies.release()
    return bytes(body)


def decode_body(body: bytes, type: type[_Decoded], name: str) -> _Decoded:
    """Decode a JSON body. Raises ApiError 400; its message calls the body `name`."""
    try:
        return msgspec.json.decode(body, type=type)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError(400, f"the body is not {name}: {error}") from error


def check_depth(value: object) -> None:
    """Check that a decoded value has at most DEEPEST levels. Raises ApiError 400."""
    if deeper_than(value, DEEPEST):
        raise ApiError(400, f"the body has more than {DEEPEST} levels of lists and objects; nest them less deeply")


def _too_large(largest: int) -> ApiError:
    return ApiError(413, f"Request entity too large: limit is {largest}")
