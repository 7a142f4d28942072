"""What a request asks for: the object that its path leads to, the options of its query, its body, and the form of the answer."""

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request

from headgate.api import responses
from headgate.api.responses import JSON, query_flag
from headgate.api.selectors import Predicate, everything, field_selector, label_selector
from headgate.api.status import ApiError, no_such_path
from headgate.manifests import documents
from headgate.resources.meta import Object, Value
from headgate.resources.registry import ServedKind, served_at
from headgate.standalone.apiserver import protobuf
from headgate.standalone.apiserver.objects import Target, WriteOptions
from headgate.standalone.apiserver.tables import table
from headgate.standalone.pods.logs import LogOptions

LARGEST_BODY = 3 * 1024 * 1024  # bytes, as in Kubernetes
_LONGEST_MANAGER = 128
_VALIDATIONS = ("Strict", "Warn", "Ignore")
_NO_LOG_OPTIONS = (
    "timestamps",
    "limitBytes",
    "sinceSeconds",
    "sinceTime",
    "stream",
)  # lines are kept as written, undated
_YAML = ("application/yaml", "application/vnd.kubernetes.yaml", "application/apply-patch+yaml")


class ResourcePath(NamedTuple):
    """A parse_body path: an object or a collection of them, and perhaps a subresource."""

    target: Target
    subresource: str = ""


def parse_path(group: str, version: str, parts: list[str]) -> ResourcePath:
    """Read what follows the version: `[namespaces/NS/]RESOURCE[/NAME[/SUBRESOURCE]]`. Raises ApiError 404."""
    namespace = ""
    if parts[0] == "namespaces" and len(parts) >= 3 and served_at(group, version, parts[2]):
        _, namespace, *parts = parts
    served = served_at(group, version, parts[0])
    if served is None or len(parts) > 3 or not all(parts) or (namespace and not served.kind.namespaced):
        raise no_such_path()
    name = parts[1] if len(parts) > 1 else ""
    if name and served.kind.namespaced and not namespace:
        raise no_such_path()
    return ResourcePath(Target(served, namespace, name), parts[2] if len(parts) > 2 else "")


def write_options(request: Request) -> WriteOptions:
    """Read `dryRun`, `fieldValidation`, `fieldManager` and `force`. Raises ApiError 400.

    Without `fieldManager`, the client's program is the manager of what it writes.
    """
    query = request.query_params
    validation = query.get("fieldValidation") or "Warn"
    if validation not in _VALIDATIONS:
        raise ApiError(400, f"fieldValidation must be one of {', '.join(_VALIDATIONS)}, not {validation!r}")
    given = query.get("fieldManager") or ""
    if len(given) > _LONGEST_MANAGER or not given.isprintable():
        raise ApiError(400, f"fieldManager must be at most {_LONGEST_MANAGER} characters that can be printed")
    program = request.headers.get("user-agent", "").partition("/")[0].strip()[:_LONGEST_MANAGER]
    return WriteOptions(
        dry_run(query.get("dryRun")), validation, given or program or "unknown", query_flag(query, "force")
    )


def dry_run(value: object) -> bool:
    """Read `dryRun` of a query or of delete options. Raises ApiError 400."""
    if value in (None, "", []):
        return False
    if value not in ("All", ["All"]):
        raise ApiError(400, f"dryRun must be All, not {value!r}")
    return True


def selector(query: Mapping[str, str], target: Target) -> Predicate:
    """Read `labelSelector`, `fieldSelector` and the path's name. Raises ApiError 400."""
    tests = []
    if labels := query.get("labelSelector"):
        tests.append(label_selector(labels))
    if field := query.get("fieldSelector"):
        tests.append(field_selector(field, target.served.kind.kind))
    if name := target.name:
        tests.append(lambda obj: obj["metadata"]["name"] == name)
    return (lambda obj: all(test(obj) for test in tests)) if tests else everything


def int_parameter(query: Mapping[str, str], name: str) -> int | None:
    """Read a whole int_parameter of 0 or more; None when it is absent or empty. Raises ApiError 400."""
    text = query.get(name, "")
    if text and not (text.isascii() and text.isdecimal()):
        raise ApiError(400, f"{name} must be a whole int_parameter, not {text!r}")
    return int(text) if text else None


def check_resource_version(query: Mapping[str, str], current: int) -> None:
    """Check that a list as of `current` is what was asked for. Raises ApiError 410, 504: only the present is kept."""
    wanted = int_parameter(query, "resourceVersion") or current
    if wanted > current:
        raise ApiError(504, f"Too large resource version: {wanted}, current: {current}", reason="Timeout")
    if query.get("resourceVersionMatch") == "Exact" and wanted != current:
        raise ApiError(410, f"only the list of now is kept, of resource version {current}: ask without Exact")


