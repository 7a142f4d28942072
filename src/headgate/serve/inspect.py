"""The inspect API (D29): the running mesh's own account of itself, read-only, for commands, plugins and pages.

The same objects answer on one machine, behind the embedded API's token, and in a cluster, behind an APIService. What
answers is a port: whoever hosts the plane passes its questions in.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from headgate.resources.inspect import API_VERSION, GROUP, TYPES, ObjectName, Proxy, ProxyConfig
from headgate.serve import inspect_tables, media, paths
from headgate.serve.inspect_query import Asked
from headgate.serve.status import ApiError

_SHAPES = ("Table",)
_SELECTORS = ("labelSelector", "fieldSelector")


class ConfigAsked(NamedTuple):
    """Which resources of which proxy: of one type or all, of one name or all, with their content or without."""

    proxy: ObjectName
    type: str = ""
    name: str = ""
    content: bool = False


class Questions(Protocol):
    """What answers about a running mesh."""

    def proxies(self) -> Sequence[Proxy]:
        """Return every proxy."""

    async def config(self, asked: ConfigAsked) -> ProxyConfig | None:
        """Return what a proxy is to hold and what it acknowledged; none when there is no such proxy."""


class InspectApi:
    """Answers questions about the running mesh. Without a plane it exists, and says so (501)."""

    def __init__(self, questions: Questions | None) -> None:
        self._questions = questions

    async def answer(self, request: Request, asked: Asked) -> Response:
        """Answer one request. Raises ApiError."""
        query = request.query_params
        if request.method != "GET":
            raise ApiError(405, f"{request.method} is not possible on {GROUP}: it can be read with get and list only")
        if paths.flag(query, "watch"):
            raise ApiError(405, f"{GROUP} answers about one moment and can't be watched: get it again")
        if given := next((name for name in _SELECTORS if query.get(name)), ""):
            raise ApiError(400, f"{asked.resource.plural} can't be selected by {given}; leave it out")
        form = media.wanted_form(request.headers.get("accept", ""), _SHAPES)
        if self._questions is None:
            raise ApiError(501, "no mesh runs behind this API; start one with `headgate up`")
        if asked.subresource:
            return media.answer(await _config(self._questions, asked, query))
        found = _proxies(self._questions, asked)
        if form.shape:
            return media.answer(inspect_tables.table(asked.resource, found, media.table_version(form)))
        return media.answer(_list(asked, found) if not asked.name else found[0])


def _proxies(questions: Questions, asked: Asked) -> Sequence[Proxy]:
    found = [item for item in questions.proxies() if asked.namespace in ("", item.metadata.namespace)]
    if not asked.name:
        return found
    named = [item for item in found if item.metadata.name == asked.name]
    if not named:
        raise missing(asked)
    return named


async def _config(questions: Questions, asked: Asked, query: Mapping[str, str]) -> ProxyConfig:
    """Read `type`, `name` and `content`. Raises ApiError 400, 404."""
    type = query.get("type", "")
    if type not in ("", *TYPES):
        raise ApiError(400, f"type must be one of {', '.join(TYPES)}, not {type!r}; leave it out for all")
    proxy = ObjectName(namespace=asked.namespace, name=asked.name)
    found = await questions.config(ConfigAsked(proxy, type, query.get("name", ""), paths.flag(query, "content")))
    if found is None:
        raise missing(asked)
    return found


def missing(asked: Asked) -> ApiError:
    """Answer for an object that does not exist."""
    plural = asked.resource.plural
    details = {"name": asked.name, "group": GROUP, "kind": plural}
    return ApiError(404, f'{plural}.{GROUP} "{asked.name}" not found', details=details)


def _list(asked: Asked, items: Sequence[msgspec.Struct]) -> Mapping[str, Any]:
    return {"kind": f"{asked.resource.kind}List", "apiVersion": API_VERSION, "metadata": {}, "items": items}
