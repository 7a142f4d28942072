"""The API group `metrics.k8s.io`, for `kubectl top pods` and `kubectl top nodes`: processor time and memory now.

Only the embedded API serves it. On a cluster it belongs to metrics-server.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from headgate.api import responses
from headgate.api.resource_attributes import ResourceAttributes
from headgate.api.selectors import field_selector, label_selector
from headgate.api.status import ApiError, method_not_allowed, no_such_path, not_found
from headgate.errors import StoreError
from headgate.objects.ports import Lister
from headgate.resources.meta import Key, Object, timestamp
from headgate.resources.registry import key_of
from headgate.resources.schema.builders import GVK, REF, Schema, gvk, kind, listing, operation, quantity, record, text
from headgate.resources.schema.catalog import definition_name

GROUP, VERSION = "metrics.k8s.io", "v1beta1"
KINDS = {"nodes": "NodeMetrics", "pods": "PodMetrics"}
_API_VERSION = f"{GROUP}/{VERSION}"
_CORE_KINDS = {"nodes": "Node", "pods": "Pod"}


class Usage(NamedTuple):
    """Processor time in cores, and resident memory in bytes."""

    cores: float
    memory_bytes: int


class Measurement(NamedTuple):
    """The usage in the `window_s` seconds before `time` (seconds since the epoch): of nodes by name, of containers by pod and name."""

    time: float
    window_s: float
    nodes: Mapping[str, Usage]
    containers: Mapping[Key, Mapping[str, Usage]]


class UsageSource(Protocol):
    """A source of measurements."""

    async def measure(self) -> Measurement:
        """Return the usage in a window that has just ended."""


class UsagePath(NamedTuple):
    """A parsed path: one object, or all of a kind if `name` is empty."""

    plural: str
    namespace: str = ""
    name: str = ""

    @property
    def attributes(self) -> ResourceAttributes:
        """The attributes for RBAC."""
        return ResourceAttributes(
            group=GROUP,
            version=VERSION,
            resource=self.plural,
            verb="get" if self.name else "list",
            namespace=self.namespace,
            name=self.name,
        )


def parse_path(parts: Sequence[str]) -> UsagePath:
    """Parse the path after the version: `[namespaces/NS/]pods[/NAME]` or `nodes[/NAME]`. Raises ApiError 404."""
    match parts:
        case ["pods"]:
            return UsagePath("pods")
        case ["nodes", *rest] if len(rest) < 2 and all(rest):
            return UsagePath("nodes", "", *rest)
        case ["namespaces", namespace, "pods", *rest] if namespace and len(rest) < 2 and all(rest):
            return UsagePath("pods", namespace, *rest)
        case _:
            raise no_such_path()


class UsageApi:
    """The handler of requests for the usage of resources. It answers 501 without a `source`."""

    def __init__(self, objects: Lister, source: UsageSource | None) -> None:
        self._objects = objects
        self._source = source

    async def answer(self, request: Request, path: UsagePath) -> Response:
        """Answer a request. Raises ApiError."""
        if request.method not in ("GET", "HEAD"):
            raise method_not_allowed("use GET")
        if self._source is None:
            raise ApiError(501, "this server runs no pods, so it measures no usage; use `headgate up`")
        if responses.query_flag(request.query_params, "watch"):
            raise method_not_allowed("the usage of resources can't be watched; repeat the request")
        objects = await self._selected(path, request.query_params)
        rows = list(_rows(path.plural, objects, await self._source.measure() if objects else None))
        if not path.name:
            value = {"kind": f"{KINDS[path.plural]}List", "apiVersion": _API_VERSION, "metadata": {}, "items": rows}
            return responses.json_response(value)
        if not rows:
            raise not_found(path.plural, GROUP, path.name)
        return responses.json_response(rows[0])

    async def _selected(self, path: UsagePath, query: QueryParams) -> list[Object]:
        """Return the objects that a request selects by its path and selectors."""
        try:
            objects = (await self._objects.list("", _CORE_KINDS[path.plural], path.namespace)).items
        except StoreError as error:
            raise ApiError(503, str(error)) from error
        parsers = {"labelSelector": label_selector, "fieldSelector": field_selector}
        selects = [parse(query[name]) for name, parse in parsers.items() if query.get(name)]
        named = [obj for obj in objects if not path.name or obj["metadata"]["name"] == path.name]
        return [obj for obj in named if all(holds(obj) for holds in selects)]


def _rows(plural: str, objects: Sequence[Object], measurement: Measurement | None) -> Iterator[dict[str, Any]]:
    """Yield the metrics of the objects that have been measured, for example pods that run."""
    if measurement is None:
        return
    for obj in objects:
        metadata = obj["metadata"]
        row = {
            "kind": KINDS[plural],
            "apiVersion": _API_VERSION,
            "metadata": {
                name: metadata[name]
                for name in ("name", "namespace", "labels", "creationTimestamp")
                if name in metadata
            },
            "timestamp": timestamp(measurement.time),
            "window": f"{measurement.window_s:.3f}s",
        }
        if plural == "nodes" and (usage := measurement.nodes.get(metadata["name"])):
            yield {**row, "usage": _quantities(usage)}
        elif containers := measurement.containers.get(key_of(obj)):
            usages = [{"name": name, "usage": _quantities(usage)} for name, usage in containers.items()]
            yield {**row, "containers": usages}


def _quantities(usage: Usage) -> dict[str, str]:
    return {"cpu": f"{round(usage.cores * 1e9)}n", "memory": f"{usage.memory_bytes // 1024}Ki"}


def definitions() -> Mapping[str, Schema]:
    """Return the schemas of the kinds by the names of their OpenAPI definitions."""
    usage = record(
        "The usage of resources.",
        cpu=quantity("The processor time in the window, in cores."),
        memory=quantity("The resident memory at the end of the window, in bytes."),
    )
    shared = {
        "timestamp": text("The end of the window.", "date-time"),
        "window": text("The length of the window, such as 10s."),
    }
    containers = listing(
        "The usage of each container.", record("The usage of a container.", name=text("The name."), usage=usage)
    )
    schemas = {
        "NodeMetrics": kind("The usage of a node.", "timestamp window usage", **shared, usage=usage),
        "PodMetrics": kind("The usage of a pod.", "timestamp window containers", **shared, containers=containers),
    }
    lists = {
        f"{name}List": kind(
            f"A list of {name}.", "items", items=listing("The items.", {"$ref": REF + _definition(name)})
        )
        for name in schemas
    }
    return {
        _definition(name): {**schema, GVK: [gvk(GROUP, VERSION, name)]} for name, schema in (schemas | lists).items()
    }


def paths() -> Mapping[str, Any]:
    """Return the paths for OpenAPI documents of version 2 or 3."""
    operations = {}
    for plural, name in KINDS.items():
        scope = "/namespaces/{namespace}" if plural == "pods" else ""
        for path, action in ((f"{scope}/{plural}", "list"), (f"{scope}/{plural}/{{name}}", "get")):
            operations[f"/apis/{_API_VERSION}{path}"] = {"get": operation(action, gvk(GROUP, VERSION, name))}
    return operations


def _definition(name: str) -> str:
    return definition_name(GROUP, VERSION, name)
