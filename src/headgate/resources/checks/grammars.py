"""The grammars of texts in the Gateway API's objects: each function says what is wrong, and nothing when all is well."""

import ipaddress
import re
from collections.abc import Callable, Mapping

from headgate import durations
from headgate.resources.definitions.parts import Schema
from headgate.resources.names import is_dns_label, is_dns_subdomain, label_fault, subdomain_fault

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
_KIND = re.compile(r"[A-Za-z]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?")
_CONTROLLER = re.compile(r"(?P<domain>[a-z0-9.-]+)/[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")
_SERVICE = re.compile(r"([A-Za-z][A-Za-z0-9_]*)(\.[A-Za-z][A-Za-z0-9_]*)*")
_METHOD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def hostname_fault(text: str) -> str:
    """Say what is wrong with a full host name: no address, no wildcard, no port, lower case."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        pass
    else:
        return f"{text!r} is an address; write a host name such as www.example.com"
    if text.startswith("*"):
        return f"{text!r} has a wildcard, which is not possible here; write a full host name"
    if ":" in text:
        return f"{text!r} must be a host name alone, without scheme and port"
    return "" if is_dns_subdomain(text) else _bad_host(text)


def wildcard_fault(text: str) -> str:
    """Say what is wrong with a host name that may begin with `*.` for all hosts below."""
    if text.startswith("*."):
        return "" if is_dns_subdomain(text[2:]) else _bad_host(text)
    if "*" in text:
        return f"{text!r} has a wildcard that is not the whole first label; write *.example.com"
    return hostname_fault(text)


def _bad_host(text: str) -> str:
    hint = f"; write {text.lower()}" if is_dns_subdomain(text.lower().removeprefix("*.")) else ""
    return f"{text!r} is not a host name: use lower case letters, digits, '-' and '.'{hint}"


def _duration_fault(text: str) -> str:
    try:
        durations.milliseconds(text)
    except ValueError as error:
        return str(error)
    return ""


def _header_fault(text: str) -> str:
    return "" if _HEADER.fullmatch(text) else f"{text!r} is not the name of a header"


def _group_fault(text: str) -> str:
    return "" if not text or is_dns_subdomain(text) else f"{text!r} is not an API group; the core group is ''"


def _kind_fault(text: str) -> str:
    return "" if _KIND.fullmatch(text) else f"{text!r} is not a kind; write for example Service"


def _controller_fault(text: str) -> str:
    found = _CONTROLLER.fullmatch(text)
    if found and all(map(is_dns_label, found["domain"].split("."))):
        return ""
    return f"{text!r} is not a controller: write a domain, a slash and a path, such as headgate.dev/gateway-controller"


def service_fault(text: str) -> str:
    """Say what is wrong with the full name of a gRPC service."""
    return "" if _SERVICE.fullmatch(text) else f"{text!r} is not a gRPC service; write for example com.example.User"


def method_fault(text: str) -> str:
    """Say what is wrong with the name of a gRPC method."""
    return "" if _METHOD.fullmatch(text) else f"{text!r} is not a gRPC method; write for example Login"


FORMATS: Mapping[str, Callable[[str], str]] = {
    "hostname": hostname_fault,
    "wildcard": wildcard_fault,
    "label": label_fault,
    "subdomain": subdomain_fault,
    "header": _header_fault,
}
"""By the name that a schema of ours gives as `format`."""

_NAME = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAMES = rf"{_NAME}(\.{_NAME})*"
PATTERNS: Mapping[str, Callable[[str], str]] = {
    rf"^{_NAME}$": label_fault,
    rf"^{_NAMES}$": subdomain_fault,
    rf"^(\*\.)?{_NAMES}$": wildcard_fault,
    rf"^$|^{_NAMES}$": _group_fault,
    "^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$": _kind_fault,
    rf"^{_NAMES}\/[A-Za-z0-9\/\-._~%!$&'()*+,;=:]+$": _controller_fault,
    r"^[A-Za-z0-9!#$%&'*+\-.^_\x60|~]+$": _header_fault,
    "^([0-9]{1,5}(h|m|s|ms)){1,4}$": _duration_fault,
}
"""By the `pattern` of a published schema."""


def fault(text: str, schema: Schema) -> str:
    """Say what is wrong with a text by its schema's `format` and `pattern`; empty when nothing is."""
    pattern = schema.get("pattern", "")
    grammar = FORMATS.get(schema.get("format", "")) or PATTERNS.get(pattern)
    if grammar:
        return grammar(text)
    return "" if re.search(pattern, text) else f"{text!r} does not match {pattern}"
