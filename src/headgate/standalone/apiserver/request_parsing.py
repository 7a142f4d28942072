"""Parses requests: path, query parameters and body, and the representation that the client accepts."""

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request

from headgate.api import responses
from headgate.api.request_body import check_depth, read_body
from headgate.api.responses import JSON, query_flag
from headgate.api.selectors import Predicate, everything, field_selector, label_selector
from headgate.api.status import ApiError, no_such_path, unsupported_value
from headgate.manifests import documents
from headgate.resources.kind import ServedKind
from headgate.resources.kind_set import KindSet
from headgate.resources.meta import Object, Value
from headgate.standalone.apiserver import protobuf
from headgate.standalone.apiserver.objects import PathTarget, WriteOptions
from headgate.standalone.apiserver.tables import table
from headgate.standalone.pods.logs import LogOptions

_LONGEST_MANAGER = 128
_VALIDATIONS = ("Strict", "Warn", "Ignore")
# Log options that are not supported; logs are stored without timestamps.
_NO_LOG_OPTIONS = ("timestamps", "limitBytes", "sinceSeconds", "sinceTime", "stream")
_YAML = ("application/yaml", "application/vnd.kubernetes.yaml", "application/apply-patch+yaml")


class ResourcePath(NamedTuple):
    """A parsed path, of an object, a collection or a subresource. `subresource` is empty in the first two cases."""

    target: PathTarget
    subresource: str = ""


def parse_path(kinds: KindSet, group: str, version: str, parts: list[str]) -> ResourcePath:
    """Parse a path after its version: `[namespaces/NS/]RESOURCE[/NAME[/SUBRESOURCE]]`. Raises ApiError 404."""
    namespace = ""
    if parts[0] == "namespaces" and len(parts) >= 3 and kinds.served_at(group, version, parts[2]):
        _, namespace, *parts = parts
    served = kinds.served_at(group, version, parts[0])
    if served is None or len(parts) > 3 or not all(parts) or (namespace and not served.kind.namespaced):
        raise no_such_path()
    name = parts[1] if len(parts) > 1 else ""
    if name and served.kind.namespaced and not namespace:
        raise no_such_path()
    return ResourcePath(PathTarget(served, namespace, name), parts[2] if len(parts) > 2 else "")


def write_options(request: Request) -> WriteOptions:
    """Parse `dryRun`, `fieldValidation`, `fieldManager` and `force`. Raises ApiError 400.

    Without `fieldManager`, the manager is the program that the User-Agent header names.
    """
    query = request.query_params
    validation = query.get("fieldValidation") or "Warn"
    if validation not in _VALIDATIONS:
        raise ApiError(400, unsupported_value("fieldValidation", validation, _VALIDATIONS))
    given = query.get("fieldManager") or ""
    if len(given) > _LONGEST_MANAGER:
        raise ApiError(400, f"fieldManager: Too long: may not be more than {_LONGEST_MANAGER} characters")
    if not given.isprintable():
        raise ApiError(400, f"fieldManager: Invalid value: {given!r}: should only contain printable characters")
    program = request.headers.get("user-agent", "").partition("/")[0].strip()[:_LONGEST_MANAGER]
    return WriteOptions(
        dry_run(query.get("dryRun")), validation, given or program or "unknown", query_flag(query, "force")
    )


def dry_run(value: object) -> bool:
    """Return whether `dryRun` of a query or of DeleteOptions requests a dry run. Raises ApiError 400."""
    if value in (None, "", []):
        return False
    if value not in ("All", ["All"]):
        raise ApiError(400, unsupported_value("dryRun", value, ("All",)))
    return True


def selector(query: Mapping[str, str], target: PathTarget) -> Predicate:
    """Return a predicate for `labelSelector`, `fieldSelector` and the name in the path. Raises ApiError 400."""
    tests = []
    if labels := query.get("labelSelector"):
        tests.append(label_selector(labels))
    if field := query.get("fieldSelector"):
        tests.append(field_selector(field, target.served.kind.selectable))
    if name := target.name:
        tests.append(lambda obj: obj["metadata"]["name"] == name)
    return (lambda obj: all(test(obj) for test in tests)) if tests else everything


def check_resource_version(query: Mapping[str, str], current: int) -> None:
    """Check that a list at resource version `current` satisfies the request.

    Raises ApiError 504 if the request needs a newer version, and 410 if it requests exactly an older version, because
    the store lists only the current objects.
    """
    requested = responses.int_parameter(query, "resourceVersion") or current
    if requested > current:
        raise ApiError(504, f"Too large resource version: {requested}, current: {current}", reason="Timeout")
    if query.get("resourceVersionMatch") == "Exact" and requested != current:
        raise ApiError(
            410,
            f"The resourceVersion for the provided list is too old: {requested}, current: {current}; "
            "omit resourceVersionMatch=Exact",
        )


def log_options(query: Mapping[str, str], pod: Object) -> LogOptions:
    """Parse the options of a request for a pod's log. Raises ApiError 400."""
    for name in _NO_LOG_OPTIONS:
        if query.get(name) not in (None, "", "false", "0", "All"):
            raise ApiError(400, f"the log option {name} is not supported by the embedded API; omit it")
    return LogOptions(
        container=container_name(query.get("container", ""), pod),
        follow=query_flag(query, "follow"),
        previous=query_flag(query, "previous"),
        tail_lines=responses.int_parameter(query, "tailLines"),
    )


