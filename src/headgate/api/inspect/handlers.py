"""The inspect API (D29): the state of the running mesh, and plans of changes, for commands and plugins. It stores nothing.

The embedded API serves it on one machine, and an aggregated API server behind an APIService in a cluster.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from headgate.api import responses
from headgate.api.exposition import Families, exposition
from headgate.api.inspect import history as inspect_history
from headgate.api.inspect import plans as inspect_plans
from headgate.api.inspect import tables as inspect_tables
from headgate.api.inspect import tap as inspect_tap
from headgate.api.inspect.query import CREATE, METRICS, TAP, TAP_VALUES, InspectPath
from headgate.api.request_body import read_body
from headgate.api.status import ApiError, method_not_allowed, not_found, unsupported_value
from headgate.errors import HeadgateError, NotFound, OutsideMesh
from headgate.plane.history import explain_at
from headgate.plane.inspector import ConfigQuery, Inspector
from headgate.resources.inspect import API_VERSION, GROUP, TYPES, ObjectName, PodSidecar, ProxyConfig
from headgate.resources.mesh_status import MESH
from headgate.resources.request_spec import BadRequest
from headgate.resources.request_spec import RequestSpec as Sent
from headgate.resources.revisions import RevisionList

_SHAPES = ("Table",)
_SELECTORS = ("labelSelector", "fieldSelector")


class InspectApi:
    """The handler of requests about the running mesh. It answers 501 without an `inspector`. Streams end when `closing` is set.

    `families` returns the metrics for Prometheus. Without it, another address has them.
    """

    def __init__(self, inspector: Inspector | None, closing: asyncio.Event, families: Families | None = None) -> None:
        self._inspector = inspector
        self._closing = closing
        self._families = families

    async def answer(self, request: Request, path: InspectPath) -> Response:
        """Answer one request. Raises ApiError."""
        query = request.query_params
        if path.verb == CREATE:
            return await self._plan(request)
        if request.method != "GET":
            raise method_not_allowed(f"{GROUP} supports get and list")
        if responses.query_flag(query, "watch"):
            raise method_not_allowed(f"{GROUP} does not support watch; use get or list")
        if given := next((name for name in _SELECTORS if query.get(name)), ""):
            raise ApiError(400, f"{path.resource.plural}.{GROUP} do not support {given}; omit it")
        if path.subresource == METRICS:
            return await self._metrics(path)
        form = responses.negotiate(request.headers.get("accept", ""), _SHAPES)
        if self._inspector is None:
            raise ApiError(501, "no mesh is running; start one with `headgate up`")
        if path.subresource in (TAP, TAP_VALUES):
            return await inspect_tap.answer(self._inspector, path, query, self._closing)
        found = await _result(self._inspector, path, query)
        columns = inspect_tables.columns(path.resource) if form.shape and not path.subresource else None
        if columns is None:
            return responses.json_response(found.whole)
        return responses.json_response(inspect_tables.table(columns, found.items, responses.table_version(form)))

    async def _plan(self, request: Request) -> Response:
        """Answer a PlanQuery with the plan; nothing is stored."""
        if request.method != "POST":
            raise method_not_allowed(f"plans.{GROUP} support create only; use `headgate plan`")
        if self._inspector is None:
            raise ApiError(501, "no mesh is running; start one with `headgate up`")
        return responses.json_response(await inspect_plans.answer(self._inspector, await read_body(request)))

    async def _metrics(self, path: InspectPath) -> Response:
        if path.name != MESH:
            raise not_found(path.resource.plural, GROUP, path.name)
        if self._families is None:
            raise ApiError(
                501, "on one machine, `headgate up --metrics-address ADDRESS` serves the metrics at /metrics"
            )
        return await exposition(self._families)


class _Result(NamedTuple):
    """The object of a response, and its items for a Table."""

    whole: msgspec.Struct | Mapping[str, Any]
    items: Sequence[Any] = ()


async def _result(inspector: Inspector, path: InspectPath, query: QueryParams) -> _Result:
    """Return the object or the list at a path. Raises ApiError."""
    whole: msgspec.Struct | Mapping[str, Any]
    match path.resource.plural, path.subresource:
        case "proxies", "config":
            whole = await _config(inspector, path, query)
        case "pods", _:
            whole = await _pod_sidecar(inspector, path)
        case "explanations", _:
            whole = await _explanation(inspector, path, query)
        case "proxies", _:
            return _proxies(inspector, path)
        case "revisions", _:
            return _revisions(inspector, path, query)
        case (("findings" | "callrecords"), _):
            return await _in_namespace(inspector, path)
        case _:
            return await _status(inspector, path)
    return _Result(whole)


def _revisions(inspector: Inspector, path: InspectPath, query: QueryParams) -> _Result:
    found = inspect_history.answer(inspector.live_state, path, query)
    return _Result(found, found.items if isinstance(found, RevisionList) else [found])


def _proxies(inspector: Inspector, path: InspectPath) -> _Result:
    if path.name:
        named = inspector.proxy(ObjectName(namespace=path.namespace, name=path.name))
        if named is None:
            raise not_found(path.resource.plural, GROUP, path.name)
        return _Result(named, [named])
    found = [item for item in inspector.proxies() if path.namespace in ("", item.metadata.namespace)]
    return _Result(_list(path, found), found)


async def _config(inspector: Inspector, path: InspectPath, query: QueryParams) -> ProxyConfig:
    """Return a proxy's configuration for the parameters `type`, `name` and `content`. Raises ApiError 400, 404."""
    type = query.get("type", "")
    if type not in ("", *TYPES):
        raise ApiError(400, f"{unsupported_value('type', type, TYPES)}; omit it for all types")
    proxy = ObjectName(namespace=path.namespace, name=path.name)
    found = await inspector.config(
        ConfigQuery(proxy, type, query.get("name", ""), responses.query_flag(query, "content"))
    )
    if found is None:
        raise not_found(path.resource.plural, GROUP, path.name)
    return found


