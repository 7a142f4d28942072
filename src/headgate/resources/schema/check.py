"""Compare a value with its schema: find unknown, missing and mistyped fields, and values out of limits.

The rooms of kinds compare fields with each other. The `format` or `pattern` in a text's schema selects a
grammar: a function that returns the fault of the text, or an empty text if it is valid.
"""

import difflib
import ipaddress
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from headgate import durations
from headgate.errors import Cause
from headgate.quantity import PERCENTAGE, SHARE, parse_percentage, parse_share
from headgate.resources import regexes
from headgate.resources.grammars import ACCOUNT_OR_ALL, HEADER_NAME, SPIFFE_ID, header_fault
from headgate.resources.meta import is_dns_label, is_dns_subdomain, label_fault, subdomain_fault, type_name
from headgate.resources.schema.builders import DURATION, MATCH_NAME, PERCENTILE, REQUEST_PATH, Schema

_WORDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
}
_USUAL = {"string": str, "integer": int, "number": float, "boolean": bool, "array": list, "object": dict}
_ALSO: Mapping[str, type | tuple[type, ...]] = {"number": int, "array": tuple, "object": Mapping}
_CONTROLLER = re.compile(r"(?P<domain>[a-z0-9.-]+)/[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")
_Path: TypeAlias = "tuple[()] | tuple[_Path, str | int]"


class SchemaResult(NamedTuple):
    """The result of comparing a value with its schema.

    `value` is the value without unknown fields. `unknown` has their paths, and `causes` has one cause for each mistake,
    unknown fields included.
    """

    value: Any
    unknown: Sequence[str]
    causes: Sequence[Cause]


def check_schema(obj: Any, schema: Schema, *, required: bool = True, skipped: Collection[str] = ()) -> SchemaResult:
    """Compare an object with its schema. A field with the value `null` counts as missing.

    With `required`, a missing required field is a mistake. `skipped` names top-level fields that are not checked.
    """
    walk = _Walk(required=required)
    value = walk.record(obj, schema, (), skipped)
    return SchemaResult(value, walk.unknown, walk.causes)


def type_causes(obj: Any, schema: Schema) -> Sequence[Cause]:
    """Return a cause for each field of an object that has the wrong type or is missing; unknown fields are allowed."""
    walk = _Walk(required=True, limits=False)
    walk.record(obj, schema, ())
    unknown = set(walk.unknown)
    return [cause for cause in walk.causes if cause.field not in unknown]


class _Walk:
    """A recursive comparison of a value with its schema, which collects mistakes.

    For speed, a path becomes text only when a mistake is reported.
    """

    def __init__(self, *, required: bool, limits: bool = True) -> None:
        self.unknown: list[str] = []
        self.causes: list[Cause] = []
        self._required = required
        self._limits = limits

    def value(self, value: Any, schema: Schema, path: _Path) -> Any:
        """Check a value; return it without unknown fields."""
        expected_type = schema.get("type")
        if expected_type is None:
            return value
        if type(value) is not _USUAL[expected_type] and not _fits(value, expected_type, schema):
            self._add(path, f"must be {_WORDS[expected_type]}, not {type_name(value)}{_hint(value, expected_type)}")
        elif expected_type == "object":
            return self.record(value, schema, path)
        elif expected_type == "array":
            return self._list(value, schema, path)
        elif self._limits and (
            message := _text_limits(value, schema) if isinstance(value, str) else _limits(value, schema)
        ):
            self._add(path, message)
        return value

    def record(self, value: Mapping[str, Any], schema: Schema, path: _Path, skipped: Collection[str] = ()) -> Any:
        """Check an object; return it without unknown fields."""
        fields: Mapping[str, Schema] = schema.get("properties", {})
        extra = schema.get("additionalProperties")
        for name in schema.get("required", ()) if self._required else ():
            if value.get(name) is None:
                self._add((path, name), "is missing")
        checked: dict[str, Any] = {}
        for name, content in value.items():
            field = fields.get(name, extra)
            if field is None and fields and not schema.get("x-kubernetes-preserve-unknown-fields"):
                self.unknown.append(_text((path, name)))
                self._add((path, name), _unknown_message(name, fields))
            elif field is None or content is None or name in skipped:
                checked[name] = content
            else:
                checked[name] = self.value(content, field, (path, name))
        return checked

    def _list(self, value: Sequence[Any], schema: Schema, path: _Path) -> list[Any]:
        least, most = schema.get("minItems", 0), schema.get("maxItems", len(value))
        if len(value) < least:
            self._add(path, f"must have at least {least} {'entry' if least == 1 else 'entries'}")
        if len(value) > most:
            self._add(path, f"must have at most {most} entries, not {len(value)}")
        items = schema.get("items", {})
        return [self.value(entry, items, (path, index)) for index, entry in enumerate(value)]

    def _add(self, path: _Path, message: str) -> None:
        self.causes.append(Cause(_text(path), message))


