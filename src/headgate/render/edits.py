"""Edits of headers, hosts, paths and redirected URLs, as every proxy needs them (model/applied_filters.py).

Those of a route are first, then those of a share.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from headgate.model.applied_filters import DEFAULT_PORTS
from headgate.model.requests import Filters, HeaderEdit, Path, PathEdit, Redirect
from headgate.render.proxy_ports import ProxyPort

HOST = "host"


class Edits(NamedTuple):
    """The result of edits: the original values of `dropped` names (lower case) are dropped, then pairs are added."""

    dropped: frozenset[str]
    added: tuple[tuple[str, str], ...]


def combined(edits: Iterable[HeaderEdit | None]) -> Edits:
    """Return edits that are applied in order as one edit, without those of the host."""
    dropped: frozenset[str] = frozenset()
    added: tuple[tuple[str, str], ...] = ()
    for edit in filter(None, edits):
        gone = {name.lower() for name in (*(name for name, _ in edit.set), *edit.remove)}
        kept = (header for header in added if header[0].lower() not in gone)
        added = (*kept, *(header for header in (*edit.set, *edit.add) if header[0].lower() != HOST))
        dropped |= gone - {HOST}
    return Edits(dropped, added)


def host_of(filters: Iterable[Filters]) -> str:
    """Return the new host of a request; empty if no filter changes the host."""
    host = ""
    for route_filters in filters:
        edit = route_filters.request or HeaderEdit()
        named = [value for name, value in (*edit.set, *edit.add) if name.lower() == HOST]
        host = (route_filters.rewrite.hostname if route_filters.rewrite else "") or "".join(named[:1]) or host
    return host


def path_edits(filters: Iterable[Filters]) -> tuple[PathEdit, ...]:
    """Return the edits of the path, in order."""
    return tuple(
        route_filters.rewrite.path for route_filters in filters if route_filters.rewrite and route_filters.rewrite.path
    )


def new_path(edit: PathEdit) -> str:
    """Return the value of an edit with a slash at its start."""
    return edit.value if edit.value.startswith("/") else f"/{edit.value}"


def replaced_start(edit: PathEdit, matched: Path | None) -> tuple[str, str]:
    """Return an expression for the start of a path, and what an edit of the prefix puts in its place.

    `matched` is the condition of the route on the path: its prefix is replaced, else `new_path` is put before the path.
    """
    new = new_path(edit).rstrip("/")
    old = matched.value.rstrip("/") if matched and matched.kind == "prefix" else ""
    slash, slashes = ("", "") if old and new else ("/", "/*")
    return f"(?:{re.escape(old)})?{slashes}", f"{new}{slash}"


def redirect_origin(redirect: Redirect, host: str, port: ProxyPort) -> str:
    """Return the start of a redirect's URL, before the path; `port` is that of the request."""
    scheme = redirect.scheme or port.scheme
    usual = DEFAULT_PORTS.get(scheme, 0)
    number = redirect.port or (usual if redirect.scheme else port.port)
    return f"{scheme}://{host}" if number == usual else f"{scheme}://{host}:{number}"
