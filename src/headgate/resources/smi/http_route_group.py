"""HTTPRouteGroups (requirements 2.2): types, schema, checks and conversion of the kind."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from headgate.errors import Cause
from headgate.kinds import SPECS, names_of
from headgate.resources import regexes
from headgate.resources.columns import AGE, NAME
from headgate.resources.conversion import mapping, row_list
from headgate.resources.grammars import header_fault
from headgate.resources.kind import MESH_CATEGORY, Conversion, Kind, split_api_version
from headgate.resources.meta import Input, Object, Resource, part, rows, type_name
from headgate.resources.schema.builders import (
    MATCH_NAME,
    Schema,
    kind,
    record,
)
from headgate.resources.schema.declared import (
    Field,
    FieldRule,
    broken_rules,
    declared_schema,
    field_schema,
    rule_causes,
    with_rules,
)
from headgate.resources.smi.conversion import TOP_LEVEL_MATCHES, VERSIONS

METHODS = ("*", "GET", "HEAD", "PUT", "POST", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH")


class HttpMatch(Input, frozen=True, kw_only=True):
    """One match of a group. A request matches if it satisfies all fields that are set (R13 to R15, D5).

    `path_regex` is anchored at the start of the path only. A header's regular expression must match the whole value.
    Missing methods, or `*`, mean all methods.
    """

    __rules__ = (FieldRule("name", "is missing", cel="self.name != ''", broken=lambda match: match.get("name") == ""),)

    name: Annotated[str, Field("The name of the match, which is unique in the group.", pattern=MATCH_NAME)]
    methods: Annotated[
        tuple[str, ...] | None,
        Field(
            "The methods; all when absent, or with *. An empty list is rejected, because it would look like no method.",
            item=Field("A method.", choices=METHODS),
            limits={"minItems": 1},
        ),
    ] = None
    path_regex: Annotated[
        str | None, Field("An RE2 expression for the path, which matches from its start.", limits={"minLength": 1})
    ] = None
    headers: Annotated[
        dict[str, str] | None,
        Field(
            schema={
                "description": "RE2 expressions by header name, as a map or a list of maps; each must match the whole value.",
                "x-kubernetes-preserve-unknown-fields": True,
            }
        ),
    ] = None


_MATCH = Field("A match of requests. A request must satisfy all fields that are set.")


class HTTPRouteGroupSpec(Input, frozen=True, kw_only=True):
    """`spec` of a group: a request belongs to it if it satisfies one of `matches`."""

    matches: Annotated[
        tuple[HttpMatch, ...],
        Field(
            "The matches of the group. A request belongs to it if it satisfies one of them.",
            key="name",
            item=_MATCH,
            limits={"minItems": 1},
        ),
    ]


class HTTPRouteGroup(Resource, frozen=True, kw_only=True):
    """An HTTPRouteGroup: a named set of requests, for splits and access rules (requirements 2.2)."""

    spec: HTTPRouteGroupSpec


def _matches_in_spec(group: Mapping[str, Any]) -> object:
    return part(group, "spec").get("matches")


def _group_rules(version: str) -> tuple[FieldRule, ...]:
    """Return the rules on the place of `matches` (D4): in `spec` or at top level, as early versions write it."""
    place = "matches" if version in TOP_LEVEL_MATCHES else "spec.matches"
    return (
        FieldRule(
            "matches",
            "is in spec too; write it in only one of the two places",
            cel="!has(self.matches) || !has(self.spec) || !has(self.spec.matches)",
            broken=lambda group: group.get("matches") is not None and _matches_in_spec(group) is not None,
        ),
        FieldRule(
            place,
            "is missing: add a match",
            cel="has(self.matches) || has(self.spec) && has(self.spec.matches)",
            broken=lambda group: group.get("matches") is None and _matches_in_spec(group) is None,
        ),
    )


def route_group_causes(obj: Object) -> Iterator[Cause]:
    """Yield the mistakes in an HTTPRouteGroup that its schema can't express. `matches` is in `spec` or at top level."""
    _, version = split_api_version(obj["apiVersion"])
    yield from broken_rules(_group_rules(version), obj, "")
    yield from _group_causes(obj.get("matches"), "matches")
    yield from _group_causes(_matches_in_spec(obj), "spec.matches")


