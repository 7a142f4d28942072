"""Identities of workloads as SPIFFE IDs in certificates (D21, R70), and values that keep secrets out of logs."""

import re
from typing import NamedTuple

from headgate.resources.meta import SYSTEM_NAMESPACE, Value


class PrivateText(str):
    """A secret text. Its printed, logged and encoded form is `[redacted]`; only `reveal` returns the secret."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "[redacted]"

    __str__ = __repr__

    def reveal(self) -> str:
        """Return the secret itself."""
        return str.__str__(self)


_ID = re.compile(r"spiffe://(?P<domain>[a-z0-9._-]+)/ns/(?P<namespace>[a-z0-9.-]+)/sa/(?P<account>[a-z0-9.-]+)")
GATEWAY_ACCOUNT = "gateway"


class Account(NamedTuple):
    """A ServiceAccount within a trust domain."""

    domain: str
    namespace: str
    name: str


def spiffe_id(domain: str, namespace: str, account: str) -> str:
    """Return the SPIFFE ID of a ServiceAccount."""
    return f"spiffe://{domain}/ns/{namespace}/sa/{account}"


def gateway_id(domain: str) -> str:
    """Return the SPIFFE ID of the node's gateway.

    A workload sees this ID as the caller of all requests from the gateway.
    """
    return spiffe_id(domain, SYSTEM_NAMESPACE, GATEWAY_ACCOUNT)


def is_gateway(namespace: str, account: str) -> bool:
    """Return whether a ServiceAccount is reserved for the gateway.

    A pod with this account would have the identity of all clients behind the gateway.
    """
    return (namespace, account) == (SYSTEM_NAMESPACE, GATEWAY_ACCOUNT)


def parse_id(text: str) -> Account | None:
    """Return the ServiceAccount of a SPIFFE ID; None for an ID in another format."""
    match = _ID.fullmatch(text)
    return Account(match["domain"], match["namespace"], match["account"]) if match else None


class Credential(Value, frozen=True, kw_only=True):
    """The certificate chain and private key of a proxy as PEM; the key is never printed.

    The proxy's own certificate comes first in `chain`. `roots` has the root certificates that the proxy trusts.
    `issued` is the time of issue in seconds since the epoch, 0 if unknown. The certificate is valid from an earlier
    time, because the clocks of machines differ.
    """

    chain: str
    key: PrivateText
    roots: str
    issued: float = 0.0
