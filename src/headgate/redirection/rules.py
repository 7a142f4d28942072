"""The netfilter rules that redirect a pod's TCP connections, as text for `iptables-restore --noflush`.

Connections of the application go to OUTBOUND_PORT, and those of other pods to INBOUND_PORT. Connections of the proxy,
of loopback and of the kubelet's probes are not redirected. The rules are for TCP only, so UDP (DNS) works as without
a sidecar.
"""

from collections.abc import Iterator
from ipaddress import ip_network
from typing import NamedTuple

from headgate.envoy.node_ids import DEFAULT_USER, INBOUND_PORT, OUTBOUND_PORT, PROBE_PORT
from headgate.redirection.exclusions import Exclusions

OUT = "HEADGATE_OUT"
IN = "HEADGATE_IN"
CHAINS = (IN, OUT)
JUMPS = (f"-A PREROUTING -p tcp -j {IN}", f"-A OUTPUT -p tcp -j {OUT}")
DNS_PORT = 53
LOOPBACK = {4: "127.0.0.0/8", 6: "::1/128"}
INBOUND_SOURCE = {4: "127.0.0.6/32", 6: "::6/128"}
"""The source address of calls from the proxy's inbound side to the application, for IPv4 and IPv6. By this address, the
kernel distinguishes these calls from those of the outbound side. No application listens on it, so `verification` connects to it."""
CONFIRMATIONS = {
    family: f"-A {OUT} -d {source} -o lo -p tcp -j REDIRECT --to-ports {OUTBOUND_PORT}"
    for family, source in INBOUND_SOURCE.items()
}
"""The rules by which `verification` recognizes that the connections are redirected, for IPv4 and IPv6."""


class RedirectionRules(NamedTuple):
    """The rules for IPv4 and for IPv6, each as a complete transaction."""

    ipv4: str
    ipv6: str


def rules(exclusions: Exclusions, user: int = DEFAULT_USER, *, group: int = 0, mark: int = 0) -> RedirectionRules:
    """Return the rules that redirect all connections except the exclusions, and those of the proxy, which runs as `user`.

    With `group` or `mark`, the proxy is recognized by this group or by this mark of its packets instead, and its user may be that
    of applications. Applying the rules twice replaces the chains but duplicates the jumps to them; `update_transaction` avoids that.
    """
    proxy = f"owner --gid-owner {group}" if group else f"owner --uid-owner {user}"
    if mark:
        proxy = f"mark --mark {mark:#x}"
    users = tuple(excluded for excluded in exclusions.excluded_users if group or mark or excluded != user)
    exclusions = exclusions._replace(excluded_users=users)
    return RedirectionRules(_text(exclusions, proxy, 4), _text(exclusions, proxy, 6))


def rule_lines(text: str) -> tuple[str, ...]:
    """Return the rules in a text, including jumps, without comments and commands."""
    return tuple(line for line in text.splitlines() if line.startswith("-A "))


def update_transaction(text: str, saved: str) -> str:
    """Return the transaction that changes a table to `text`; `saved` is the current table.

    The transaction declares the chains, which empties them, and adds all rules. It adds only those jumps that are
    missing.
    """
    there = {line.strip() for line in saved.splitlines()}
    kept = [line for line in text.splitlines() if line not in JUMPS or line not in there]
    return "\n".join([*kept, ""])


def without_confirmation(text: str) -> str:
    """Return a text without its rule of CONFIRMATIONS."""
    return "".join(line for line in text.splitlines(keepends=True) if line.strip() not in CONFIRMATIONS.values())


def confirmation_transaction(text: str) -> str:
    """Return the transaction that inserts the rule of CONFIRMATIONS in its place among the other rules of a text."""
    chain = [line for line in rule_lines(text) if line.startswith(f"-A {OUT} ")]
    place, rule = next((place, rule) for place, rule in enumerate(chain, 1) if rule in CONFIRMATIONS.values())
    return "\n".join(["*nat", rule.replace(f"-A {OUT} ", f"-I {OUT} {place} ", 1), "COMMIT", ""])


