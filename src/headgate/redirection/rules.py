"""The rules of netfilter that bring a pod's TCP connections to its proxy, as `iptables-restore --noflush` reads them.

What is where: connections of the application go to OUTBOUND_PORT, those of other pods to INBOUND_PORT; the proxy itself,
loopback and the orchestrator's health checks are left alone. Only TCP is touched, so UDP (DNS) is as without a sidecar.
"""

from collections.abc import Iterator
from ipaddress import ip_network
from typing import NamedTuple

from headgate.envoy.view import INBOUND_PORT, OUTBOUND_PORT, TRANSPARENT_UID
from headgate.model.routing import PROBE_PORT
from headgate.redirection.exclusions import Exclusions

OUT = "HEADGATE_OUT"
IN = "HEADGATE_IN"
CHAINS = (IN, OUT)
JUMPS = (f"-A PREROUTING -p tcp -j {IN}", f"-A OUTPUT -p tcp -j {OUT}")
DNS_PORT = 53
LOOPBACK = {4: "127.0.0.0/8", 6: "::1/128"}
INBOUND_SOURCE = {4: "127.0.0.6/32", 6: "::6/128"}
"""From where the proxy's inbound side calls the application, which tells it from the outbound side's calls."""


class Rules(NamedTuple):
    """The same rules for both families, each as a whole transaction."""

    ipv4: str
    ipv6: str


def rules(exclusions: Exclusions) -> Rules:
    """Return what is to be in force; adding it again replaces the chains and doubles the jumps (see `update_transaction`)."""
    return Rules(_text(exclusions, 4), _text(exclusions, 6))


def rule_lines(text: str) -> tuple[str, ...]:
    """Return the rules of a text, jumps too, without comments and frame."""
    return tuple(line for line in text.splitlines() if line.startswith("-A "))


def update_transaction(text: str, saved: str) -> str:
    """Return the transaction that brings a table to `text`, whatever an earlier one left there; `saved` is the table now.

    Declaring a chain empties it, so the chains are replaced as a whole; the jumps are added only when there are none.
    """
    there = {line.strip() for line in saved.splitlines()}
    kept = [line for line in text.splitlines() if line not in JUMPS or line not in there]
    return "\n".join([*kept, ""])


def removal_transaction(saved: str) -> str:
    """Return the transaction that takes away what `rules` adds, and nothing else; empty when nothing is there."""
    there = [line.strip() for line in saved.splitlines()]
    jumps = ["-D" + line.removeprefix("-A") for line in there if line in JUMPS]
    chains = [chain for chain in CHAINS if any(line.startswith(f":{chain} ") for line in there)]
    if not jumps and not chains:
        return ""
    steps = [*jumps, *(f"-F {chain}" for chain in chains), *(f"-X {chain}" for chain in chains)]
    return "\n".join(["*nat", *steps, "COMMIT", ""])


def own_rules(saved: str) -> tuple[str, ...]:
    """Return those rules of a saved table that are headgate's."""
    return tuple(
        line.strip()
        for line in saved.splitlines()
        if line.strip() in JUMPS or line.startswith(tuple(f"-A {chain} " for chain in CHAINS))
    )


def _text(exclusions: Exclusions, family: int) -> str:
    body = [*_inbound(exclusions), *_outbound(exclusions, family)]
    return "\n".join(["*nat", *(f":{chain} - [0:0]" for chain in CHAINS), *JUMPS, *body, "COMMIT", ""])


def _inbound(exclusions: Exclusions) -> Iterator[str]:
    yield "# Health checks of the orchestrator, which has no identity: the proxy makes them itself."
    yield f"-A {IN} -p tcp -m tcp --dport {PROBE_PORT} -j RETURN"
    if exclusions.excluded_inbound_ports:
        yield "# Ports that the pod asks to leave alone."
    for port in exclusions.excluded_inbound_ports:
        yield f"-A {IN} -p tcp -m tcp --dport {port} -j RETURN"
    yield "# Everything else from other pods."
    yield f"-A {IN} -p tcp -j REDIRECT --to-ports {INBOUND_PORT}"


def _outbound(exclusions: Exclusions, family: int) -> Iterator[str]:
    yield "# The proxy's inbound side calls the application from an address of its own."
    yield f"-A {OUT} -s {INBOUND_SOURCE[family]} -o lo -j RETURN"
    yield "# Loopback belongs to the pod."
    yield f"-A {OUT} -d {LOOPBACK[family]} -o lo -j RETURN"
    users = [user for user in exclusions.excluded_users if user != TRANSPARENT_UID]
    if users:
        yield "# Users that are asked to be left alone."
    for user in users:
        yield f"-A {OUT} -m owner --uid-owner {user} -j RETURN"
    yield "# The pod called its own Service, and the proxy chose the pod itself: in through the proxy, as from elsewhere."
    yield f"-A {OUT} -o lo -m owner --uid-owner {TRANSPARENT_UID} -j {IN}"
    yield "# The application calls the pod's own address."
    yield f"-A {OUT} -o lo -j RETURN"
    yield "# The proxy calls others."
    yield f"-A {OUT} -m owner --uid-owner {TRANSPARENT_UID} -j RETURN"
    yield "# DNS over TCP is as DNS over UDP: left alone."
    ports = dict.fromkeys((DNS_PORT, *exclusions.excluded_outbound_ports))
    yield from (f"-A {OUT} -p tcp -m tcp --dport {port} -j RETURN" for port in ports)
    networks = [text for text in exclusions.excluded_addresses if ip_network(text).version == family]
    if networks:
        yield "# Addresses that are asked to be left alone."
    yield from (f"-A {OUT} -d {network} -j RETURN" for network in networks)
    yield "# Everything else that the application calls."
    yield f"-A {OUT} -p tcp -j REDIRECT --to-ports {OUTBOUND_PORT}"
