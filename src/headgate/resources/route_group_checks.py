"""What can be wrong with an HTTPRouteGroup as it is written, in any of its shapes (D4, D5; requirements 2.2)."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from headgate.errors import Cause
from headgate.resources import regexes
from headgate.resources.checks import TOP_LEVEL, common_causes, list_at, object_at, text_at, unknown_fields
from headgate.resources.meta import Object
from headgate.resources.names import type_name
from headgate.resources.smi import METHODS

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FIELDS = ("name", "methods", "pathRegex", "headers")


def route_group_causes(obj: Object) -> Iterator[Cause]:
    """Yield every structural mistake of an HTTPRouteGroup: `matches` stand under `spec` or at top level."""
    yield from common_causes(obj)
    yield from unknown_fields(obj, (*TOP_LEVEL, "matches"))
    causes: list[Cause] = []
    if "matches" in obj:
        where, value = "matches", obj["matches"]
        if isinstance(obj.get("spec"), Mapping) and obj["spec"].get("matches") is not None:
            causes.append(Cause("matches", "stand under spec too; write them in one place"))
    else:
        spec = object_at(obj.get("spec"), "spec", causes)
        where, value = "spec.matches", (spec or {}).get("matches")
        if spec is None:
            yield from causes
            return
        causes += unknown_fields(spec, ("matches",), "spec")
    yield from causes + _matches(value, where)


def _matches(value: object, where: str) -> list[Cause]:
    causes: list[Cause] = []
    matches = list_at(value, where, causes)
    if not matches and not causes:
        causes.append(Cause(where, "is empty: a group without matches matches nothing"))
    names: dict[str, int] = {}
    for index, item in enumerate(matches):
        place = f"{where}[{index}]"
        match = object_at(item, place, causes)
        if match is None:
            continue
        name = text_at(match.get("name"), f"{place}.name", causes)
        if name and names.setdefault(name, index) != index:
            causes.append(Cause(f"{place}.name", f"{name!r} is the name of {where}[{names[name]}] too"))
        causes += _match(match, place)
    return causes


def _match(match: Mapping[str, Any], where: str) -> list[Cause]:
    causes = list(unknown_fields(match, _FIELDS, where))
    if match.get("methods") is not None:
        for index, method in enumerate(list_at(match["methods"], f"{where}.methods", causes)):
            if method not in METHODS:
                message = f"{method!r} is not a method; write one of {', '.join(METHODS)}"
                causes.append(Cause(f"{where}.methods[{index}]", message))
    if match.get("pathRegex") is not None:
        causes += _regex(match["pathRegex"], f"{where}.pathRegex")
    if match.get("headers") is not None:
        causes += _headers(match["headers"], f"{where}.headers")
    return causes


def _headers(value: object, where: str) -> list[Cause]:
    """Check headers written as a map, or as a list of maps (D4)."""
    if isinstance(value, Mapping):
        return _header_map(value, where, set())
    causes: list[Cause] = []
    if not isinstance(value, list | tuple):
        return [Cause(where, f"must map header names to regular expressions, not be {type_name(value)}")]
    seen: set[str] = set()
    for index, item in enumerate(value):
        entry = object_at(item, f"{where}[{index}]", causes)
        if entry is not None:
            causes += _header_map(entry, f"{where}[{index}]", seen)
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
