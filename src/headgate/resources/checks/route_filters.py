"""What can be wrong with the filters of a rule and of its backends (requirements 2.4, R47, R48, R52, D3)."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from headgate.errors import Cause
from headgate.resources.checks.shared import part, rows

FIELDS = {
    "RequestHeaderModifier": "requestHeaderModifier",
    "ResponseHeaderModifier": "responseHeaderModifier",
    "RequestMirror": "requestMirror",
    "RequestRedirect": "requestRedirect",
    "URLRewrite": "urlRewrite",
    "ExtensionRef": "extensionRef",
}
_REPEATABLE = frozenset({"RequestMirror", "ExtensionRef"})
_DEFAULT = 100  # of numerator and denominator (R48)


def filter_causes(rule: Mapping[str, Any], where: str, *, matches: object) -> Iterator[Cause]:
    """Yield mistakes of a rule's filters, and of its backends' filters, that the schema can't say."""
    types = [item.get("type") for _, item in rows(rule.get("filters"))]
    yield from _list_causes(rule.get("filters"), f"{where}.filters", matches)
    if "RequestRedirect" in types and rule.get("backendRefs"):
        yield Cause(f"{where}.backendRefs", "can't be beside a RequestRedirect, which answers itself; leave one out")
    for index, backend in rows(rule.get("backendRefs")):
        yield from _list_causes(backend.get("filters"), f"{where}.backendRefs[{index}].filters", matches)


def port_causes(reference: Mapping[str, Any], where: str) -> Iterator[Cause]:
    """Yield the missing port of a reference to a Service."""
    is_service = not reference.get("group") and (reference.get("kind") or "Service") == "Service"
    if is_service and reference.get("port") is None:
        yield Cause(f"{where}.port", "is missing: a reference to a Service needs its port")


def _list_causes(value: object, where: str, matches: object) -> Iterator[Cause]:
    filters = list(rows(value))
    seen: Counter[str] = Counter()
    for index, item in filters:
        name = str(item.get("type"))
        seen[name] += 1
        if seen[name] == 2 and name in FIELDS and name not in _REPEATABLE:
            yield Cause(f"{where}[{index}].type", f"{name} may stand only once here; join the two")
        yield from _union_causes(item, f"{where}[{index}]")
        yield from _content_causes(item, f"{where}[{index}]", matches)
    if seen["RequestRedirect"] and seen["URLRewrite"]:
        yield Cause(
            where, "have a RequestRedirect and a URLRewrite; a redirected request is not sent on: leave one out"
        )


def _union_causes(item: Mapping[str, Any], where: str) -> Iterator[Cause]:
    """Yield a field that the type does not go with, and the missing one that it does."""
    wanted = FIELDS.get(str(item.get("type")))
    if wanted is None:
        return
    if item.get(wanted) is None:
        yield Cause(f"{where}.{wanted}", f"is missing: type {item['type']} needs it")
    for field in FIELDS.values():
        if field != wanted and item.get(field) is not None:
            yield Cause(f"{where}.{field}", f"does not go with type {item['type']}; make it a filter of its own")


def _content_causes(item: Mapping[str, Any], where: str, matches: object) -> Iterator[Cause]:
    for field in ("requestRedirect", "urlRewrite"):
        yield from _path_causes(part(part(item, field), "path"), f"{where}.{field}.path", matches)
    mirror = part(item, "requestMirror")
    yield from _fraction_causes(part(mirror, "fraction"), f"{where}.requestMirror.fraction")
    reference = part(mirror, "backendRef")
    if reference:
        yield from port_causes(reference, f"{where}.requestMirror.backendRef")


def _fraction_causes(fraction: Mapping[str, Any], where: str) -> Iterator[Cause]:
    numerator, denominator = (
        _DEFAULT if fraction.get(name) is None else fraction[name] for name in ("numerator", "denominator")
    )
    if isinstance(numerator, int) and isinstance(denominator, int) and numerator > denominator > 0:
        message = f"must be at most the denominator ({denominator}), not {numerator}: a request is copied once"
        yield Cause(f"{where}.numerator", message)


def _path_causes(path: Mapping[str, Any], where: str, matches: object) -> Iterator[Cause]:
    wanted = {"ReplaceFullPath": "replaceFullPath", "ReplacePrefixMatch": "replacePrefixMatch"}
    field = wanted.get(str(path.get("type")))
    if field is None:
        return
    if path.get(field) is None:
        yield Cause(f"{where}.{field}", f"is missing: type {path['type']} needs it")
    for other in wanted.values():
        if other != field and path.get(other) is not None:
            yield Cause(f"{where}.{other}", f"does not go with type {path['type']}")
    if field == "replacePrefixMatch" and not _one_prefix(matches):
        yield Cause(f"{where}.type", "ReplacePrefixMatch needs a rule with exactly one match, of type PathPrefix")


def _one_prefix(matches: object) -> bool:
    """Whether a rule has one match and it is for a prefix; no match is the prefix /."""
    if not isinstance(matches, list | tuple) or not matches:
        return True
    only = part(matches[0], "path") if len(matches) == 1 else None
    return only is not None and (only.get("type") or "PathPrefix") == "PathPrefix"
