"""Translate the filters of routes to changes to requests and responses."""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import structs

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.model.applied_filters import DEFAULT_PORTS
from headgate.model.cors import Cors
from headgate.model.requests import Filters, HeaderEdit, PathEdit, Redirect, Rewrite
from headgate.resources.gateway_api.routes import (
    HeaderModifier,
    HTTPExternalAuth,
    HTTPHeader,
    PathModifier,
    RequestMirror,
    RouteFilter,
)
from headgate.resources.meta import Key

FOR_A_BACKEND = ("RequestHeaderModifier", "ResponseHeaderModifier", "URLRewrite", "RequestRedirect")
FOR_A_RULE = (*FOR_A_BACKEND, "RequestMirror", "CORS", "ExternalAuth")


def changes(written: Sequence[RouteFilter]) -> Filters:
    """Return the filters' changes, without redirects and mirrors. Each filter type occurs at most once."""
    request = next(
        (route_filter.request_header_modifier for route_filter in written if route_filter.request_header_modifier), None
    )
    response = next(
        (route_filter.response_header_modifier for route_filter in written if route_filter.response_header_modifier),
        None,
    )
    rewrite = next((route_filter.url_rewrite for route_filter in written if route_filter.url_rewrite), None)
    return Filters(
        request=_edit(request) if request else None,
        response=_edit(response) if response else None,
        rewrite=Rewrite(hostname=rewrite.hostname or "", path=_path(rewrite.path)) if rewrite else None,
    )


def divided(rule: Filters, backends: Sequence[Filters]) -> tuple[Filters, Sequence[Filters]]:
    """Divide path rewrites between a rule and its backends, so that each request has at most one.

    The rewrite of a backend replaces that of the rule. If the path is the same for all backends, the rule has it.
    """
    paths = [_new_path(own) or _new_path(rule) for own in backends]
    if not any(map(_new_path, backends)):
        return rule, backends
    common = paths[0] if len(set(paths)) == 1 else None
    own = [_with_path(own, None if common else path) for own, path in zip(backends, paths, strict=True)]
    return _with_path(rule, common), own


def _new_path(filters: Filters) -> PathEdit | None:
    return filters.rewrite.path if filters.rewrite else None


def _with_path(filters: Filters, path: PathEdit | None) -> Filters:
    hostname = filters.rewrite.hostname if filters.rewrite else ""
    return structs.replace(filters, rewrite=Rewrite(hostname=hostname, path=path) if hostname or path else None)


def redirect(written: Sequence[RouteFilter]) -> Redirect | None:
    """Return the redirect among the filters; None without one."""
    request_redirect = next(
        (route_filter.request_redirect for route_filter in written if route_filter.request_redirect is not None), None
    )
    if request_redirect is None:
        return None
    return Redirect(
        status=request_redirect.status_code,
        scheme=request_redirect.scheme or "",
        hostname=request_redirect.hostname or "",
        port=request_redirect.port or 0,
        path=_path(request_redirect.path),
    )


def cors(written: Sequence[RouteFilter]) -> Cors | None:
    """Return the policy for requests of other origins among the filters; None without one."""
    policy = next((route_filter.cors for route_filter in written if route_filter.cors is not None), None)
    if policy is None:
        return None
    return Cors(
        origins=tuple(map(_origin, policy.allow_origins)),
        methods=policy.allow_methods,
        headers=policy.allow_headers,
        exposed=policy.expose_headers,
        credentials=policy.allow_credentials,
        max_age=policy.max_age,
    )


def external_auth(written: Sequence[RouteFilter], field: str) -> tuple[str, HTTPExternalAuth] | None:
    """Return the authorization server among the filters with its field path; None without one."""
    return next(
        (
            (f"{field}[{index}].externalAuth", route_filter.external_auth)
            for index, route_filter in enumerate(written)
            if route_filter.external_auth is not None
        ),
        None,
    )


def _origin(written: str) -> str:
    """Return an origin as browsers send it: in lower case, and without the default port of its scheme."""
    origin = written.lower()
    scheme = origin.partition(":")[0]
    return origin.removesuffix(f":{DEFAULT_PORTS[scheme]}") if scheme in DEFAULT_PORTS else origin


def request_mirrors(written: Sequence[RouteFilter], field: str) -> tuple[tuple[str, RequestMirror], ...]:
    """Return the mirrors among the filters, each with its field path."""
    return tuple(
        (f"{field}[{index}].requestMirror", route_filter.request_mirror)
        for index, route_filter in enumerate(written)
        if route_filter.request_mirror is not None
    )


def faults(about: Key, written: Sequence[RouteFilter], field: str, *, allowed: Sequence[str]) -> Iterator[Finding]:
    """Yield a finding for each filter whose type is not allowed here."""
    for index, route_filter in enumerate(written):
        if route_filter.type not in allowed:
            message = f"filter type {route_filter.type} is not supported here; supported types: {', '.join(allowed)}"
            yield Finding(about, Reason.UNSUPPORTED_VALUE, f"{field}[{index}].type", message)


def _edit(modifier: HeaderModifier) -> HeaderEdit:
    remove = tuple(dict.fromkeys(name.lower() for name in modifier.remove))
    return HeaderEdit(set=_headers(modifier.set), add=_headers(modifier.add), remove=remove)


def _headers(written: Iterable[HTTPHeader]) -> tuple[tuple[str, str], ...]:
    """Return header names in lower case with their values; the first value of each name is used."""
    values: dict[str, str] = {}
    for header in written:
        values.setdefault(header.name.lower(), header.value)
    return tuple(values.items())


def _path(written: PathModifier | None) -> PathEdit | None:
    if written is None:
        return None
    if written.type == "ReplaceFullPath":
        return PathEdit(kind="full", value=written.replace_full_path or "")
    return PathEdit(kind="prefix", value=written.replace_prefix_match or "")
