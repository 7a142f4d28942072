"""Parse the options that exclude connections from redirection."""

from collections.abc import Callable
from ipaddress import ip_network
from typing import NamedTuple, TypeVar

from headgate.envoy.node_ids import INBOUND_PORT, OUTBOUND_PORT
from headgate.errors import Cause, DecodeError

T = TypeVar("T")
LARGEST_PORT = 65_535
LARGEST_USER = 2**32 - 2  # the largest user ID; the kernel reserves 2**32 - 1 as invalid
INBOUND_PORTS = "excluded-inbound-ports"
OUTBOUND_PORTS = "excluded-outbound-ports"
ADDRESSES = "excluded-addresses"
USERS = "excluded-users"


class Exclusions(NamedTuple):
    """Ports, addresses and users whose connections are not redirected; `excluded_addresses` has IPv4 and IPv6 CIDRs.

    Inbound ports are the pod's own, outbound ports those of destinations. Users are numeric (uid).
    """

    excluded_inbound_ports: tuple[int, ...] = ()
    excluded_outbound_ports: tuple[int, ...] = ()
    excluded_addresses: tuple[str, ...] = ()
    excluded_users: tuple[int, ...] = ()


def parse_exclusions(
    *, inbound_ports: str = "", outbound_ports: str = "", addresses: str = "", users: str = ""
) -> Exclusions:
    """Parse comma-separated lists; an empty text is an empty list. Raises DecodeError, which lists all mistakes."""
    causes: list[Cause] = []

    def take(field: str, text: str, parse: Callable[[str], T]) -> tuple[T, ...]:
        parsed: dict[T, None] = {}  # without duplicates, in the order of the text
        for part in filter(None, map(str.strip, text.split(","))):
            try:
                parsed[parse(part)] = None
            except ValueError as error:
                causes.append(Cause(field, str(error)))
        return tuple(parsed)

    exclusions = Exclusions(
        excluded_inbound_ports=take(INBOUND_PORTS, inbound_ports, _inbound_port),
        excluded_outbound_ports=take(OUTBOUND_PORTS, outbound_ports, _port),
        excluded_addresses=take(ADDRESSES, addresses, _network),
        excluded_users=take(USERS, users, _user),
    )
    if causes:
        raise DecodeError(*causes)
    return exclusions


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= LARGEST_PORT):
        raise ValueError(f"{text!r} is not a port: write numbers from 1 to {LARGEST_PORT}, separated by commas")
    return int(text)


def _inbound_port(text: str) -> int:
    port = _port(text)
    if port in {INBOUND_PORT, OUTBOUND_PORT}:
        # Clients that reached these ports directly could use the outbound side, or choose the inbound destination.
        raise ValueError(f"{port} is the sidecar's own port, which stays closed to other pods; remove it from the list")
    return port


def _network(text: str) -> str:
    try:
        return str(ip_network(text))
    except ValueError as error:
        try:
            hint = (
                f"write {ip_network(text, strict=False)} for the whole network, or an address without a prefix length"
            )
        except ValueError:
            hint = "write addresses or networks, as in 10.96.0.1,10.0.0.0/8,fd00::/8"
        raise ValueError(f"{text!r} is not an address or a network: {hint}") from error


def _user(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= LARGEST_USER):
        raise ValueError(f"{text!r} is not a user ID: write numbers (uid), separated by commas")
    return int(text)
