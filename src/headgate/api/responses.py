"""Content negotiation and JSON responses in the forms of the Kubernetes API: objects, Tables, metadata only, Status."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from headgate.api.status import ApiError, unsupported_value

JSON = "application/json"
_log = logging.getLogger(__name__)
_BUG = ApiError(500, "Internal error occurred: this is a bug in headgate; its log has the details")
SHAPES = ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")
_INCLUDES = ("Metadata", "Object", "None")
_TABLE_VERSIONS = ("v1", "v1beta1")
_LONGEST_NUMBER = 18  # digits of a 64-bit number


class Representation(NamedTuple):
    """The representation that a client accepts (parameters `as`, `g` and `v` of its Accept header).

    `shape` is empty for the object itself, or `Table`, `PartialObjectMetadata` or another kind.
    """

    shape: str = ""
    group: str = ""
    version: str = ""


def negotiate(accept: str, shapes: Sequence[str]) -> Representation:
    """Return the first representation of an Accept header that has a shape in `shapes`. Raises ApiError 406."""
    for part in accept.split(",") if accept.strip() else (JSON,):
        media, _, rest = part.strip().partition(";")
        given = dict(parameter.strip().partition("=")[::2] for parameter in rest.split(";") if parameter.strip())
        form = Representation(given.get("as", ""), given.get("g", ""), given.get("v", ""))
        if media.strip().lower() in (JSON, "*/*", "application/*") and form.shape in ("", *shapes):
            return form if form.shape else Representation()
    raise ApiError(406, f"only the following media types are accepted: {JSON}")


def table_version(form: Representation) -> str:
    """Return the version of `meta.k8s.io` of a representation. Raises ApiError 406."""
    if form.group not in ("", "meta.k8s.io") or (form.version or "v1") not in _TABLE_VERSIONS:
        raise ApiError(406, f"{form.shape} of {form.group}/{form.version} is not supported; accept g=meta.k8s.io;v=v1")
    return form.version or "v1"


def json_response(
    value: Mapping[str, Any] | msgspec.Struct, *, code: int = 200, warnings: Sequence[str] = ()
) -> Response:
    """Return a response with an object, and a `Warning: 299` header for each warning."""
    response = Response(msgspec.json.encode(value), status_code=code, media_type=JSON)
    for warning in warnings:
        text = " ".join(warning.split()).replace("\\", "\\\\").replace('"', '\\"')
        response.raw_headers.append((b"warning", f'299 - "{text}"'.encode()))
    return response


def query_flag(query: Mapping[str, str], name: str) -> bool:
    """Parse a boolean query parameter as Kubernetes does: absent, empty, 0 and false are False."""
    return query.get(name, "").lower() not in ("", "0", "false")


def int_parameter(query: Mapping[str, str], name: str) -> int | None:
    """Parse a query parameter as an integer of 0 or more; None when it is absent or empty. Raises ApiError 400."""
    text = query.get(name, "")
    if text and not (text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER):
        raise ApiError(400, f"{name}: Invalid value: {text[:100]!r}: must be an integer greater than or equal to 0")
    return int(text) if text else None


def column(name: str, description: str, **fields: object) -> dict[str, object]:
    """Return the definition of a Table's column; `fields` override the defaults."""
    return {"name": name, "type": "string", "format": "", "description": description, "priority": 0, **fields}


def table(
    columns: Sequence[Mapping[str, object]],
    rows: Sequence[Mapping[str, Any]],
    version: str,
    metadata: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a Table (`meta.k8s.io`), which `kubectl get` prints. A row has `cells` and, optionally, its `object`."""
    head = {"kind": "Table", "apiVersion": f"meta.k8s.io/{version}", "metadata": metadata or {}}
    return head | {"columnDefinitions": columns, "rows": rows}


def partial_metadata(metadata: object, version: str) -> dict[str, object]:
    """Return a PartialObjectMetadata, which has only the metadata of an object."""
    return {"kind": "PartialObjectMetadata", "apiVersion": f"meta.k8s.io/{version}", "metadata": metadata}


def partial_metadata_list(
    several: Sequence[object], version: str, metadata: Mapping[str, Any] | None = None
) -> dict[str, object]:
    """Return a PartialObjectMetadataList."""
    items = [partial_metadata(obj, version) for obj in several]
    return {**partial_metadata(metadata or {}, version), "kind": "PartialObjectMetadataList", "items": items}


def included_object(query: Mapping[str, str]) -> str:
    """Return the part of an object that its row of a Table includes: Metadata, Object or None. Raises ApiError 400."""
    include = query.get("includeObject") or "Metadata"
    if include not in _INCLUDES:
        raise ApiError(400, unsupported_value("includeObject", include, _INCLUDES))
    return include


async def with_status_errors(request: Request, respond: Callable[[Request], Awaitable[Response]]) -> Response:
    """Return the response of `respond`; an error becomes a Status."""
    try:
        return await respond(request)
    except ApiError as error:
        return json_response(error.status(), code=error.code)
    except Exception:  # noqa: BLE001  a bug fails one request, not the server
        _log.exception("bug: %s %s failed", request.method, request.url.path)
        return json_response(_BUG.status(), code=_BUG.code)
