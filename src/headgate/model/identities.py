"""Who a workload is: a SPIFFE ID, which its certificate carries (D21, R70), never an address or a header; and secrets."""

import re
from typing import NamedTuple

from headgate.resources.meta import Value


class PrivateText(str):
    """A secret: printed, logged and encoded as `[redacted]`; `reveal` gives the text."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "[redacted]"

    __str__ = __repr__

    def reveal(self) -> str:
        """Return the secret itself."""
        return str.__str__(self)


_ID = re.compile(r"spiffe://(?P<domain>[a-z0-9._-]+)/ns/(?P<namespace>[a-z0-9.-]+)/sa/(?P<account>[a-z0-9.-]+)")
SYSTEM_NAMESPACE = "headgate-system"
GATEWAY_ACCOUNT = "gateway"


class Account(NamedTuple):
    """A ServiceAccount within a trust domain."""

    domain: str
    namespace: str
    name: str


def spiffe_id(domain: str, namespace: str, account: str) -> str:
    """Return the identity of a ServiceAccount."""
    return f"spiffe://{domain}/ns/{namespace}/sa/{account}"


def gateway_id(domain: str) -> str:
    """Return the identity of the node's gateway: whoever calls through it is no more than that."""
    return spiffe_id(domain, SYSTEM_NAMESPACE, GATEWAY_ACCOUNT)


def is_gateway(namespace: str, account: str) -> bool:
    """Say whether an account is the gateway's own: a pod that had it would be taken for everybody who comes through that."""
    return (namespace, account) == (SYSTEM_NAMESPACE, GATEWAY_ACCOUNT)


def parse_id(text: str) -> Account | None:
    """Return the account of an identity; none for what is not one of ours."""
    found = _ID.fullmatch(text)
    return Account(found["domain"], found["namespace"], found["account"]) if found else None


class Credential(Value, frozen=True, kw_only=True):
    """What a proxy proves its identity with, as PEM: its certificate first in `chain`. The key is never printed.

    `roots` are the certificates of the authorities that it believes.
    """

    chain: str
    key: PrivateText
    roots: str