def _group_causes(matches: object, where: str) -> Iterator[Cause]:
    for index, match in rows(matches):
        yield from rule_causes(HttpMatch, match, f"{where}[{index}]")
    yield from match_causes(matches, where)


def match_causes(matches: object, where: str) -> Iterator[Cause]:
    """Yield the mistakes in a list of matches at a field path that are not broken rules of `HttpMatch`."""
    if matches == []:
        yield Cause(where, "is empty, so the group matches no request: add a match")
    names: dict[str, int] = {}
    for index, match in rows(matches):
        place, name = f"{where}[{index}]", match.get("name")
        if name and isinstance(name, str) and names.setdefault(name, index) != index:
            yield Cause(f"{place}.name", f"{name!r} is the name of {where}[{names[name]}] too; names must differ")
        yield from _match(match, place)


def _match(match: Mapping[str, Any], where: str) -> Iterator[Cause]:
    regex = match.get("pathRegex")
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
    if not value or not all(entry or entry is None for entry in (value if isinstance(value, list | tuple) else ())):
        yield Cause(where, "is empty: leave out the field to match all requests")
        return
    seen: set[str] = set()
    maps = (
        [(where, value)] if isinstance(value, Mapping) else [(f"{where}[{i}]", entry) for i, entry in enumerate(value)]
    )
    for place, headers in maps:
        if isinstance(headers, Mapping):
            yield from _header_map(headers, place, seen)
        else:
            yield Cause(place, "is missing" if headers is None else f"must be an object, not {type_name(headers)}")


def _header_map(headers: Mapping[str, Any], where: str, seen: set[str]) -> Iterator[Cause]:
    for name, pattern in headers.items():
        place = f"{where}.{name}"
        if fault := header_fault(str(name)):
            yield Cause(place, fault)
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


def request_match() -> Schema:
    """Return the schema for an HTTPRouteGroup's match; headers are a map or a list of maps (D4)."""
    return declared_schema(HttpMatch, _MATCH.description)


def route_group(version: str) -> Schema:
    """Return one schema for all four shapes of an HTTPRouteGroup: `matches` is in `spec` or at top level (D4)."""
    matches = field_schema(HTTPRouteGroupSpec, "matches")
    group = kind(
        "A named set of requests, for splits and access rules.",
        "",
        spec=record("The matches of the group.", matches=matches),
        matches=matches,
    )
    return with_rules(group, _group_rules(version))


def _group_to_hub(obj: Object, _version: str) -> Object:
    """Convert the four shapes of an HTTPRouteGroup to one (D4): `matches` under `spec`, headers as a map."""
    rest = {name: value for name, value in obj.items() if name not in {"matches", "spec"}}
    where = "matches" if "matches" in obj else "spec.matches"
    spec = {"matches": obj["matches"]} if "matches" in obj else mapping(obj.get("spec"), "spec")
    rows = enumerate(row_list(spec.get("matches"), where))
    matches = [_with_header_map(row, f"{where}[{index}].headers") for index, row in rows]
    return {**rest, "spec": {**spec, "matches": matches}}


def _with_header_map(match: dict[str, Any], field: str) -> dict[str, Any]:
    if not isinstance(match.get("headers"), list | tuple):
        return match
    return {**match, "headers": {name: text for row in row_list(match["headers"], field) for name, text in row.items()}}


def _group_from_hub(obj: Object, version: str) -> Object:
    if version not in TOP_LEVEL_MATCHES:
        return obj
    rest = {name: value for name, value in obj.items() if name != "spec"}
    return {**rest, "matches": mapping(obj.get("spec"), "spec").get("matches", [])}


KIND = Kind(
    names_of("HTTPRouteGroup", SPECS),
    versions=VERSIONS,
    shape=HTTPRouteGroup,
    schema=lambda _group, version: route_group(version),
    checks=route_group_causes,
    conversion=Conversion(_group_to_hub, _group_from_hub),
    columns=(NAME, AGE),
    recorded=True,
    categories=(MESH_CATEGORY,),
    unversioned=True,
)
