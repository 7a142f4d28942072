"""Render route filters of the Gateway API: header modifiers, redirects and rewrites."""

import re
from collections.abc import Iterable
from typing import TypedDict

from headgate.envoy import draw, pb
from headgate.model.applied_filters import DEFAULT_PORTS
from headgate.model.requests import Filters, HeaderEdit, Path, PathEdit, Redirect, Rewrite
from headgate.resources.meta import Value

_HOST = "host"
_ANYTHING = "^/.*$"
_NO_EDIT = HeaderEdit()
_OMIT_PORT = """
function envoy_on_response(response)
  local headers = response:headers()
  local location = headers:get("location")
  if location then headers:replace("location", (string.gsub(location, "^(%%a+://[^/?]*):%d", "%%1"))) end
end
"""


class HeaderFields(TypedDict):
    """The fields for header changes that Envoy's routes and weighted clusters have in common."""

    request_headers_to_add: list[pb.HeaderValueOption]
    request_headers_to_remove: list[str]
    response_headers_to_add: list[pb.HeaderValueOption]
    response_headers_to_remove: list[str]


class PathFields(TypedDict, total=False):
    """The fields of Envoy's routes that change a path; at most one of them is set."""

    prefix_rewrite: str
    regex_rewrite: pb.RegexMatchAndSubstitute


class ListenerInfo(Value, frozen=True, kw_only=True):
    """The scheme, port and host of a listener. They complete a redirect that lacks these fields.

    `host` is empty if a route is for many hosts.
    """

    scheme: str
    port: int
    host: str = ""


def header_fields(filters: Filters) -> HeaderFields:
    """Return the header changes of a route or of one share, except those of Host (`rewritten_host`)."""
    request, response = filters.request or _NO_EDIT, filters.response or _NO_EDIT
    return HeaderFields(
        request_headers_to_add=_added(request),
        request_headers_to_remove=[name for name in request.remove if name.lower() != _HOST],
        response_headers_to_add=_added(response),
        response_headers_to_remove=list(response.remove),
    )


def rewritten_host(filters: Filters) -> str:
    """Return the new Host header; empty if it is unchanged. Envoy allows no other change to Host."""
    if filters.rewrite and filters.rewrite.hostname:
        return filters.rewrite.hostname
    request = filters.request or _NO_EDIT
    return next((value for name, value in (*request.set, *request.add) if name.lower() == _HOST), "")


def merge(first: Filters, then: Filters) -> Filters:
    """Merge the header and host changes of a route (`first`) and of one share (`then`).

    The share's changes come last, as the Gateway API requires; Envoy would apply them first.
    """
    hostname = rewritten_host(then) or rewritten_host(first)
    return Filters(
        request=_both(first.request or _NO_EDIT, then.request or _NO_EDIT),
        response=_both(first.response or _NO_EDIT, then.response or _NO_EDIT),
        rewrite=Rewrite(hostname=hostname) if hostname else None,
    )


def _both(first: HeaderEdit, then: HeaderEdit) -> HeaderEdit:
    over = {name.lower() for name in (*dict(then.set), *then.remove)}
    return HeaderEdit(
        set=(*(header for header in first.set if header[0].lower() not in over), *then.set),
        add=(*(header for header in first.add if header[0].lower() not in over), *then.add),
        remove=tuple(dict.fromkeys((*first.remove, *then.remove))),
    )


def _added(edit: HeaderEdit) -> list[pb.HeaderValueOption]:
    actions = pb.HeaderValueOption.HeaderAppendAction
    return [
        *_options(edit.set, actions.OVERWRITE_IF_EXISTS_OR_ADD),
        *_options(edit.add, actions.APPEND_IF_EXISTS_OR_ADD),
    ]


def _options(
    headers: Iterable[tuple[str, str]], action: pb.HeaderValueOption.HeaderAppendAction
) -> list[pb.HeaderValueOption]:
    return [
        pb.HeaderValueOption(
            header=pb.HeaderValue(key=name, value=_literal(value)), append_action=action, keep_empty_value=not value
        )
        for name, value in headers
        if name.lower() != _HOST
    ]


def _literal(text: str) -> str:
    """Escape a header value: in Envoy, `%` begins a command, and `%%` means a percent sign."""
    return text.replace("%", "%%")


def path_fields(edit: PathEdit | None, matched: Path | None) -> PathFields:
    """Return Envoy's fields for a path change (HTTPPathModifier); `matched` is the path condition of the route."""
    if edit is None:
        return PathFields()
    if edit.kind == "full":
        return PathFields(regex_rewrite=_replace(_ANYTHING, _rooted(edit.value)))
    prefix = matched.value.rstrip("/") if matched and matched.kind == "prefix" else ""
    replacement = _rooted(edit.value).rstrip("/")
    if prefix and replacement:
        return PathFields(prefix_rewrite=replacement)
    # Replace all slashes after the prefix by one slash. Otherwise the new path would begin with none or with two.
    return PathFields(regex_rewrite=_replace(f"^{re.escape(prefix)}/*", f"{replacement}/"))


def _rooted(path: str) -> str:
    return path if path.startswith("/") else f"/{path}"


def _replace(pattern: str, text: str) -> pb.RegexMatchAndSubstitute:
    escaped = text.replace("\\", r"\\")
    return pb.RegexMatchAndSubstitute(pattern=pb.RegexMatcher(regex=pattern), substitution=escaped)


def complete_redirect(redirect: Redirect, listener: ListenerInfo) -> Redirect:
    """Complete a redirect with its scheme and, if needed, with port and host (HTTPRequestRedirectFilter).

    The port is that of the redirect, else the default port of the redirect's scheme, else the listener's port. The
    default port of a scheme is omitted. Envoy keeps the request's port unless the redirect has a host or a port. So without a host,
    the redirect has the default port, which `omit_default_port` removes from the response.
    """
    scheme = redirect.scheme or listener.scheme
    usual = DEFAULT_PORTS.get(scheme, 0)
    port = redirect.port or (usual if redirect.scheme else 0) or listener.port
    hostname = redirect.hostname or (listener.host if port == usual else "")
    if port == usual and hostname:
        port = 0
    return Redirect(status=redirect.status, scheme=scheme, hostname=hostname, port=port, path=redirect.path)


def omit_default_port(route: pb.Route, redirect: Redirect) -> None:
    """Omit the default port of the scheme from the URL of a redirect that `complete_redirect` returned."""
    if redirect.port and redirect.port == DEFAULT_PORTS.get(redirect.scheme):
        draw.run(route, _OMIT_PORT % redirect.port)


def redirect_action(redirect: Redirect, matched: Path | None) -> pb.RedirectAction:
    """Return the action of a redirect that `complete_redirect` returned."""
    codes = pb.RedirectAction.RedirectResponseCode
    code = {
        301: codes.MOVED_PERMANENTLY,
        302: codes.FOUND,
        303: codes.SEE_OTHER,
        307: codes.TEMPORARY_REDIRECT,
        308: codes.PERMANENT_REDIRECT,
    }[redirect.status]
    return pb.RedirectAction(
        scheme_redirect=redirect.scheme,
        host_redirect=redirect.hostname,
        port_redirect=redirect.port,
        response_code=code,
        **path_fields(redirect.path, matched),
    )
