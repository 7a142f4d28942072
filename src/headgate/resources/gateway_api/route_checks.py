"""Checks that the Gateway API's routes share (R47, R48, R52, D3)."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from headgate import durations
from headgate.errors import Cause
from headgate.resources import regexes
from headgate.resources.gateway_api.gateway import GROUP
from headgate.resources.meta import part, rows

MOST_MATCHES = 128  # the released Gateway API's limit for the number of matches in all rules of a route
FILTERS = {
    "RequestHeaderModifier": "requestHeaderModifier",
    "ResponseHeaderModifier": "responseHeaderModifier",
    "RequestMirror": "requestMirror",
    "RequestRedirect": "requestRedirect",
    "URLRewrite": "urlRewrite",
    "ExtensionRef": "extensionRef",
    "CORS": "cors",
    "ExternalAuth": "externalAuth",
}
"""The field that each type of filter uses."""
_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,128}")
_TAKEN = re.compile(
    r"x[-_](headgate|envoy)[-_].*|host|cookie|set-cookie|connection|content-length|transfer-encoding|te"
)
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_PROTOCOLS = {"GRPC": "grpc", "HTTP": "http"}
"""The field that each protocol of an authorization server uses."""
_PATH_MODIFIERS = {"ReplaceFullPath": "replaceFullPath", "ReplacePrefixMatch": "replacePrefixMatch"}
_REPEATABLE = frozenset({"RequestMirror", "ExtensionRef"})
_DEFAULT = 100  # the value of a missing numerator or denominator (R48)
_MOST_BODY = 10 * 1024 * 1024
"""The most bytes of a body that an authorization server can get: proxies keep them in memory until it has decided."""
_REGEX = "RegularExpression"


def items(value: Mapping[str, Any], field: str, where: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each object of the list `field` with its path, such as `spec.rules[0]`."""
    for index, row in rows(value.get(field)):
        yield f"{where}.{field}[{index}]", row


def parent_causes(value: object) -> Iterator[Cause]:
    """Yield a mistake for each parent that occurs twice, unless both entries have different sectionNames or ports."""
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
                yield Cause(f"spec.parentRefs[{index}]", f"names the same parent as spec.parentRefs[{first}]: {fault}")
                break
        seen[target].append((index, parent))


