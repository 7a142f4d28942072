"""Checks of fields that Services and EndpointSlices share: ports, protocols and addresses."""

from collections.abc import Callable, Collection, Iterator, Mapping
from ipaddress import IPv4Address, IPv6Address
from typing import Any

from headgate.errors import Cause
from headgate.resources.meta import label_key_fault
from headgate.resources.schema.builders import LARGEST_PORT

ADDRESS_TYPES: Mapping[object, type[IPv4Address | IPv6Address]] = {"IPv4": IPv4Address, "IPv6": IPv6Address}
_PROTOCOLS = ("TCP", "UDP", "SCTP")


def number_causes(value: object, where: str) -> Iterator[Cause]:
    """Yield a mistake if a value is not the number of a port."""
    if value is None:
        yield Cause(where, "is missing")
    elif type(value) is int and not 1 <= value <= LARGEST_PORT:
        yield Cause(where, f"must be from 1 to {LARGEST_PORT}, not {value}")


def protocol_causes(port: Mapping[str, Any], where: str) -> Iterator[Cause]:
    """Yield mistakes in the protocols of a port."""
    yield from choice_causes(port.get("protocol"), _PROTOCOLS, f"{where}.protocol")
    yield from fault_causes(port.get("appProtocol"), label_key_fault, f"{where}.appProtocol")


def required_choice_causes(text: str, allowed: Collection[str], where: str) -> Iterator[Cause]:
    """Yield a mistake if a text, also an empty one, is not one of those that are allowed."""
    if text not in allowed:
        yield Cause(where, f"must be {' or '.join(allowed)}, not {text!r}")


def choice_causes(value: object, allowed: Collection[str], where: str) -> Iterator[Cause]:
    """Yield a mistake if a text is not one of those that are allowed. An empty text counts as missing."""
    if isinstance(value, str) and value:
        yield from required_choice_causes(value, allowed, where)


def fault_causes(value: object, grammar: Callable[[str], str], where: str) -> Iterator[Cause]:
    """Yield the fault of a text. An empty text counts as missing."""
    if isinstance(value, str) and value and (fault := grammar(value)):
        yield Cause(where, fault)


def is_address(text: str, *kinds: type[IPv4Address | IPv6Address]) -> bool:
    """Return whether a text is an address with one of several types."""
    for kind in kinds:
        try:
            kind(text)
        except ValueError:
            continue
        return True
    return False
