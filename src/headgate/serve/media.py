"""Bodies in and out: what a client may send, and the form in which it wants its answer."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from headgate.serve import protobuf
from headgate.serve.status import ApiError
from headgate.store import documents

LARGEST_BODY = 3 * 1024 * 1024  # bytes, as in Kubernetes
JSON = "application/json"
_YAML = ("application/yaml", "application/vnd.kubernetes.yaml", "application/apply-patch+yaml")
_TABLE_VERSIONS = ("v1", "v1beta1")


class Form(NamedTuple):
    """How an answer is written: `shape` is "" (the object itself), "Table", "PartialObjectMetadata(List)" or other."""

    shape: str = ""
    group: str = ""
    version: str = ""


def wanted_form(accept: str, known: Sequence[str]) -> Form:
    """Return the first form in an Accept header that is among `known` shapes. Raises ApiError 406."""
    for part in accept.split(",") if accept.strip() else (JSON,):
        media, _, rest = part.strip().partition(";")
        given = dict(parameter.strip().partition("=")[::2] for parameter in rest.split(";") if parameter.strip())
        form = Form(given.get("as", ""), given.get("g", ""), given.get("v", ""))
        if media.strip().lower() in (JSON, "*/*", "application/*") and form.shape in ("", *known):
            return form if form.shape else Form()
    raise ApiError(406, "only application/json is answered; the Accept header allows none of it")


def table_version(form: Form) -> str:
    """Return the version of `meta.k8s.io` to answer in. Raises ApiError 406."""
    if form.group not in ("", "meta.k8s.io") or (form.version or "v1") not in _TABLE_VERSIONS:
        raise ApiError(406, f"{form.shape} exists as meta.k8s.io/v1 and v1beta1, not as {form.group}/{form.version}")
    return form.version or "v1"


async def read_body(request: Request) -> bytes:
    """Read a request's body. Raises ApiError 413 as soon as it is longer than allowed."""
    too_long = ApiError(413, f"the request is longer than {LARGEST_BODY} bytes; write large objects in parts")
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > LARGEST_BODY:
        raise too_long
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > LARGEST_BODY:
            raise too_long
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


def answer(value: Mapping[str, Any] | msgspec.Struct, *, code: int = 200, warnings: Sequence[str] = ()) -> Response:
    """Write an object, with a `Warning: 299` header for each warning."""
    response = Response(msgspec.json.encode(value), status_code=code, media_type=JSON)
    for warning in warnings:
        text = " ".join(warning.split()).replace("\\", "\\\\").replace('"', '\\"')
        response.raw_headers.append((b"warning", f'299 - "{text}"'.encode()))
    return response
