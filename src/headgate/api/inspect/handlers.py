"""The inspect API (D29): the state of the running mesh, and answers to questions about it. It stores nothing.

The embedded API serves it on one machine, and an aggregated API server behind an APIService in a cluster.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import structs
from starlette.requests import Request
from starlette.responses import Response

from headgate.api import responses
from headgate.api.exposition import Families
from headgate.api.http_server import StreamResponse
from headgate.api.inspect.resource import (
    CREATE,
    WATCH,
    Get,
    InspectCall,
    InspectPath,
    InspectResource,
    InspectSources,
)
from headgate.api.inspect.tables import table
from headgate.api.inspect.watches import LONGEST_S, Form, Identity, WatchedObjects, Watches, WatchRequest
from headgate.api.selectors import field_selector
from headgate.api.status import ApiError, method_not_allowed, not_found
from headgate.errors import HeadgateError, NoCounts, NotFound
from headgate.plan.checks import InvalidCheck
from headgate.plane.inspector import Inspector
from headgate.plane.plans import InvalidChange
from headgate.resources.inspect import API_VERSION, GROUP
from headgate.resources.request_spec import BadRequest

_SHAPES = ("Table",)


class InspectApi:
    """The handler of requests about the running mesh. It answers 501 without an `inspector`. Streams end when `closing` is set.

    `families` returns the metrics for Prometheus. Without it, another address has them.
    """

    def __init__(self, inspector: Inspector | None, closing: asyncio.Event, families: Families | None = None) -> None:
        self._sources = InspectSources(inspector, closing, Watches(), families)

    async def answer(self, request: Request, path: InspectPath) -> Response:
        """Answer one request. Raises ApiError."""
        _check(request, path)
        try:
            return await _answer(InspectCall(self._sources, request, path))
        except ApiError:
            raise
        except (BadRequest, InvalidChange, InvalidCheck) as error:
            raise ApiError(400, str(error)) from error
        except (NotFound, NoCounts) as error:
            raise ApiError(404, str(error)) from error
        except HeadgateError as error:
            raise ApiError(503, str(error)) from error


def _check(request: Request, path: InspectPath) -> None:
    """Check that a path supports the method and the parameters of a request. Raises ApiError 400, 405."""
    plural = f"{path.resource.plural}.{GROUP}"
    if path.verb == CREATE:
        if request.method != "POST":
            raise method_not_allowed(f"{plural} support create only")
        return
    query = request.query_params
    if request.method != "GET":
        raise method_not_allowed(f"{plural} support get, list and watch")
    if responses.query_flag(query, WATCH) and not path.watch:
        raise method_not_allowed(f"this path of {GROUP} does not support watch; use get")
    if query.get("labelSelector"):
        raise ApiError(400, f"{plural} do not support labelSelector; omit it")
    if path.name and query.get("fieldSelector"):
        raise ApiError(400, f"fieldSelector is for lists and watches of {plural}; omit it")


async def _answer(call: InspectCall) -> Response:
    path, resource = call.path, call.path.resource
    part = resource.subresources.get(path.subresource)
    if part and part.connect:
        return await part.connect(call)
    form = responses.negotiate(call.request.headers.get("accept", ""), _SHAPES)
    if path.watch:
        return await _watch(call, form)
    respond: Get | None = part.get if part else getattr(resource, path.verb)
    if respond is None:
        raise AssertionError("unreachable: parse_path rejects a path without a function")
    shown = await respond(call)
    if shown is None:
        raise not_found(resource.plural, GROUP, path.name)
    metadata: Mapping[str, Any] = {}
    if path.verb == "list":
        objects, selects = WatchedObjects(_items(shown), resource.identity), _selection(call)
        call.sources.watches.listed(call.watched, objects)
        metadata = {"resourceVersion": objects.version}
        items = tuple(obj for obj in _items(shown) if selects(resource.identity(obj)))
        shown = structs.replace(shown, metadata=metadata, items=items)
    if form.shape and resource.columns and not part:
        rows = _items(shown) if path.verb == "list" else [shown]
        return responses.json_response(table(resource.columns, rows, responses.table_version(form), metadata))
    return responses.json_response(shown, code=201 if path.verb == CREATE else 200)


def _items(every: Any) -> Sequence[Any]:
    """Return the objects of a list."""
    objects: Sequence[Any] = every.items
    return objects


async def _watch(call: InspectCall, form: responses.Representation) -> Response:
    """Stream the changes to the objects of a path. Raises HeadgateError, ApiError 400."""
    path, resource, query = call.path, call.path.resource, call.query

    async def read() -> WatchedObjects:
        respond: Get | None = resource.get if path.name else resource.list
        if respond is None:
            raise AssertionError("unreachable: parse_path rejects a path without a function")
        try:
            shown = await respond(call)
        except NotFound:
            shown = None
        objects = () if shown is None else [shown] if path.name else _items(shown)
        return WatchedObjects(objects, resource.identity)

    first_events = query.get("sendInitialEvents") == "true"
    bookmarks = responses.query_flag(query, "allowWatchBookmarks")
    seconds = responses.int_parameter(query, "timeoutSeconds") or LONGEST_S
    options = WatchRequest(
        form=_form(resource, form),
        kind={"kind": resource.kind, "apiVersion": API_VERSION},
        selects=_selection(call),
        version="" if first_events else query.get("resourceVersion", ""),
        bookmarks=bookmarks,
        initial_end=first_events and bookmarks,
        seconds=min(seconds, LONGEST_S),
        authorize=call.authorize,
        user=call.user,
    )
    lines = await call.sources.watches.watch(call.watched, read, options)
    return StreamResponse(lines, call.sources.closing, media_type=responses.JSON)


def _form(resource: InspectResource, form: responses.Representation) -> Form:
    """Return the form of objects in events: a Table with one row for kubectl, or the object itself."""
    if not form.shape or not resource.columns:
        return Form("", lambda obj: obj)
    version = responses.table_version(form)
    return Form(f"Table/{version}", lambda obj: table(resource.columns, [obj], version))


def _selection(call: InspectCall) -> Callable[[Identity], bool]:
    """Return which objects the field selector of a request selects, by namespace and name. Raises ApiError 400."""
    text = call.query.get("fieldSelector", "")
    if not text:
        return lambda _: True
    selects = field_selector(text)
    return lambda identity: selects({"metadata": {"namespace": identity[0], "name": identity[1]}})
