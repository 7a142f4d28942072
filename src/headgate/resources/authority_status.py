"""The public state of the certificate authority, as the ConfigMap `headgate-ca` has it: `identity.ca_status` writes it."""

import enum

import msgspec

from headgate.resources.meta import SYSTEM_NAMESPACE, Input, Key

CONFIG_MAP = Key("", "ConfigMap", SYSTEM_NAMESPACE, "headgate-ca")
ROTATE = "headgate.dev/rotate-ca"
ROOTS, STATUS = "roots.pem", "status.json"


class RotationPhase(enum.StrEnum):
    """The current step of a rotation. It is unknown until the keys have been read."""

    UNKNOWN = "unknown"
    STABLE = "stable"
    TRUST_NEW = "trust-new"
    SIGN_NEW = "sign-new"
    DROP_OLD = "drop-old"


class RootStatus(Input, frozen=True, kw_only=True):
    """A trusted root. `signs` is True for the root that signs certificates. Times are RFC 3339."""

    fingerprint: str
    subject: str
    not_before: str
    not_after: str
    signs: bool = False


class CaStatus(Input, frozen=True, kw_only=True):
    """The authority's state. `phase` is empty if the authority is not headgate's own, because headgate does not rotate it, and
    `unknown` if its keys can't be read.

    `waiting` (node IDs) and `faults` (by node ID) contain the first twenty entries; `waits` and `faulty` have the total
    numbers. `distributing` says that the API server and the volumes of pods may not have the new root yet. `answered` is the text of the last handled request for a rotation.
    """

    phase: str = ""
    waits: int = 0
    waiting: tuple[str, ...] = ()
    distributing: bool = False
    answered: str = ""
    fault: str = ""
    certificates: int = 0
    faulty: int = 0
    faults: dict[str, str] = msgspec.field(default_factory=dict)
    roots: tuple[RootStatus, ...] = ()
