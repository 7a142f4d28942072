"""Write texts as words of HAProxy's configuration, and as format strings."""

import re

from headgate.model.routing import PortRef
from headgate.render.proxy_ports import ProxyPort
from headgate.resources.meta import Key

_PLAIN = re.compile(r"[A-Za-z0-9_.:/@,()\[\]*=<>!-]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_UNNAMED = re.compile(r"[^A-Za-z0-9_.:-]")
NO_TEXT = "%[str()]"  # HAProxy refuses an empty format string


def is_writable(*texts: str) -> bool:
    """Return whether no text has a control character, which a line of the configuration cannot contain."""
    return not any(map(_CONTROL.search, texts))


def word(text: str) -> str:
    """Return a text as one word. Raises ValueError for a control character, which would end the line."""
    if not is_writable(text):
        raise ValueError(f"{text!r} has a control character")
    if _PLAIN.fullmatch(text):
        return text
    return "'" + text.replace("'", r"'\''") + "'"


def literal(text: str) -> str:
    """Return a format string for a text, as one word; `%` begins a sample in a format string."""
    return word(text.replace("%", "%%") or NO_TEXT)


def name_of(*parts: object) -> str:
    """Return the name of a section, a condition or a server from its parts; they are separated by colons."""
    return ":".join(_UNNAMED.sub("_", str(part)) for part in parts)


def service_name(ref: PortRef) -> str:
    """Return the name of a Service port: `default.website:8080`."""
    return name_of(ref.service.replace("/", "."), ref.port)


def port_name(port: ProxyPort) -> str:
    """Return the name of a port: `port:8080`, or `10.0.0.1:8080` with an address."""
    return name_of(port.address or "port", port.port)


def owner_name(port: ProxyPort, owner: Key) -> str:
    """Return the name of a Service or a Gateway on a port: `default.website:8080`."""
    name = name_of(f"{owner.namespace}.{owner.name}", port.port)
    return name_of(port.address, name) if port.address else name