def _text(path: _Path) -> str:
    """Return a path as text: `spec.rules[0].name`."""
    if not path:
        return ""
    before, name = _text(path[0]), path[1]
    if isinstance(name, int):
        return f"{before}[{name}]"
    return f"{before}.{name}" if before else str(name)


def _fits(value: Any, expected_type: str, schema: Schema) -> bool:
    """Return whether a schema allows a value whose type is not the usual one, such as an `int` for a number."""
    if isinstance(value, bool):
        return False
    if schema.get("format") == "int-or-string":
        return isinstance(value, str | int | float)
    return isinstance(value, _ALSO.get(expected_type, ()))


def _hint(value: Any, expected_type: str) -> str:
    if expected_type == "integer" and isinstance(value, str):
        return "; write it without quotes"
    return "; write it with quotes" if expected_type == "string" and isinstance(value, int | float) else ""


def _unknown_message(name: object, fields: Collection[str]) -> str:
    nearest = difflib.get_close_matches(str(name), fields, n=1)
    hint = f"did you mean {nearest[0]}?" if nearest else f"known fields are {', '.join(fields)}"
    return f"is not a field; {hint}"


def _limits(value: Any, schema: Schema) -> str:
    if fault := _choice(value, schema):
        return fault
    least, most = schema.get("minimum", value), schema.get("maximum", value)
    if not least <= value <= most:
        limit = f"from {least} to {most}" if "maximum" in schema else f"{least} or more"
        return f"must be {limit}, not {value}"
    return ""


def _text_limits(value: str, schema: Schema) -> str:
    if fault := _choice(value, schema):
        return fault
    if len(value) < schema.get("minLength", 0):
        return "must not be empty"
    most = schema.get("maxLength")
    if most is not None and len(value) > most:
        return f"must have at most {most} characters, not {len(value)}"
    return _grammar_fault(value, schema) if "pattern" in schema or "format" in schema else ""


def _choice(value: Any, schema: Schema) -> str:
    allowed = schema.get("enum")
    if not allowed or value in allowed:
        return ""
    expected = f"one of {', '.join(map(str, allowed))}" if len(allowed) > 1 else allowed[0]
    return f"must be {expected}, not {value!r}"


def hostname_fault(text: str) -> str:
    """Return why a text is not a host name; empty if it is. IP addresses, wildcards and ports are not allowed."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        pass
    else:
        return f"{text!r} is an address; write a host name such as www.example.com"
    if text.startswith("*"):
        return f"{text!r} has a wildcard, which is not allowed here; write a full host name"
    if ":" in text:
        return f"{text!r} must be a host name alone, without scheme and port"
    return "" if is_dns_subdomain(text) else _bad_host(text)


def wildcard_fault(text: str) -> str:
    """Return why a text is neither a host name nor a wildcard such as `*.example.com`; empty if it is."""
    host = text.removeprefix("*.")
    if "*" in host:
        return f"{text!r} has a wildcard that is not the whole first label; write *.example.com"
    if host != text:
        return "" if is_dns_subdomain(host) else _bad_host(text)
    return hostname_fault(text)


def _bad_host(text: str) -> str:
    hint = f"; write {text.lower()}" if is_dns_subdomain(text.lower().removeprefix("*.")) else ""
    return f"{text!r} is not a host name: use lower case letters, digits, '-' and '.'{hint}"


def _parsing(parse: Callable[[str], object]) -> Callable[[str], str]:
    """Return a grammar: `parse` must accept a text; otherwise, its fault is the message of the ValueError."""

    def fault(text: str) -> str:
        try:
            parse(text)
        except ValueError as error:
            return str(error)
        return ""

    return fault


def _controller_fault(text: str) -> str:
    match = _CONTROLLER.fullmatch(text)
    if match and all(map(is_dns_label, match["domain"].split("."))):
        return ""
    return f"{text!r} is not the name of a controller: write a domain, a slash and a path, such as headgate.dev/gateway-controller"


def _matching(pattern: str, what: str) -> Callable[[str], str]:
    """Return a grammar: a text must match the whole pattern; otherwise, its fault says that it is not `what`."""
    return lambda text: "" if re.fullmatch(pattern, text) else f"{text!r} is not {what}"


service_fault = _matching(
    r"([A-Za-z][A-Za-z0-9_]*)(\.[A-Za-z][A-Za-z0-9_]*)*", "a gRPC service; write for example com.example.User"
)
"""The grammar of a gRPC service's full name."""
method_fault = _matching("[A-Za-z_][A-Za-z0-9_]*", "a gRPC method; write for example Login")
"""The grammar of a gRPC method's name."""
_kind_fault = _matching("[A-Za-z]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?", "a kind; write for example Service")


