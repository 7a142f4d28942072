"""Checks of HTTPRouteGroups in every shape that SMI documents use (D4, D5; requirements 2.2)."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from headgate.errors import Cause
from headgate.resources import regexes
from headgate.resources.meta import Object, part, rows, type_name
from headgate.resources.smi import METHODS

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def route_group_causes(obj: Object) -> Iterator[Cause]:
    """Yield the mistakes in an HTTPRouteGroup that its schema can't express. `matches` is in `spec` or at top level."""
    spec = part(obj, "spec")
    if "matches" in obj:
        if spec.get("matches") is not None:
            yield Cause("matches", "is also in spec; write it in only one of the two places")
        yield from match_causes(obj["matches"], "matches")
    elif obj.get("spec") is None:
        yield Cause("spec", "is missing")
    elif isinstance(obj["spec"], Mapping):
        yield from match_causes(spec.get("matches"), "spec.matches")


def match_causes(matches: object, where: str) -> Iterator[Cause]:
    """Yield the mistakes in a list of matches at a field path."""
    if matches is None:
        yield Cause(where, "is missing")
    elif matches == []:
        yield Cause(where, "is empty, so the group matches no request: add a match")
    names: dict[str, int] = {}
    for index, match in rows(matches):
        place, name = f"{where}[{index}]", match.get("name")
        if name == "":
            yield Cause(f"{place}.name", "is missing")
        elif isinstance(name, str) and names.setdefault(name, index) != index:
            yield Cause(f"{place}.name", f"{name!r} is the name of {where}[{names[name]}] too; names must differ")
        yield from _match(match, place)


def _match(match: Mapping[str, Any], where: str) -> Iterator[Cause]:
    methods, regex = match.get("methods"), match.get("pathRegex")
    for index, method in enumerate(methods if isinstance(methods, list | tuple) else ()):
        if method not in METHODS:
            message = f"{method!r} is not a method; write one of {', '.join(METHODS)}"
            yield Cause(f"{where}.methods[{index}]", message)
    if regex == "":
        yield Cause(f"{where}.pathRegex", "is empty: leave out the field to match all paths")
    elif regex is not None:
        yield from _regex(regex, f"{where}.pathRegex")
    if match.get("headers") is not None:
        yield from _headers(match["headers"], f"{where}.headers")


def _headers(value: object, where: str) -> Iterator[Cause]:
    """Yield the mistakes in headers, which are a map or a list of maps (D4)."""
    if not isinstance(value, Mapping | list | tuple):
        yield Cause(where, f"must be a map of header names to regular expressions, not {type_name(value)}")
        return
    if not value or not all(item or item is None for item in (value if isinstance(value, list | tuple) else ())):
        yield Cause(where, "is empty: leave out the field to match all requests")
        return
    seen: set[str] = set()
    maps = [(where, value)] if isinstance(value, Mapping) else [(f"{where}[{i}]", item) for i, item in enumerate(value)]
    for place, item in maps:
        if isinstance(item, Mapping):
            yield from _header_map(item, place, seen)
        else:
            yield Cause(place, "is missing" if item is None else f"must be an object, not {type_name(item)}")


def _header_map(headers: Mapping[str, Any], where: str, seen: set[str]) -> Iterator[Cause]:
    for name, pattern in headers.items():
        place = f"{where}.{name}"
        if not _HEADER.fullmatch(str(name)):
            yield Cause(place, f"{name!r} is not the name of a header")
            continue
        if name.lower() in seen:
            yield Cause(place, f"the header {name.lower()} is written twice; header names are case-insensitive")
        seen.add(name.lower())
        yield from _regex(pattern, place)


def _regex(value: object, where: str) -> Iterator[Cause]:
    if not isinstance(value, str):
        yield Cause(where, f"must be a regular expression as text, not {type_name(value)}; write it with quotes")
    elif message := regexes.fault(value):
        yield Cause(where, f"{value!r} {message}")
