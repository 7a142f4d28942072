"""What can be wrong with a route of the Gateway API as it is written: the rules of the released API (2.4).

References to what does not exist are no mistakes here: the order of creation is free (R22).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from headgate import durations
from headgate.errors import Cause
from headgate.resources.checks.route_filters import filter_causes, port_causes
from headgate.resources.checks.route_matches import grpc_match_causes, http_match_causes
from headgate.resources.checks.shared import part, rows
from headgate.resources.gateway import GROUP
from headgate.resources.meta import Object

MOST_MATCHES = 128  # of all rules together, as in the released API


def http_route_causes(obj: Object) -> Iterator[Cause]:
    """Yield what is wrong between the fields of an HTTPRoute, and in its paths and expressions."""
    yield from tcp_route_causes(obj)
    for index, rule in rows(part(obj, "spec").get("rules")):
        where = f"spec.rules[{index}]"
        for number, match in rows(rule.get("matches")):
            yield from http_match_causes(match, f"{where}.matches[{number}]")
        yield from filter_causes(rule, where, matches=rule.get("matches"))
        yield from _timeout_causes(part(rule, "timeouts"), f"{where}.timeouts")


def grpc_route_causes(obj: Object) -> Iterator[Cause]:
    """Yield what is wrong between the fields of a GRPCRoute, and in its names and expressions."""
    yield from tcp_route_causes(obj)
    for index, rule in rows(part(obj, "spec").get("rules")):
        where = f"spec.rules[{index}]"
        for number, match in rows(rule.get("matches")):
            yield from grpc_match_causes(match, f"{where}.matches[{number}]")
        yield from filter_causes(rule, where, matches=None)


def tcp_route_causes(obj: Object) -> Iterator[Cause]:
    """Yield what is wrong between the fields that all routes have: those of the Gateway API's TCPRoute."""
    spec = part(obj, "spec")
    yield from _parent_causes(spec.get("parentRefs"))
    names: dict[str, int] = {}
    total = 0
    for index, rule in rows(spec.get("rules")):
        name = rule.get("name")
        if isinstance(name, str) and name and names.setdefault(name, index) != index:
            message = f"{name!r} is the name of spec.rules[{names[name]}] too; names must differ"
            yield Cause(f"spec.rules[{index}].name", message)
        for number, backend in rows(rule.get("backendRefs")):
            yield from port_causes(backend, f"spec.rules[{index}].backendRefs[{number}]")
        total += sum(1 for _ in rows(rule.get("matches")))
    if total > MOST_MATCHES:
        yield Cause("spec.rules", f"have {total} matches together; at most {MOST_MATCHES} are possible")


def _parent_causes(value: object) -> Iterator[Cause]:
    """Yield parents that are named again without telling the entries apart by sectionName or port."""
    seen: dict[tuple[str, ...], list[tuple[int, Mapping[str, Any]]]] = {}
    for index, parent in rows(value):
        group = parent.get("group")
        target = (
            GROUP if group is None else str(group),
            str(parent.get("kind") or "Gateway"),
            str(parent.get("namespace") or ""),
            str(parent.get("name")),
        )
        for first, other in seen.setdefault(target, []):
            if fault := _same_part(parent, other):
                yield Cause(f"spec.parentRefs[{index}]", f"names the parent of spec.parentRefs[{first}]; {fault}")
                break
        seen[target].append((index, parent))


def _same_part(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Say why two references to one parent can't stand beside each other; empty when they can."""
    for field in ("sectionName", "port"):
        if bool(one.get(field)) != bool(other.get(field)):
            return f"both need {field}, or neither"
    if all(one.get(field) == other.get(field) for field in ("sectionName", "port")):
        return "give each another sectionName or port"
    return ""


def _timeout_causes(timeouts: Mapping[str, Any], where: str) -> Iterator[Cause]:
    """Yield a time for one attempt that is longer than the time for the whole request, where that has an end."""
    try:
        whole = durations.milliseconds(timeouts.get("request") or "0s")
        attempt = durations.milliseconds(timeouts.get("backendRequest") or "0s")
    except (TypeError, ValueError):  # the schema's check names it
        return
    if whole and attempt > whole:
        message = f"must not be longer than request ({timeouts['request']}), of which it is a part"
        yield Cause(f"{where}.backendRequest", message)