def removal_transaction(saved: str) -> str:
    """Return the transaction that removes headgate's chains and jumps from a saved table; empty if there are none."""
    there = [line.strip() for line in saved.splitlines()]
    jumps = ["-D" + line.removeprefix("-A") for line in there if line in JUMPS]
    chains = [chain for chain in CHAINS if any(line.startswith(f":{chain} ") for line in there)]
    if not jumps and not chains:
        return ""
    steps = [*jumps, *(f"-F {chain}" for chain in chains), *(f"-X {chain}" for chain in chains)]
    return "\n".join(["*nat", *steps, "COMMIT", ""])


def own_rules(saved: str) -> tuple[str, ...]:
    """Return headgate's rules in a saved table."""
    return tuple(
        line.strip()
        for line in saved.splitlines()
        if line.strip() in JUMPS or line.startswith(tuple(f"-A {chain} " for chain in CHAINS))
    )


def _text(exclusions: Exclusions, proxy: str, family: int) -> str:
    body = [*_inbound(exclusions), *_outbound(exclusions, proxy, family)]
    return "\n".join(["*nat", *(f":{chain} - [0:0]" for chain in CHAINS), *JUMPS, *body, "COMMIT", ""])


def _inbound(exclusions: Exclusions) -> Iterator[str]:
    yield "# Probes of the kubelet, which has no identity: the proxy serves them on a port of its own."
    yield f"-A {IN} -p tcp -m tcp --dport {PROBE_PORT} -j RETURN"
    if exclusions.excluded_inbound_ports:
        yield "# Inbound ports that are excluded."
    for port in exclusions.excluded_inbound_ports:
        yield f"-A {IN} -p tcp -m tcp --dport {port} -j RETURN"
    yield "# All other connections from other pods."
    yield f"-A {IN} -p tcp -j REDIRECT --to-ports {INBOUND_PORT}"


def _outbound(exclusions: Exclusions, proxy: str, family: int) -> Iterator[str]:
    yield "# The proxy's inbound side calls the application from this address."
    yield f"-A {OUT} -s {INBOUND_SOURCE[family]} -o lo -j RETURN"
    yield "# A container that waits for the redirection connects to this address, and reaches the proxy's outbound side."
    yield f"-A {OUT} -d {INBOUND_SOURCE[family]} -o lo -m {proxy} -j RETURN"
    yield CONFIRMATIONS[family]
    yield "# Loopback connections are not redirected."
    yield f"-A {OUT} -d {LOOPBACK[family]} -o lo -j RETURN"
    if exclusions.excluded_users:
        yield "# Users that are excluded."
    for user in exclusions.excluded_users:
        yield f"-A {OUT} -m owner --uid-owner {user} -j RETURN"
    yield "# The pod called its own Service and the proxy selected this pod: enter through the inbound side."
    yield f"-A {OUT} -o lo -m {proxy} -j {IN}"
    yield "# The application calls the pod's own address."
    yield f"-A {OUT} -o lo -j RETURN"
    yield "# The proxy calls other pods."
    yield f"-A {OUT} -m {proxy} -j RETURN"
    yield "# DNS over TCP is not redirected, like DNS over UDP."
    ports = dict.fromkeys((DNS_PORT, *exclusions.excluded_outbound_ports))
    yield from (f"-A {OUT} -p tcp -m tcp --dport {port} -j RETURN" for port in ports)
    networks = [text for text in exclusions.excluded_addresses if ip_network(text).version == family]
    if networks:
        yield "# Addresses that are excluded."
    yield from (f"-A {OUT} -d {network} -j RETURN" for network in networks)
    yield "# All other connections of the application."
    yield f"-A {OUT} -p tcp -j REDIRECT --to-ports {OUTBOUND_PORT}"