def container_name(requested: str, pod: Object) -> str:
    """Return the requested container of a pod, or its only one if no name is requested. Raises ApiError 400."""
    spec = pod.get("spec") or {}
    names = [container["name"] for field in ("containers", "initContainers") for container in spec.get(field) or ()]
    name = pod["metadata"]["name"]
    if requested:
        if requested not in names:
            raise ApiError(400, f"container {requested} is not valid for pod {name}; choose one of: {', '.join(names)}")
        return requested
    if len(spec.get("containers") or ()) > 1:
        raise ApiError(400, f"a container name must be specified for pod {name}, choose one of: [{' '.join(names)}]")
    return names[0] if names else ""


class Continue(msgspec.Struct, frozen=True):
    """A continue token: the next page begins after the object with this name. `revision` is the first page's revision."""

    revision: int
    namespace: str
    name: str

    @classmethod
    def read(cls, text: str) -> "Continue":
        """Parse a token. Raises ApiError 400."""
        try:
            return msgspec.json.decode(base64.urlsafe_b64decode(text), type=cls)
        except (binascii.Error, msgspec.DecodeError, ValueError) as error:
            raise ApiError(400, "continue key is not valid; list again without it") from error

    def encoded(self) -> str:
        """Return the token as text."""
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode()


def media_type(request: Request) -> str:
    """Return the request's content type without its parameters; JSON when the header is absent."""
    return request.headers.get("content-type", JSON).partition(";")[0].strip().lower()


async def read_value(request: Request, *, empty: Any = None) -> Any:
    """Decode a body of JSON, YAML or protobuf; return `empty` for an empty body.

    Raises ApiError 400 for a malformed body, 415 for another content type.
    """
    content = media_type(request)
    if content not in (JSON, protobuf.MEDIA_TYPE, *_YAML):
        raise ApiError(
            415,
            f"the body of the request was in an unknown format ({content}) - accepted media types include: "
            f"{JSON}, {_YAML[0]}, {protobuf.MEDIA_TYPE}",
        )
    body = await read_body(request)
    if not body and empty is not None:
        return empty
    return protobuf.decode(body) if content == protobuf.MEDIA_TYPE else parse_body(body, content)


def parse_body(body: bytes, content: str) -> Any:
    """Decode a body of content type JSON or YAML. Raises ApiError 400."""
    try:
        value = _yaml(body) if content in _YAML else msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError(400, f"the body of the request is not JSON: {error}") from error
    check_depth(value)
    return value


def _yaml(body: bytes) -> Any:
    """Decode a body of one YAML object with the parser of manifests, which limits aliases and types. Raises ApiError 400."""
    try:
        parsed, parse_problems = documents.parse(body.decode())
    except UnicodeDecodeError as error:
        raise ApiError(400, f"the body of the request is not UTF-8: {error}") from error
    if parse_problems:
        place = parse_problems[0].position
        raise ApiError(
            400, f"the body of the request {parse_problems[0].message} (line {place.line}, column {place.column})"
        )
    if len(parsed) != 1:
        raise ApiError(400, f"the body of the request must contain one object, not {len(parsed)}")
    return parsed[0].object


async def read_object(request: Request) -> dict[str, Any]:
    """Decode a body that is an object. Raises ApiError 400 for any other value."""
    value = await read_value(request)
    if not isinstance(value, dict):
        raise ApiError(400, "the body of the request must be an object")
    return value


class Renderer(Value, frozen=True, kw_only=True):
    """Renders objects in the form that a client accepts.

    `shape` is `Table`, `PartialObjectMetadata`, or empty for whole objects.
    """

    served: ServedKind
    shape: str = ""
    version: str = "v1"  # The version of meta.k8s.io.
    include: str = "Metadata"  # The part of the object in each row of a Table (`includeObject`).

    def one(self, obj: Object) -> Mapping[str, Any]:
        """Render one object."""
        if self.shape == "Table":
            return self.many([obj], {"resourceVersion": obj["metadata"].get("resourceVersion", "")})
        return responses.partial_metadata(obj["metadata"], self.version) if self.shape else obj

    def many(self, items: Sequence[Object], metadata: Mapping[str, Any]) -> Mapping[str, Any]:
        """Render a list of objects."""
        kind = self.served.kind.kind
        if self.shape == "Table":
            return table(self.served.kind, items, metadata=metadata, include=self.include, api=self.version)
        if not self.shape:
            return {"kind": f"{kind}List", "apiVersion": self.served.api_version, "metadata": metadata, "items": items}
        return responses.partial_metadata_list([obj["metadata"] for obj in items], self.version, metadata)

    def events(self) -> Callable[[Object], Mapping[str, Any]]:
        """Return a renderer for the objects of a watch. Only the first Table of a watch has column definitions."""
        if self.shape != "Table":
            return self.one
        first = True

        def row(obj: Object) -> Mapping[str, Any]:
            nonlocal first
            rows = self.one(obj)
            if not first:
                rows = {**rows, "columnDefinitions": None}
            first = False
            return rows

        return row


def renderer_for(request: Request, served: ServedKind) -> Renderer:
    """Return the renderer for a request. Raises ApiError 406 for its Accept header, 400 for `includeObject`."""
    form = responses.negotiate(request.headers.get("accept", ""), responses.SHAPES)
    if not form.shape:
        return Renderer(served=served)
    include = responses.included_object(request.query_params)
    return Renderer(served=served, shape=form.shape, version=responses.table_version(form), include=include)
