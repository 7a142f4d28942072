"""Filters of routes and of their shares as rules of a backend section.

The rules run in order: those of the route, then those of the share (HTTPRouteFilter). The original path and the
backend's response pass all of them.
"""

from collections.abc import Iterator

from headgate.model.requests import Filters, HeaderEdit, Path, PathEdit, Redirect
from headgate.render.edits import HOST, host_of, new_path, path_edits, redirect_origin, replaced_start
from headgate.render.haproxy.words import literal, word
from headgate.render.proxy_ports import ProxyPort

_REST = r"\1"


def rules(filters: Filters, matched: Path | None) -> Iterator[str]:
    """Yield the rules of filters; `matched` is the path condition of the route."""
    yield from _edits("http-request", filters.request or HeaderEdit())
    if host := host_of((filters,)):
        yield f"http-request set-header host {literal(host)}"
    for edit in path_edits((filters,)):
        yield _path_rule(edit, matched)
    yield from _edits("http-response", filters.response or HeaderEdit())


def _edits(kind: str, edit: HeaderEdit) -> Iterator[str]:
    for name in edit.remove:
        if name.lower() != HOST:
            yield f"{kind} del-header {word(name)}"
    for action, pairs in (("set-header", edit.set), ("add-header", edit.add)):
        for name, value in pairs:
            if name.lower() != HOST:
                yield f"{kind} {action} {word(name)} {literal(value)}"


def _path_rule(edit: PathEdit, matched: Path | None) -> str:
    if edit.kind == "full":
        return f"http-request set-path {literal(new_path(edit))}"
    old, new = replaced_start(edit, matched)
    escaped = new.replace("\\", r"\\")
    return f"http-request replace-path {word(f'^{old}(.*)$')} {literal(escaped + _REST)}"


def redirect_rules(redirect: Redirect, matched: Path | None, port: ProxyPort) -> Iterator[str]:
    """Yield the rules that answer requests to a port with a redirect."""
    if redirect.path:
        yield _path_rule(redirect.path, matched)
    host = redirect.hostname.replace("%", "%%") or "%[var(txn.host)]"
    url = f"{redirect_origin(redirect, host, port)}%[pathq]"
    yield f"http-request redirect location {word(url)} code {redirect.status}"
