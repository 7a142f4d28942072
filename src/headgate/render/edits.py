"""Several edits of headers as one: first those of a route, then those of a share (model/applied_filters.py)."""

from collections.abc import Iterable
from typing import NamedTuple

from headgate.model.requests import Filters, HeaderEdit, PathEdit

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
        kept = (item for item in added if item[0].lower() not in gone)
        added = (*kept, *(item for item in (*edit.set, *edit.add) if item[0].lower() != HOST))
        dropped |= gone - {HOST}
    return Edits(dropped, added)


def host_of(filters: Iterable[Filters]) -> str:
    """Return the new host of a request; empty if no filter changes the host."""
    found = ""
    for item in filters:
        edit = item.request or HeaderEdit()
        named = [value for name, value in (*edit.set, *edit.add) if name.lower() == HOST]
        found = (item.rewrite.hostname if item.rewrite else "") or "".join(named[:1]) or found
    return found


def path_edits(filters: Iterable[Filters]) -> tuple[PathEdit, ...]:
    """Return the edits of the path, in order."""
    return tuple(item.rewrite.path for item in filters if item.rewrite and item.rewrite.path)
