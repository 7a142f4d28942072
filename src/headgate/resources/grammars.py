"""Grammars of texts in Kubernetes' kinds: each function returns the fault of a text, or an empty text."""

import re
from pathlib import PurePosixPath

from headgate.resources.meta import is_dns_label

_PORT_NAME = re.compile(r"(?=.*[a-z])(?!.*--)[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?")
_VARIABLE = re.compile("[ -<>-~]+")  # printable ASCII except `=`
_CONFIG_KEY = re.compile("[-._a-zA-Z0-9]{1,253}")
HEADER_CHARACTER = "[!#$%&'*+.^_`|~0-9A-Za-z-]"
"""A character in the name of a header, or in another token of HTTP (RFC 9110, 5.6.2)."""
HEADER_NAME = f"^{HEADER_CHARACTER}{{1,256}}$"
"""The pattern for the name of a header or cookie."""
_HEADER = re.compile(HEADER_NAME)
ACCOUNT_OR_ALL = r"^(\*|[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)$"
"""The pattern of a ServiceAccount's name, or of `*` for all ServiceAccounts."""
SPIFFE_ID = r"^spiffe://[a-z0-9._-]{1,255}(/[A-Za-z0-9._-]+)+$"
"""The pattern of a SPIFFE ID with a path. No character of it is special to Envoy or to `model.access.source_includes`."""


def service_port_name_fault(text: str) -> str:
    """Return why a text is not the name of a container's port (RFC 6335)."""
    if _PORT_NAME.fullmatch(text):
        return ""
    return (
        f"{text!r} is not the name of a port: use at most 15 lower case letters, digits and '-', with a letter, "
        "beginning and ending with a letter or digit"
    )


def variable_fault(text: str) -> str:
    """Return why a text is not the name of an environment variable, or the beginning of one."""
    return (
        "" if _VARIABLE.fullmatch(text) else f"{text!r} is not the name of a variable: use printable ASCII except '='"
    )


def config_key_fault(text: str) -> str:
    """Return why a text is not a key of a ConfigMap or Secret, which is also the name of a file."""
    if _CONFIG_KEY.fullmatch(text) and text != "." and not text.startswith(".."):
        return ""
    return f"{text!r} is not a valid key: use at most 253 letters, digits, '-', '_' and '.', not beginning with '..'"


def inner_path_fault(text: str) -> str:
    """Return why a text is not a path inside a volume."""
    path = PurePosixPath(text)
    if path.is_absolute() or ".." in path.parts or text.startswith("..") or not text.isprintable():
        return f"path {text!r} leads out of the volume; use a relative path without '..'"
    return ""


def host_path_fault(text: str) -> str:
    """Return why a text is not the path of a directory or file of the machine."""
    return f"{text!r} has the part '..'; write the path without it" if ".." in PurePosixPath(text).parts else ""


def header_fault(text: str) -> str:
    """Return why a text is not the name of a header."""
    return "" if _HEADER.fullmatch(text) else f"{text!r} is not the name of a header"


def volume_fault(text: str) -> str:
    """Return why a text is not the name of a volume."""
    return "" if is_dns_label(text) else f"{text!r} is not the name of a volume: use lower case letters, digits and '-'"
