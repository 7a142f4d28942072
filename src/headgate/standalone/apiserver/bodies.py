"""Bodies of requests: JSON, YAML or protobuf, as a client may send them."""

from typing import Any

import msgspec
from starlette.requests import Request

from headgate.api.media import JSON
from headgate.api.status import ApiError
from headgate.manifests import documents
from headgate.standalone.apiserver import protobuf

LARGEST_BODY = 3 * 1024 * 1024  # bytes, as in Kubernetes
_TOO_LONG = f"the request is longer than {LARGEST_BODY} bytes; write large objects in parts"
_YAML = ("application/yaml", "application/vnd.kubernetes.yaml", "application/apply-patch+yaml")


async def read_body(request: Request) -> bytes:
    """Read a request's body. Raises ApiError 413 as soon as it is longer than allowed."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > LARGEST_BODY:
        raise ApiError(413, _TOO_LONG)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > LARGEST_BODY:
            raise ApiError(413, _TOO_LONG)
    return bytes(body)


def media_type(request: Request) -> str:
    """Return the request's content type without its parameters; JSON when it says nothing."""
    return request.headers.get("content-type", JSON).partition(";")[0].strip().lower()


async def read_value(request: Request, *, empty: Any = None) -> Any:
    """Read JSON, YAML or protobuf. Raises ApiError 400 when it is none of these, 415 for another content type."""
    media = media_type(request)
    if media not in (JSON, protobuf.MEDIA_TYPE, *_YAML):
        raise ApiError(415, f"the body is {media}; send application/json or application/yaml")
    body = await read_body(request)
    if not body and empty is not None:
        return empty
    return protobuf.decode(body) if media == protobuf.MEDIA_TYPE else parsed(body, media)


def parsed(body: bytes, media: str) -> Any:
    """Read a body of a known type. Raises ApiError 400."""
    if media in _YAML:
        return _yaml(body)
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError(400, f"the body of the request is not JSON: {error}") from error


def _yaml(body: bytes) -> Any:
    """Read one object as it is read from files: the same rules for text and numbers, no alias bombs."""
    try:
        found, flaws = documents.parse(body.decode())
    except UnicodeDecodeError as error:
        raise ApiError(400, f"the body of the request is not text in UTF-8: {error}") from error
    if flaws:
        place = flaws[0].place
        raise ApiError(400, f"the body of the request {flaws[0].message} (line {place.line}, column {place.column})")
    if len(found) != 1:
        raise ApiError(400, f"the body of the request must be one object, not {len(found)}")
    return found[0].object


async def read_object(request: Request) -> dict[str, Any]:
    """Read an object. Raises ApiError 400 when the body is something else."""
    value = await read_value(request)
    if not isinstance(value, dict):
        raise ApiError(400, "the body of the request must be an object")
    return value
