"""What can be wrong with a match of an HTTPRoute or GRPCRoute: paths, regular expressions, gRPC names (2.4)."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from headgate.errors import Cause
from headgate.resources import regexes
from headgate.resources.checks.grammars import method_fault, service_fault
from headgate.resources.checks.shared import part, rows

REGEX = "RegularExpression"
_PATH = re.compile(r"/([A-Za-z0-9/\-._~!$&'()*+,;=:@]|%[0-9a-fA-F]{2})*")
_FORBIDDEN = ("//", "/./", "/../", "%2f", "%2F", "#")
_FORBIDDEN_ENDS = ("/..", "/.")


def http_match_causes(match: Mapping[str, Any], where: str) -> Iterator[Cause]:
    """Yield mistakes of one match of an HTTPRoute that the schema can't say."""
    path = part(match, "path")
    value = path.get("value")
    if isinstance(value, str):
        fault = regexes.fault(value) if path.get("type") == REGEX else path_fault(value)
        if fault:
            yield Cause(f"{where}.path.value", fault if fault.startswith(repr(value)) else f"{value!r} {fault}")
    yield from _named_causes(match.get("headers"), f"{where}.headers")
    yield from _named_causes(match.get("queryParams"), f"{where}.queryParams")


def grpc_match_causes(match: Mapping[str, Any], where: str) -> Iterator[Cause]:
    """Yield mistakes of one match of a GRPCRoute that the schema can't say."""
    method = part(match, "method")
    if match.get("method") is not None and not (method.get("service") or method.get("method")):
        yield Cause(f"{where}.method", "names neither service nor method; name one, or leave it out for all calls")
    for field, grammar in (("service", service_fault), ("method", method_fault)):
        value = method.get(field)
        if isinstance(value, str) and value:
            fault = regexes.fault(value) if method.get("type") == REGEX else grammar(value)
            if fault:
                yield Cause(f"{where}.method.{field}", fault if fault.startswith(repr(value)) else f"{value!r} {fault}")
    yield from _named_causes(match.get("headers"), f"{where}.headers")


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


def _named_causes(value: object, where: str) -> Iterator[Cause]:
    for index, item in rows(value):
        pattern = item.get("value")
        if item.get("type") == REGEX and isinstance(pattern, str) and (fault := regexes.fault(pattern)):
            yield Cause(f"{where}[{index}].value", f"{pattern!r} {fault}")
