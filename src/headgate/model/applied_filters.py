"""Apply the filters of a route and its shares to requests, and its redirect."""

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import structs

from headgate.model.host_names import without_port
from headgate.model.requests import Filters, HeaderEdit, Headers, Path, PathEdit, Redirect, Request
from headgate.model.routing import ExternalAuth, Route

_HOST, _AUTHORIZATION = "host", "authorization"
_CHECK = "/envoy.service.auth.v3.Authorization/Check"
DEFAULT_PORTS: Mapping[str, int] = MappingProxyType({"http": 80, "https": 443})


def backend_request(request: Request, route: Route, share: Filters) -> Request:
    """Return the request that a backend receives; filters of the route apply first, then filters of the share."""
    for filters in (route.filters, share):
        request = _edited(request, filters, route.match.path)
    return request


def authorization_request(auth: ExternalAuth, request: Request) -> Request:
    """Return the request that a proxy sends to an authorization server to decide about a request (GEP-1494)."""
    if auth.protocol == "GRPC":
        return Request(method="POST", authority="authorization", target=_CHECK, version="2")
    named = {_AUTHORIZATION, *auth.headers}
    return structs.replace(
        request,
        target=f"/{auth.path}{request.target}" if auth.path else request.target,
        headers=tuple(header for header in request.headers if header[0].lower() in named),
    )


def redirect_location(request: Request, route: Route, redirect: Redirect, scheme: str, port: int) -> str:
    """Return the URL to which a route or one of its shares redirects a request.

    `scheme` and `port` come from the listener. The port in the URL is the redirect's port, else the default port of
    the redirect's scheme, else the listener's port. A default port is omitted from the URL (HTTPRequestRedirectFilter).
    """
    target_scheme = redirect.scheme or scheme
    number = redirect.port or (DEFAULT_PORTS.get(target_scheme, 0) if redirect.scheme else port)
    host = redirect.hostname or without_port(request.authority)
    authority = host if number == DEFAULT_PORTS.get(target_scheme) else f"{host}:{number}"
    target = _with_path(request.target, redirect.path, route.match.path) if redirect.path else request.target
    return f"{target_scheme}://{authority}{target}"


def _edited(request: Request, filters: Filters, matched: Path | None) -> Request:
    edit, rewrite = filters.request or HeaderEdit(), filters.rewrite
    named = [value for name, value in (*edit.set, *edit.add) if name.lower() == _HOST]
    host = (rewrite.hostname if rewrite else "") or "".join(named[:1])
    path = rewrite.path if rewrite else None
    return structs.replace(
        request,
        authority=host or request.authority,
        target=_with_path(request.target, path, matched) if path else request.target,
        headers=_with_headers(request.headers, edit),
    )


def _with_headers(headers: Headers, edit: HeaderEdit) -> Headers:
    gone = {name.lower() for name in (*(name for name, _ in edit.set), *edit.remove)}
    new = tuple(header for header in (*edit.set, *edit.add) if header[0].lower() != _HOST)
    return (*(header for header in headers if header[0].lower() not in gone), *new)


def _with_path(target: str, edit: PathEdit, matched: Path | None) -> str:
    """Return a request target (`/old?q=1`) with the path edited and the same query (`/new?q=1`)."""
    path, mark, query = target.partition("?")
    new = edit.value if edit.value.startswith("/") else f"/{edit.value}"
    return (new if edit.kind == "full" else _with_prefix(path, new.rstrip("/"), matched)) + mark + query


def _with_prefix(path: str, new: str, matched: Path | None) -> str:
    """Return the path with the matched prefix replaced by `new`: `/v1/items` with `/v1` and `/v2` is `/v2/items`.

    Without a matched prefix, `new` is put before the complete path, with one slash between them.
    """
    old = matched.value.rstrip("/") if matched and matched.kind == "prefix" else ""
    rest = path.removeprefix(old)
    return f"{new}{rest}" if old and new else f"{new}/{rest.lstrip('/')}"
