"""What can be wrong with a route of the Gateway API as it is written: the rules of the released API (2.4).

These are the rules between fields, paths, regular expressions and gRPC names. References to what does not exist are no
mistakes here: the order of creation is free (R22).
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from headgate import durations
from headgate.errors import Cause
from headgate.resources import regexes
from headgate.resources.checks.schema import method_fault, service_fault
from headgate.resources.gateway import GROUP
from headgate.resources.meta import Object, part, rows

MOST_MATCHES = 128  # of all rules together, as in the released API
FILTERS = {
    "RequestHeaderModifier": "requestHeaderModifier",
    "ResponseHeaderModifier": "responseHeaderModifier",
    "RequestMirror": "requestMirror",
    "RequestRedirect": "requestRedirect",
    "URLRewrite": "urlRewrite",
    "ExtensionRef": "extensionRef",
}
"""The field of each type of filter."""
_PATH_MODIFIERS = {"ReplaceFullPath": "replaceFullPath", "ReplacePrefixMatch": "replacePrefixMatch"}
_REPEATABLE = frozenset({"RequestMirror", "ExtensionRef"})
_DEFAULT = 100  # of numerator and denominator (R48)
_REGEX = "RegularExpression"
_PATH = re.compile(r"/([A-Za-z0-9/\-._~!$&'()*+,;=:@]|%[0-9a-fA-F]{2})*")
_FORBIDDEN = ("//", "/./", "/../", "%2f", "%2F", "#")
_FORBIDDEN_ENDS = ("/..", "/.")


def http_route_causes(obj: Object) -> Iterator[Cause]:
    """Yield what is wrong between the fields of an HTTPRoute, and in its paths and expressions."""
    yield from tcp_route_causes(obj)
    for where, rule in _items(part(obj, "spec"), "rules", "spec"):
        for place, match in _items(rule, "matches", where):
            path = part(match, "path")
            yield from _text_causes(path, "value", f"{place}.path", path_fault)
            yield from _regex_causes(match, "headers", place)
            yield from _regex_causes(match, "queryParams", place)
        yield from _rule_causes(rule, where, rule.get("matches"))
        yield from _timeout_causes(part(rule, "timeouts"), f"{where}.timeouts")


def grpc_route_causes(obj: Object) -> Iterator[Cause]:
    """Yield what is wrong between the fields of a GRPCRoute, and in its names and expressions."""
    yield from tcp_route_causes(obj)
    for where, rule in _items(part(obj, "spec"), "rules", "spec"):
        for place, match in _items(rule, "matches", where):
            method = part(match, "method")
            if match.get("method") is not None and not (method.get("service") or method.get("method")):
                message = "names neither service nor method; name one, or leave it out for all calls"
                yield Cause(f"{place}.method", message)
            for field, grammar in (("service", service_fault), ("method", method_fault)):
                if method.get(field):
                    yield from _text_causes(method, field, f"{place}.method", grammar)
            yield from _regex_causes(match, "headers", place)
        yield from _rule_causes(rule, where, None)


def tcp_route_causes(obj: Object) -> Iterator[Cause]:
    """Yield what is wrong between the fields that all routes have: those of the Gateway API's TCPRoute."""
    spec = part(obj, "spec")
    yield from _parent_causes(spec.get("parentRefs"))
    names: dict[str, str] = {}
    total = 0
    for where, rule in _items(spec, "rules", "spec"):
        name = rule.get("name")
        if isinstance(name, str) and name and names.setdefault(name, where) != where:
            yield Cause(f"{where}.name", f"{name!r} is the name of {names[name]} too; names must differ")
        for place, backend in _items(rule, "backendRefs", where):
            yield from _port_causes(backend, place)
        total += sum(1 for _ in rows(rule.get("matches")))
    if total > MOST_MATCHES:
        yield Cause("spec.rules", f"have {total} matches together; at most {MOST_MATCHES} are possible")


