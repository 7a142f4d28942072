"""Filters of routes to changes of requests and answers."""

from collections.abc import Iterable, Sequence

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.model.filters import Filters, HeaderEdit, PathEdit, Redirect, Rewrite
from headgate.resources.meta import Key
from headgate.resources.routes import (
    HeaderModifier,
    HTTPHeader,
    PathModifier,
    RequestMirror,
    RequestRedirect,
    RouteFilter,
    URLRewrite,
)

FOR_A_BACKEND = ("RequestHeaderModifier", "ResponseHeaderModifier", "URLRewrite")
FOR_A_RULE = (*FOR_A_BACKEND, "RequestRedirect", "RequestMirror")


def changes(written: Sequence[RouteFilter]) -> Filters:
    """Return what the filters change besides redirects and mirrors. None of a type is written twice."""
    found = Filters()
    for item in written:
        if item.request_header_modifier is not None:
            found = Filters(request=_edit(item.request_header_modifier), response=found.response, rewrite=found.rewrite)
        if item.response_header_modifier is not None:
            found = Filters(request=found.request, response=_edit(item.response_header_modifier), rewrite=found.rewrite)
        if item.url_rewrite is not None:
            found = Filters(request=found.request, response=found.response, rewrite=_rewrite(item.url_rewrite))
    return found


def redirect(written: Sequence[RouteFilter]) -> Redirect | None:
    """Return the redirect among the filters, if there is one."""
    item = next((item.request_redirect for item in written if item.request_redirect is not None), None)
    return None if item is None else _redirect(item)


def copies(written: Sequence[RouteFilter], field: str) -> tuple[tuple[str, RequestMirror], ...]:
    """Return the mirrors among the filters, each with its field path."""
    return tuple(
        (f"{field}[{index}].requestMirror", item.request_mirror)
        for index, item in enumerate(written)
        if item.request_mirror is not None
    )


def fault(about: Key, written: Sequence[RouteFilter], field: str, *, allowed: Sequence[str]) -> Finding | None:
    """Return the first filter that can't be had in a place, if there is one."""
    for index, item in enumerate(written):
        if item.type not in allowed:
            message = f"filters of type {item.type} do not work here; possible are {', '.join(allowed)}"
            place = f"{field}[{index}].type"
            return Finding(about=about, reason=Reason.UNSUPPORTED_VALUE, field=place, message=message)
    return None


def _edit(modifier: HeaderModifier) -> HeaderEdit:
    remove = tuple(dict.fromkeys(name.lower() for name in modifier.remove))
    return HeaderEdit(set=_headers(modifier.set), add=_headers(modifier.add), remove=remove)


def _headers(written: Iterable[HTTPHeader]) -> tuple[tuple[str, str], ...]:
    """Return names in lower case with their values; of several with one name the first counts."""
    found: dict[str, str] = {}
    for item in written:
        found.setdefault(item.name.lower(), item.value)
    return tuple(found.items())


def _rewrite(written: URLRewrite) -> Rewrite:
    return Rewrite(hostname=written.hostname or "", path=_path(written.path))


def _redirect(written: RequestRedirect) -> Redirect:
    return Redirect(
        status=written.status_code,
        scheme=written.scheme or "",
        hostname=written.hostname or "",
        port=written.port or 0,
        path=_path(written.path),
    )


def _path(written: PathModifier | None) -> PathEdit | None:
    if written is None:
        return None
    if written.type == "ReplaceFullPath":
        return PathEdit(kind="full", value=written.replace_full_path or "")
    return PathEdit(kind="prefix", value=written.replace_prefix_match or "")
