"""The inspect API (D29): the state of the running mesh, and answers to questions about it. It stores nothing.

The embedded API serves it on one machine, and an aggregated API server behind an APIService in a cluster.
"""

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from headgate.api import responses
from headgate.api.exposition import Families
from headgate.api.inspect.resource import CREATE, Get, InspectCall, InspectPath, InspectSources
from headgate.api.inspect.tables import table
from headgate.api.status import ApiError, method_not_allowed, not_found
from headgate.errors import HeadgateError, NotFound
from headgate.plan.checks import InvalidCheck
from headgate.plane.inspector import Inspector
from headgate.plane.plans import InvalidChange
from headgate.resources.inspect import GROUP
from headgate.resources.request_spec import BadRequest

_SHAPES = ("Table",)
_SELECTORS = ("labelSelector", "fieldSelector")


class InspectApi:
    """The handler of requests about the running mesh. It answers 501 without an `inspector`. Streams end when `closing` is set.

    `families` returns the metrics for Prometheus. Without it, another address has them.
    """

    def __init__(self, inspector: Inspector | None, closing: asyncio.Event, families: Families | None = None) -> None:
        self._sources = InspectSources(inspector, closing, families)

    async def answer(self, request: Request, path: InspectPath) -> Response:
        """Answer one request. Raises ApiError."""
        _check(request, path)
        try:
            return await _answer(InspectCall(self._sources, request, path))
        except ApiError:
            raise
        except (BadRequest, InvalidChange, InvalidCheck) as error:
            raise ApiError(400, str(error)) from error
        except NotFound as error:
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
    if request.method != "GET":
        raise method_not_allowed(f"{plural} support get and list")
    if responses.query_flag(request.query_params, "watch"):
        raise method_not_allowed(f"{plural} do not support watch; use get or list")
    if given := next((name for name in _SELECTORS if request.query_params.get(name)), ""):
        raise ApiError(400, f"{plural} do not support {given}; omit it")


async def _answer(call: InspectCall) -> Response:
    path, resource = call.path, call.path.resource
    part = resource.subresources.get(path.subresource)
    if part and part.connect:
        return await part.connect(call)
    form = responses.negotiate(call.request.headers.get("accept", ""), _SHAPES)
    respond: Get | None = part.get if part else getattr(resource, path.verb)
    if respond is None:
        raise AssertionError("unreachable: parse_path rejects a path without a function")
    shown = await respond(call)
    if shown is None:
        raise not_found(resource.plural, GROUP, path.name)
    if form.shape and resource.columns and not part:
        objects = shown.items if path.verb == "list" else [shown]  # type: ignore[attr-defined]  # every list has items
        return responses.json_response(table(resource.columns, objects, responses.table_version(form)))
    return responses.json_response(shown, code=201 if path.verb == CREATE else 200)