async def _pod_sidecar(inspector: Inspector, path: InspectPath) -> PodSidecar:
    try:
        return await inspector.pod_sidecar(ObjectName(namespace=path.namespace, name=path.name))
    except OutsideMesh as error:
        raise ApiError(404, str(error)) from None
    except NotFound:
        raise ApiError(404, f"Pod {path.namespace}/{path.name} not found") from None


async def _explanation(inspector: Inspector, path: InspectPath, query: QueryParams) -> Mapping[str, Any]:
    """Explain the request of the parameters `url`, `method`, `header`, `from` and `via`. Raises ApiError.

    `header` is `name: value` and can be repeated. With the number of a revision in `at`, the objects are those of then.
    """
    url = query.get("url", "")
    if not url or not path.namespace:
        raise ApiError(
            400, "the namespace or the URL is missing; use namespaces/NAMESPACE/explanations?url=http://website:8080/"
        )
    headers = tuple(_header(text) for text in query.getlist("header"))
    method, caller, via = query.get("method") or "GET", query.get("from", ""), query.get("via", "")
    sent = Sent(url=url, method=method, headers=headers, caller=caller, via=via, namespace=path.namespace)
    at = inspect_history.number_in(query.get("at") or "0", "at")
    try:
        found = await (explain_at(inspector.live_state, sent, at) if at else inspector.explain(sent))
    except BadRequest as error:
        raise ApiError(400, str(error)) from error
    except NotFound as error:
        raise ApiError(404, str(error)) from error
    except HeadgateError as error:
        raise ApiError(503, str(error)) from error
    return {"kind": path.resource.kind, "apiVersion": API_VERSION, **msgspec.to_builtins(found)}


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise ApiError(400, f"header: Invalid value: {text!r}: must be 'name: value'")
    return name.strip(), value.strip()


async def _in_namespace(inspector: Inspector, path: InspectPath) -> _Result:
    """Return the findings or recorded calls of a namespace, or all of them."""
    try:
        every = inspector.calls() if path.resource.plural == "callrecords" else await inspector.findings()
    except HeadgateError as error:
        raise ApiError(503, str(error)) from error
    items = tuple(item for item in every.items if path.namespace in ("", item.metadata.namespace))
    return _Result(msgspec.structs.replace(every, items=items), items)


async def _status(inspector: Inspector, path: InspectPath) -> _Result:
    if path.name not in ("", MESH):
        raise not_found(path.resource.plural, GROUP, path.name)
    found = await inspector.status()
    return _Result(found if path.name else _list(path, [found]), [found])


def _list(path: InspectPath, items: Sequence[msgspec.Struct]) -> Mapping[str, Any]:
    return {"kind": f"{path.resource.kind}List", "apiVersion": API_VERSION, "metadata": {}, "items": items}
