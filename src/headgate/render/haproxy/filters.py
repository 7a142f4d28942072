"""Filters of routes and of their shares as rules of a backend section.

The rules run in order: those of the route, then those of the share (HTTPRouteFilter). The original path and the
backend's response pass all of them.
"""

import re
from collections.abc import Iterator

from headgate.model.applied_filters import DEFAULT_PORTS
from headgate.model.requests import Filters, HeaderEdit, Path, PathEdit, Redirect
from headgate.render.haproxy.words import literal, word
from headgate.render.header_edits import HOST, host_of, path_edits

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
    new = edit.value if edit.value.startswith("/") else f"/{edit.value}"
    if edit.kind == "full":
        return f"http-request set-path {literal(new)}"
    old = matched.value.rstrip("/") if matched and matched.kind == "prefix" else ""
    new = new.rstrip("/").replace("\\", r"\\")
    before = f"^(?:{re.escape(old)})?"
    if old and new:
        return f"http-request replace-path {word(f'{before}(.*)$')} {literal(new + _REST)}"
    return f"http-request replace-path {word(f'{before}/*(.*)$')} {literal(f'{new}/{_REST}')}"


def redirect_rules(redirect: Redirect, matched: Path | None, *, scheme: str, port: int) -> Iterator[str]:
    """Yield the rules that answer with a redirect; `scheme` and `port` are those of the listener."""
    if redirect.path:
        yield _path_rule(redirect.path, matched)
    wanted = redirect.scheme or scheme
    usual = DEFAULT_PORTS.get(wanted, 0)
    number = redirect.port or (usual if redirect.scheme else port)
    host = redirect.hostname.replace("%", "%%") or "%[var(txn.host)]"
    authority = host if number == usual else f"{host}:{number}"
    yield f"http-request redirect location {word(f'{wanted}://{authority}%[pathq]')} code {redirect.status}"