def _items(value: Mapping[str, Any], field: str, where: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the objects of a list with their places."""
    for index, item in rows(value.get(field)):
        yield f"{where}.{field}[{index}]", item


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


def _text_causes(item: Mapping[str, Any], field: str, where: str, grammar: Callable[[str], str]) -> Iterator[Cause]:
    """Yield what is wrong with a text of a grammar, or with a regular expression when the type says so."""
    text = item.get(field)
    if isinstance(text, str) and (fault := (regexes.fault if item.get("type") == _REGEX else grammar)(text)):
        yield Cause(f"{where}.{field}", fault if fault.startswith(repr(text)) else f"{text!r} {fault}")


def _regex_causes(match: Mapping[str, Any], field: str, where: str) -> Iterator[Cause]:
    for place, item in _items(match, field, where):
        yield from _text_causes(item, "value", place, lambda _: "")


def path_fault(value: str) -> str:
    """Say what is wrong with a path to compare with; empty when nothing is."""
    if not value.startswith("/"):
        return "must begin with /"
    for sign in _FORBIDDEN:
        if sign in value:
            return f"must not contain {sign!r}: proxies bring paths to one form before they compare"
    for end in _FORBIDDEN_ENDS:
        if value.endswith(end):
            return f"must not end with {end!r}"
    if "?" in value:
        return "must be the path alone; match the query with queryParams"
    return "" if _PATH.fullmatch(value) else "has signs that a path can't have; write them as %20 and the like"


def _rule_causes(rule: Mapping[str, Any], where: str, matches: object) -> Iterator[Cause]:
    """Yield mistakes of a rule's filters, and of its backends' filters (R47, R48, R52, D3)."""
    yield from _filter_causes(rule, where, matches)
    if rule.get("backendRefs") and any(item.get("type") == "RequestRedirect" for _, item in rows(rule.get("filters"))):
        yield Cause(f"{where}.backendRefs", "can't be beside a RequestRedirect, which answers itself; leave one out")
    for place, backend in _items(rule, "backendRefs", where):
        yield from _filter_causes(backend, place, matches)


def _filter_causes(holder: Mapping[str, Any], where: str, matches: object) -> Iterator[Cause]:
    seen: Counter[str] = Counter()
    for place, item in _items(holder, "filters", where):
        name = str(item.get("type"))
        seen[name] += 1
        if seen[name] == 2 and name in FILTERS and name not in _REPEATABLE:
            yield Cause(f"{place}.type", f"{name} may stand only once here; join the two")
        yield from _union_causes(item, FILTERS, place, hint="; make it a filter of its own")
        for field in ("requestRedirect", "urlRewrite"):
            path, inside = part(part(item, field), "path"), f"{place}.{field}.path"
            yield from _union_causes(path, _PATH_MODIFIERS, inside)
            if path.get("type") == "ReplacePrefixMatch" and not _one_prefix(matches):
                message = "ReplacePrefixMatch needs a rule with exactly one match, of type PathPrefix"
                yield Cause(f"{inside}.type", message)
        mirror = part(item, "requestMirror")
        yield from _fraction_causes(part(mirror, "fraction"), f"{place}.requestMirror.fraction")
        if reference := part(mirror, "backendRef"):
            yield from _port_causes(reference, f"{place}.requestMirror.backendRef")
    if seen["RequestRedirect"] and seen["URLRewrite"]:
        message = "have a RequestRedirect and a URLRewrite; a redirected request is not sent on: leave one out"
        yield Cause(f"{where}.filters", message)


def _union_causes(item: Mapping[str, Any], fields: Mapping[str, str], where: str, *, hint: str = "") -> Iterator[Cause]:
    """Yield the missing field that an item's type goes with, and fields that it does not go with."""
    wanted = fields.get(str(item.get("type")))
    if wanted is None:
        return
    if item.get(wanted) is None:
        yield Cause(f"{where}.{wanted}", f"is missing: type {item['type']} needs it")
    for field in fields.values():
        if field != wanted and item.get(field) is not None:
            yield Cause(f"{where}.{field}", f"does not go with type {item['type']}{hint}")


def _one_prefix(matches: object) -> bool:
    """Whether a rule has one match and it is for a prefix; no match is the prefix /."""
    if not isinstance(matches, list | tuple) or not matches:
        return True
    only = part(matches[0], "path") if len(matches) == 1 else None
    return only is not None and (only.get("type") or "PathPrefix") == "PathPrefix"


def _fraction_causes(fraction: Mapping[str, Any], where: str) -> Iterator[Cause]:
    numerator, denominator = (
        _DEFAULT if fraction.get(name) is None else fraction[name] for name in ("numerator", "denominator")
    )
    if isinstance(numerator, int) and isinstance(denominator, int) and numerator > denominator > 0:
        message = f"must be at most the denominator ({denominator}), not {numerator}: a request is copied once"
        yield Cause(f"{where}.numerator", message)


def _port_causes(reference: Mapping[str, Any], where: str) -> Iterator[Cause]:
    """Yield the missing port of a reference to a Service."""
    is_service = not reference.get("group") and (reference.get("kind") or "Service") == "Service"
    if is_service and reference.get("port") is None:
        yield Cause(f"{where}.port", "is missing: a reference to a Service needs its port")


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
