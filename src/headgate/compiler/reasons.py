"""Every reason that headgate gives, with its meaning: a closed list, explained in docs/reasons.md."""

import enum
from typing import NamedTuple


class Severity(enum.StrEnum):
    """How bad a finding is: errors stop the object, warnings change what it does, notes only tell."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Condition(enum.StrEnum):
    """The condition of the object's status that a reason makes False."""

    ACCEPTED = "Accepted"
    RESOLVED_REFS = "ResolvedRefs"
    BACKENDS_READY = "BackendsReady"
    PROGRAMMED = "Programmed"


class Explained(NamedTuple):
    """What belongs to a reason."""

    severity: Severity
    condition: Condition
    meaning: str


class Reason(enum.Enum):
    """Why an object does not do all that it says. The value is the word in conditions and Events."""

    INVALID = "Invalid"
    SELF_REFERENCE = "SelfReference"
    CONFLICTED = "Conflicted"
    SERVICE_NOT_FOUND = "ServiceNotFound"
    BACKEND_NOT_FOUND = "BackendNotFound"
    PORT_MISMATCH = "PortMismatch"
    MATCH_NOT_FOUND = "MatchNotFound"
    REF_NOT_PERMITTED = "RefNotPermitted"
    NO_READY_ENDPOINTS = "NoReadyEndpoints"
    ALL_WEIGHTS_ZERO = "AllWeightsZero"
    PORT_NOT_BINDABLE = "PortNotBindable"
    NOT_ROUTED = "NotRouted"
    ENVOY_REJECTED = "EnvoyRejected"

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        return EXPLAINED[self].severity

    @property
    def condition(self) -> Condition:
        """The condition that it makes False."""
        return EXPLAINED[self].condition

    @property
    def meaning(self) -> str:
        """One line for people."""
        return EXPLAINED[self].meaning


_ERROR, _WARNING, _NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE
_ACCEPTED, _REFS = Condition.ACCEPTED, Condition.RESOLVED_REFS
_READY, _PROGRAMMED = Condition.BACKENDS_READY, Condition.PROGRAMMED

EXPLAINED = {
    Reason.INVALID: Explained(_ERROR, _ACCEPTED, "The object breaks a rule of its kind; it is ignored."),
    Reason.SELF_REFERENCE: Explained(
        _ERROR, _ACCEPTED, "The split's root is one of its own backends; the root keeps its plain behaviour."
    ),
    Reason.CONFLICTED: Explained(
        _ERROR, _ACCEPTED, "An older object has what this one asks for: a root service, or an address."
    ),
    Reason.SERVICE_NOT_FOUND: Explained(_WARNING, _REFS, "The root Service does not exist; there is nothing to split."),
    Reason.BACKEND_NOT_FOUND: Explained(_WARNING, _REFS, "The backend Service does not exist; it gets no traffic."),
    Reason.PORT_MISMATCH: Explained(
        _WARNING, _REFS, "The backend Service does not offer the root's port; it gets no traffic on that port."
    ),
    Reason.MATCH_NOT_FOUND: Explained(
        _WARNING, _REFS, "An HTTPRouteGroup of the split does not exist; it matches nothing."
    ),
    Reason.REF_NOT_PERMITTED: Explained(
        _WARNING, _REFS, "The Service is in another namespace and no ReferenceGrant there allows the reference."
    ),
    Reason.NO_READY_ENDPOINTS: Explained(
        _WARNING, _READY, "The backend has no ready endpoint; the others share its traffic."
    ),
    Reason.ALL_WEIGHTS_ZERO: Explained(
        _WARNING, _READY, "No backend with a weight above 0 is left; requests are answered with 503."
    ),
    Reason.PORT_NOT_BINDABLE: Explained(
        _WARNING, _PROGRAMMED, "This user may not listen on the port; it is reachable through the HTTP proxy only."
    ),
    Reason.NOT_ROUTED: Explained(_NOTE, _PROGRAMMED, "headgate does not route this port or Service."),
    Reason.ENVOY_REJECTED: Explained(_ERROR, _PROGRAMMED, "A proxy refused the configuration; it keeps the last one."),
}
