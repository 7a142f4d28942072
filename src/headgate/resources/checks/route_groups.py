"""What can be wrong with an HTTPRouteGroup as it is written, in any of its shapes (D4, D5; requirements 2.2)."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from headgate.errors import Cause
from headgate.resources import regexes
from headgate.resources.meta import Object, part, rows, type_name
from headgate.resources.smi import METHODS

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def route_group_causes(obj: Object) -> Iterator[Cause]:
    """Yield what the schema can't say about an HTTPRouteGroup: `matches` stand under `spec` or at top level."""
    spec = part(obj, "spec")
    if "matches" in obj:
        if spec.get("matches") is not None:
            yield Cause("matches", "stand under spec too; write them in one place")
        yield from _matches(obj["matches"], "matches")
    elif obj.get("spec") is None:
        yield Cause("spec", "is missing")
    elif isinstance(obj["spec"], Mapping):
        yield from _matches(spec.get("matches"), "spec.matches")


def _matches(matches: object, where: str) -> Iterator[Cause]:
    if matches is None:
        yield Cause(where, "is missing")
    elif matches == []:
        yield Cause(where, "is empty: a group without matches matches nothing")
    names: dict[str, int] = {}
    for index, match in rows(matches):
        place, name = f"{where}[{index}]", match.get("name")
        if name == "":
            yield Cause(f"{place}.name", "is missing")
        elif isinstance(name, str) and names.setdefault(name, index) != index:
            yield Cause(f"{place}.name", f"{name!r} is the name of {where}[{names[name]}] too")
        yield from _match(match, place)


def _match(match: Mapping[str, Any], where: str) -> Iterator[Cause]:
    methods, regex = match.get("methods"), match.get("pathRegex")
    for index, method in enumerate(methods if isinstance(methods, list | tuple) else ()):
        if method not in METHODS:
            message = f"{method!r} is not a method; write one of {', '.join(METHODS)}"
            yield Cause(f"{where}.methods[{index}]", message)
    if regex is not None:
        yield from _regex(regex, f"{where}.pathRegex")
    if match.get("headers") is not None:
        yield from _headers(match["headers"], f"{where}.headers")


def _headers(value: object, where: str) -> list[Cause]:
    """Check headers written as a map, or as a list of maps (D4)."""
    if isinstance(value, Mapping):
        return _header_map(value, where, set())
    causes: list[Cause] = []
    if not isinstance(value, list | tuple):
        return [Cause(where, f"must map header names to regular expressions, not be {type_name(value)}")]
    seen: set[str] = set()
    for index, item in enumerate(value):
        place = f"{where}[{index}]"
        if isinstance(item, Mapping):
            causes += _header_map(item, place, seen)
        else:
            causes.append(Cause(place, "is missing" if item is None else f"must be an object, not {type_name(item)}"))
    return causes


def _header_map(headers: Mapping[str, Any], where: str, seen: set[str]) -> list[Cause]:
    causes: list[Cause] = []
    for name, pattern in headers.items():
        place = f"{where}.{name}"
        if not _HEADER.fullmatch(str(name)):
            causes.append(Cause(place, f"{name!r} is not the name of a header"))
            continue
        if name.lower() in seen:
            causes.append(Cause(place, f"the header {name.lower()} is written twice; names ignore case"))
        seen.add(name.lower())
        causes += _regex(pattern, place)
    return causes


def _regex(value: object, where: str) -> list[Cause]:
    if not isinstance(value, str):
        return [Cause(where, f"must be a regular expression as text, not {type_name(value)}; write it with quotes")]
    message = regexes.fault(value)
    return [Cause(where, f"{value!r} {message}")] if message else []