def log_options(query: Mapping[str, str], pod: Object) -> LogOptions:
    """Read which part of a pod's output is wanted. Raises ApiError 400."""
    for name in _NO_LOG_OPTIONS:
        if query.get(name) not in (None, "", "false", "0", "All"):
            raise ApiError(400, f"{name} is not supported for logs here; leave it out")
    return LogOptions(
        container=_container(query.get("container", ""), pod),
        follow=query_flag(query, "follow"),
        previous=query_flag(query, "previous"),
        tail_lines=int_parameter(query, "tailLines"),
    )


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


class Continue(msgspec.Struct, frozen=True):
    """Where the next page of a list begins: after this object, as of this revision. Clients hold it as text."""

    revision: int
    namespace: str
    name: str

    @classmethod
    def read(cls, text: str) -> "Continue":
        """Read a token. Raises ApiError 400."""
        try:
            return msgspec.json.decode(base64.urlsafe_b64decode(text), type=cls)
        except (binascii.Error, msgspec.DecodeError, ValueError) as error:
            raise ApiError(400, "continue key is not valid: list again from the start") from error

    def written(self) -> str:
        """Write the token that a client gives back."""
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode()


async def read_body(request: Request) -> bytes:
    """Read a request's body. Raises ApiError 413 as soon as it is longer than allowed."""
    declared = request.headers.get("content-length", "")
    body = bytearray()
    if declared.isdecimal() and int(declared) > LARGEST_BODY:
        raise _too_long()
    async for chunk in request.stream():
        body += chunk
        if len(body) > LARGEST_BODY:
            raise _too_long()
    return bytes(body)


def _too_long() -> ApiError:
    return ApiError(413, f"the request is longer than {LARGEST_BODY} bytes; write large objects in parts")


def media_type(request: Request) -> str:
    """Return the request's content type without its parameters; JSON when it says nothing."""
    return request.headers.get("content-type", JSON).partition(";")[0].strip().lower()


async def read_value(request: Request, *, empty: Any = None) -> Any:
    """Read JSON, YAML or protobuf. Raises ApiError 400 when it is none of these, 415 for another content type."""
    content = media_type(request)
    if content not in (JSON, protobuf.MEDIA_TYPE, *_YAML):
        raise ApiError(415, f"the body is {content}; send application/json or application/yaml")
    body = await read_body(request)
    if not body and empty is not None:
        return empty
    return protobuf.decode(body) if content == protobuf.MEDIA_TYPE else parse_body(body, content)


def parse_body(body: bytes, content: str) -> Any:
    """Read a body of a known type. Raises ApiError 400."""
    if content in _YAML:
        return _yaml(body)
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError(400, f"the body of the request is not JSON: {error}") from error


def _yaml(body: bytes) -> Any:
    """Read one object as it is read from files: the same rules for text and numbers, no alias bombs."""
    try:
        found, parse_problems = documents.parse(body.decode())
    except UnicodeDecodeError as error:
        raise ApiError(400, f"the body of the request is not text in UTF-8: {error}") from error
    if parse_problems:
        place = parse_problems[0].position
        raise ApiError(
            400, f"the body of the request {parse_problems[0].message} (line {place.line}, column {place.column})"
        )
    if len(found) != 1:
        raise ApiError(400, f"the body of the request must be one object, not {len(found)}")
    return found[0].object


async def read_object(request: Request) -> dict[str, Any]:
    """Read an object. Raises ApiError 400 when the body is something else."""
    value = await read_value(request)
    if not isinstance(value, dict):
        raise ApiError(400, "the body of the request must be an object")
    return value


class Renderer(Value, frozen=True, kw_only=True):
    """The form in which one request wants its answer; `shape` is empty for the object itself."""

    served: ServedKind
    shape: str = ""
    version: str = "v1"  # of meta.k8s.io
    include: str = "Metadata"  # what each row of a table carries

    def one(self, obj: Object) -> Mapping[str, Any]:
        """Return one object."""
        if self.shape == "Table":
            return self.many([obj], {"resourceVersion": obj["metadata"].get("resourceVersion", "")})
        return responses.partial_metadata(obj["metadata"], self.version) if self.shape else obj

    def many(self, items: Sequence[Object], metadata: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a list."""
        kind = self.served.kind.kind
        if self.shape == "Table":
            return table(self.served.kind, items, metadata=metadata, include=self.include, api=self.version)
        if not self.shape:
            return {"kind": f"{kind}List", "apiVersion": self.served.api_version, "metadata": metadata, "items": items}
        return responses.partial_metadata_list([obj["metadata"] for obj in items], self.version, metadata)

    def events(self) -> Callable[[Object], Mapping[str, Any]]:
        """Return what writes the objects of a watch: of tables, only the first one describes the columns."""
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
    """Read the form that a request wants. Raises ApiError 406, 400."""
    form = responses.negotiate(request.headers.get("accept", ""), responses.SHAPES)
    if not form.shape:
        return Renderer(served=served)
    include = responses.included_object(request.query_params)
    return Renderer(served=served, shape=form.shape, version=responses.table_version(form), include=include)
