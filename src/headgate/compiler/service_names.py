"""The service names of IANA's registry, which Kubernetes allows as `appProtocol` (D16). Read once, at import."""

from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType

from headgate.model.routing import Protocol

_FILE = "service_names.txt"  # says where the names come from
_MARKED = "tls"


def _read(text: str) -> dict[str, Protocol]:
    words = (line.split() for line in text.splitlines() if not line.startswith("#"))
    return {name: Protocol.TLS if _MARKED in marks else Protocol.TCP for name, *marks in words}


REGISTERED: Mapping[str, Protocol] = MappingProxyType(
    _read(files("headgate.compiler").joinpath(_FILE).read_text(encoding="ascii"))
)
"""Names in lower case: those of protocols over TLS are TLS, all others are TCP."""