def _group_fault(text: str) -> str:
    return "" if not text or is_dns_subdomain(text) else f"{text!r} is not an API group; write '' for the core group"


FORMATS: Mapping[str, Callable[[str], str]] = {
    "hostname": hostname_fault,
    "wildcard": wildcard_fault,
    "label": label_fault,
    "subdomain": subdomain_fault,
    "header": header_fault,
}
"""Grammars by the `format` that headgate's own schemas use."""

_NAME = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAMES = rf"{_NAME}(\.{_NAME})*"
PATTERNS: Mapping[str, Callable[[str], str]] = {
    rf"^{_NAME}$": label_fault,
    rf"^{_NAMES}$": subdomain_fault,
    rf"^(\*\.)?{_NAMES}$": wildcard_fault,
    rf"^$|^{_NAMES}$": _group_fault,
    "^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$": _kind_fault,
    rf"^{_NAMES}\/[A-Za-z0-9\/\-._~%!$&'()*+,;=:]+$": _controller_fault,
    r"^[A-Za-z0-9!#$%&'*+\-.^_\x60|~]+$": header_fault,
    HEADER_NAME: _matching(HEADER_NAME, "the name of a header or cookie"),
    DURATION: _parsing(durations.milliseconds),
    PERCENTAGE: _parsing(parse_percentage),
    SHARE: _parsing(parse_share),
    REQUEST_PATH: _matching(REQUEST_PATH, "the path of a request; begin with / and escape other characters than ASCII"),
    MATCH_NAME: _matching(
        MATCH_NAME,
        "a name; use at most 253 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit",
    ),
    ACCOUNT_OR_ALL: _matching(ACCOUNT_OR_ALL, "the name of a ServiceAccount; write * for all of the namespace"),
    SPIFFE_ID: _matching(SPIFFE_ID, "a SPIFFE ID; write for example spiffe://cluster.local/ns/default/sa/client"),
    PERCENTILE: _matching(PERCENTILE, "a percentile; write p50 to p99, or more digits: p999 is 99.9%"),
}
"""Grammars by the `pattern` of published schemas; their messages are plainer than a regular expression."""

_MEANINGS: Mapping[str, str] = {
    r"(^\*$)|(^(http(s)?):\/\/(((\*\.)?([a-zA-Z0-9\-]+\.)*[a-zA-Z0-9-]+|\*)(:([0-9]{1,5}))?)$)": (
        "an origin; write for example https://shop.example, https://*.shop.example or *, without a path"
    ),
    r"^(([^:/?#]+):)(//([^/?#]*))([^?#]*)(\?([^#]*))?(#(.*))?": "a URI; write for example spiffe://cluster.local/ns/shop/sa/web",
    rf"^(System|({_NAMES}/([A-Za-z0-9][-A-Za-z0-9_.]{{0,61}})?[A-Za-z0-9]))$": "a set of CA certificates; write System",
    rf"^[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?$|{_NAMES}\/[A-Za-z0-9]+$": (
        "a protocol; write HTTP, HTTPS, TLS, TCP or UDP, or a domain, a slash and a name"
    ),
    r"^(?:[-A-Za-z0-9/._~!$&'()*+,;=:@]|[%][0-9a-fA-F]{2})+$": (
        "the path of a URL; escape other characters than ASCII letters, digits and -/._~!$&'()*+,;=:@ as %20"
    ),
}
"""What else the `pattern` of a published schema accepts, for messages about a text that does not match it."""


def _grammar_fault(text: str, schema: Schema) -> str:
    """Return why a text violates the `format` or `pattern` of its schema; empty if it does not."""
    pattern = schema.get("pattern", "")
    grammar = FORMATS.get(schema.get("format", "")) or PATTERNS.get(pattern)
    if grammar:
        return grammar(text)
    if not pattern or regexes.search(pattern, text):
        return ""
    meaning = _MEANINGS.get(pattern)
    return f"{text!r} is not {meaning}" if meaning else f"{text!r} does not match {pattern}"