def _same_part(reference: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Return why two references to one parent conflict; empty if they don't."""
    for field in ("sectionName", "port"):
        if bool(reference.get(field)) != bool(other.get(field)):
            return f"set {field} in both entries, or in neither"
    if all(reference.get(field) == other.get(field) for field in ("sectionName", "port")):
        return "set different sectionNames or ports"
    return ""


def text_causes(row: Mapping[str, Any], field: str, where: str, grammar: Callable[[str], str]) -> Iterator[Cause]:
    """Yield a mistake if the text `field` of an item is invalid.

    `grammar` returns the fault of a text. A text of type RegularExpression must be a valid expression instead.
    """
    text = row.get(field)
    if isinstance(text, str) and (fault := (regexes.fault if row.get("type") == _REGEX else grammar)(text)):
        yield Cause(f"{where}.{field}", fault if fault.startswith(repr(text)) else f"{text!r} {fault}")


def regex_causes(match: Mapping[str, Any], field: str, where: str) -> Iterator[Cause]:
    for place, row in items(match, field, where):
        yield from text_causes(row, "value", place, lambda _: "")


def rule_causes(rule: Mapping[str, Any], where: str, matches: object) -> Iterator[Cause]:
    """Yield mistakes in the filters of a rule and of its backends (R47, R48, R52, D3)."""
    yield from _filter_causes(rule, where, matches)
    yield from session_causes(part(rule, "sessionPersistence"), f"{where}.sessionPersistence")
    if rule.get("backendRefs") and any(
        route_filter.get("type") == "RequestRedirect" for _, route_filter in rows(rule.get("filters"))
    ):
        yield Cause(
            f"{where}.backendRefs",
            "can't be combined with a RequestRedirect, which sends no request to backends; leave one of them out",
        )
    for place, backend in items(rule, "backendRefs", where):
        yield from _filter_causes(backend, place, matches)


def _filter_causes(holder: Mapping[str, Any], where: str, matches: object) -> Iterator[Cause]:
    seen: Counter[str] = Counter()
    for place, route_filter in items(holder, "filters", where):
        name = str(route_filter.get("type"))
        seen[name] += 1
        if seen[name] == 2 and name in FILTERS and name not in _REPEATABLE:
            yield Cause(f"{place}.type", f"{name} is allowed only once in this list; merge the two filters")
        yield from _union_causes(route_filter, FILTERS, place, hint="; write a separate filter")
        for field in ("requestRedirect", "urlRewrite"):
            path, inside = part(part(route_filter, field), "path"), f"{place}.{field}.path"
            yield from _union_causes(path, _PATH_MODIFIERS, inside)
            if path.get("type") == "ReplacePrefixMatch" and not _one_prefix(matches):
                message = "ReplacePrefixMatch needs a rule with exactly one match, of type PathPrefix"
                yield Cause(f"{inside}.type", message)
        yield from _written_causes(route_filter, place)
        yield from _cors_causes(part(route_filter, "cors"), f"{place}.cors")
        if auth := part(route_filter, "externalAuth"):
            yield from _auth_causes(auth, f"{place}.externalAuth")
        mirror = part(route_filter, "requestMirror")
        yield from _fraction_causes(part(mirror, "fraction"), f"{place}.requestMirror.fraction")
        if reference := part(mirror, "backendRef"):
            yield from backend_port_causes(reference, f"{place}.requestMirror.backendRef")
    if seen["RequestRedirect"] and seen["URLRewrite"]:
        message = "have a RequestRedirect and a URLRewrite, but no backend receives a redirected request: leave one of them out"
        yield Cause(f"{where}.filters", message)


def session_causes(session: Mapping[str, Any], where: str) -> Iterator[Cause]:
    """Yield the mistakes in the sessionPersistence of a rule."""
    name, of_cookie = session.get("sessionName"), session.get("cookieConfig")
    if name and not (isinstance(name, str) and _TOKEN.fullmatch(name)):
        yield Cause(f"{where}.sessionName", "is no name of a cookie or header: use letters, digits, '-' and '_'")
    if session.get("type") == "Header" and isinstance(name, str) and _TAKEN.fullmatch(name.lower()):
        yield Cause(
            f"{where}.sessionName", f"{name!r} is the name of a header with another meaning; choose another name"
        )
    if session.get("type") == "Header" and of_cookie is not None:
        yield Cause(f"{where}.cookieConfig", "is not allowed with type Header; remove it")
    lifetime = of_cookie.get("lifetimeType") if isinstance(of_cookie, Mapping) else None
    timeout = session.get("absoluteTimeout")
    if lifetime == "Permanent" and not timeout:
        yield Cause(f"{where}.absoluteTimeout", "is missing: a cookie with lifetimeType Permanent needs it")
    if timeout is not None:
        try:
            durations.milliseconds(timeout)
        except (TypeError, ValueError):
            yield Cause(f"{where}.absoluteTimeout", "is no duration; write one such as 30m")


def _cors_causes(cors: Mapping[str, Any], where: str) -> Iterator[Cause]:
    """Yield a mistake for each list that has `*` beside names."""
    for field in ("allowOrigins", "allowMethods", "allowHeaders", "exposeHeaders"):
        names = cors.get(field)
        if isinstance(names, list | tuple) and "*" in names and len(names) > 1:
            yield Cause(f"{where}.{field}", "has '*' beside names; '*' stands for all, so leave the names out")


def _auth_causes(auth: Mapping[str, Any], where: str) -> Iterator[Cause]:
    """Yield mistakes in an authorization server: its settings are those of its protocol (GEP-1494)."""
    protocol = auth.get("protocol")
    for name, field in _PROTOCOLS.items():
        if protocol == name and auth.get(field) is None:
            yield Cause(f"{where}.{field}", f"is missing: protocol {protocol} needs it; {{}} is enough")
        elif protocol in _PROTOCOLS and protocol != name and auth.get(field) is not None:
            yield Cause(f"{where}.{field}", f"is not allowed with protocol {protocol}; leave it out")
    size = part(auth, "forwardBody").get("maxSize")
    if isinstance(size, int) and not 0 <= size <= _MOST_BODY:
        yield Cause(f"{where}.forwardBody.maxSize", f"is {size}; it is from 0 to {_MOST_BODY} bytes")
    if reference := part(auth, "backendRef"):
        yield from backend_port_causes(reference, f"{where}.backendRef")


def _written_causes(route_filter: Mapping[str, Any], place: str) -> Iterator[Cause]:
    """Yield mistakes in the texts that a filter writes into requests and responses."""
    for field in ("requestRedirect", "urlRewrite"):
        path = part(part(route_filter, field), "path")
        for modifier in _PATH_MODIFIERS.values():
            yield from text_causes({modifier: path.get(modifier)}, modifier, f"{place}.{field}.path", _line_fault)
    for field in ("requestHeaderModifier", "responseHeaderModifier"):
        for action in ("set", "add"):
            for spot, header in items(part(route_filter, field), action, f"{place}.{field}"):
                yield from text_causes(header, "value", spot, _line_fault)


def _line_fault(text: str) -> str:
    """Return why a proxy can't write a text into a message: a line break would begin another header (RFC 9110, 5.5)."""
    return "has a control character; remove it" if _CONTROL.search(text) else ""


def _union_causes(
    union: Mapping[str, Any], fields: Mapping[str, str], where: str, *, hint: str = ""
) -> Iterator[Cause]:
    """Yield a mistake if the field for an item's type is missing, and for each field that belongs to another type."""
    needed = fields.get(str(union.get("type")))
    if needed is None:
        return
    if union.get(needed) is None:
        yield Cause(f"{where}.{needed}", f"is missing: type {union['type']} needs it")
    for field in fields.values():
        if field != needed and union.get(field) is not None:
            yield Cause(f"{where}.{field}", f"is not allowed with type {union['type']}{hint}")


def _one_prefix(matches: object) -> bool:
    """Return whether a rule has exactly one match, of type PathPrefix. A rule without matches has the prefix `/`."""
    if not isinstance(matches, list | tuple) or not matches:
        return True
    only = part(matches[0], "path") if len(matches) == 1 else None
    return only is not None and (only.get("type") or "PathPrefix") == "PathPrefix"


def _fraction_causes(fraction: Mapping[str, Any], where: str) -> Iterator[Cause]:
    numerator, denominator = (
        _DEFAULT if fraction.get(name) is None else fraction[name] for name in ("numerator", "denominator")
    )
    if isinstance(numerator, int) and isinstance(denominator, int) and numerator > denominator > 0:
        message = (
            f"must be at most the denominator ({denominator}), not {numerator}: a request is mirrored at most once"
        )
        yield Cause(f"{where}.numerator", message)


def backend_port_causes(reference: Mapping[str, Any], where: str) -> Iterator[Cause]:
    """Yield a mistake if a reference to a Service has no port."""
    is_service = not reference.get("group") and (reference.get("kind") or "Service") == "Service"
    if is_service and reference.get("port") is None:
        yield Cause(f"{where}.port", "is missing: a reference to a Service needs its port")
