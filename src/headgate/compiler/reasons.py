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
    PROTOCOL_MISMATCH = "ProtocolMismatch"
    MATCH_NOT_FOUND = "MatchNotFound"
    REF_NOT_PERMITTED = "RefNotPermitted"
    NO_READY_ENDPOINTS = "NoReadyEndpoints"
    ALL_WEIGHTS_ZERO = "AllWeightsZero"
    WEIGHTS_ROUNDED = "WeightsRounded"
    STICKY_NOT_APPLICABLE = "StickyNotApplicable"
    PORT_NOT_BINDABLE = "PortNotBindable"
    NOT_ROUTED = "NotRouted"
    NAME_NOT_RESOLVED = "NameNotResolved"
    SHADOWED = "Shadowed"
    NEVER_MATCHES = "NeverMatches"
    NO_EFFECT = "NoEffect"
    MATCH_NOT_APPLICABLE = "MatchNotApplicable"
    PROTOCOL_CONFLICT = "ProtocolConflict"
    UNKNOWN_PROTOCOL = "UnknownProtocol"
    TARGET_PORT_NOT_DECLARED = "TargetPortNotDeclared"
    ENVOY_REJECTED = "EnvoyRejected"
    NO_MATCHING_PARENT = "NoMatchingParent"
    NOT_ALLOWED_BY_LISTENERS = "NotAllowedByListeners"
    NO_MATCHING_LISTENER_HOSTNAME = "NoMatchingListenerHostname"
    UNSUPPORTED_VALUE = "UnsupportedValue"
    CONSUMER_ROUTE = "ConsumerRoute"
    INVALID_KIND = "InvalidKind"
    UNSUPPORTED_PROTOCOL = "UnsupportedProtocol"
    INVALID_ROUTE_KINDS = "InvalidRouteKinds"
    INVALID_CERTIFICATE_REF = "InvalidCertificateRef"
    LISTENER_PROTOCOL_CONFLICT = "ListenerProtocolConflict"
    INVALID_PARAMETERS = "InvalidParameters"
    UNSUPPORTED_ADDRESS = "UnsupportedAddress"
    ADDRESS_NOT_USABLE = "AddressNotUsable"
    ADDRESS_NOT_ASSIGNED = "AddressNotAssigned"
    NAME_REPEATED = "NameRepeated"
    PERCENT_IGNORED = "PercentIgnored"
    FRACTION_ROUNDED = "FractionRounded"
    FIELD_IGNORED = "FieldIgnored"
    TOO_MANY_MATCHES = "TooManyMatches"
    COPIES_DROPPED = "CopiesDropped"
    NO_PODS = "NoPods"
    NOT_ENFORCED = "NotEnforced"
    RULE_NOT_FOUND = "RuleNotFound"
    RULE_NOT_APPLICABLE = "RuleNotApplicable"
    SUBJECTS_MERGED = "SubjectsMerged"
    IDENTITY_UNAVAILABLE = "IdentityUnavailable"

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
        _ERROR, _ACCEPTED, "An older object has what this one asks for: a root service, an address, or a listener."
    ),
    Reason.SERVICE_NOT_FOUND: Explained(_WARNING, _REFS, "The root Service does not exist; there is nothing to split."),
    Reason.BACKEND_NOT_FOUND: Explained(_WARNING, _REFS, "The backend Service does not exist; it gets no traffic."),
    Reason.PORT_MISMATCH: Explained(
        _WARNING, _REFS, "The backend Service does not offer the root's port; it gets no traffic on that port."
    ),
    Reason.PROTOCOL_MISMATCH: Explained(
        _WARNING,
        _REFS,
        "The backend Service's port is not HTTP and the root's is, or the other way; it gets no traffic.",
    ),
    Reason.MATCH_NOT_FOUND: Explained(
        _WARNING, _REFS, "An HTTPRouteGroup of the split does not exist; it matches nothing."
    ),
    Reason.REF_NOT_PERMITTED: Explained(
        _WARNING, _REFS, "The Service is in another namespace and no ReferenceGrant there allows the reference."
    ),
    Reason.NO_READY_ENDPOINTS: Explained(
        _WARNING,
        _READY,
        "The backend has no ready endpoint: the others of a split share its traffic, a route answers its share with 503.",
    ),
    Reason.ALL_WEIGHTS_ZERO: Explained(
        _WARNING, _READY, "No backend has a weight above 0; requests are answered with an error."
    ),
    Reason.WEIGHTS_ROUNDED: Explained(
        _NOTE, _PROGRAMMED, "The weights of a sticky split are not whole 10 000ths; the nearest are used."
    ),
    Reason.STICKY_NOT_APPLICABLE: Explained(
        _WARNING, _PROGRAMMED, "The port carries connections, not requests; its users do not stay on their side."
    ),
    Reason.PORT_NOT_BINDABLE: Explained(
        _WARNING, _PROGRAMMED, "This user may not listen on the port; it is reachable through the HTTP proxy only."
    ),
    Reason.MATCH_NOT_APPLICABLE: Explained(
        _WARNING, _PROGRAMMED, "The port carries connections, not requests; a split with matches does nothing there."
    ),
    Reason.PROTOCOL_CONFLICT: Explained(
        _WARNING, _PROGRAMMED, "An older Service declares another protocol for the same port of the same pods."
    ),
    Reason.UNKNOWN_PROTOCOL: Explained(
        _WARNING, _PROGRAMMED, "The port's appProtocol is not known; the port counts as http."
    ),
    Reason.TARGET_PORT_NOT_DECLARED: Explained(
        _WARNING, _REFS, "The Service's targetPort is none of the ports that the containers of its pods declare."
    ),
    Reason.NOT_ROUTED: Explained(_NOTE, _PROGRAMMED, "headgate does not route this port or Service."),
    Reason.NAME_NOT_RESOLVED: Explained(
        _WARNING, _PROGRAMMED, "Proxies do not resolve the Service's externalName; its requests get 503."
    ),
    Reason.SHADOWED: Explained(
        _WARNING, _PROGRAMMED, "Every request that the match names goes to what is tried before it."
    ),
    Reason.NEVER_MATCHES: Explained(_WARNING, _PROGRAMMED, "No request can fit the match, whatever a client sends."),
    Reason.NO_EFFECT: Explained(_WARNING, _PROGRAMMED, "No request reaches the split, so its weights mean nothing."),
    Reason.ENVOY_REJECTED: Explained(_ERROR, _PROGRAMMED, "A proxy refused the configuration; it keeps the last one."),
    Reason.NO_MATCHING_PARENT: Explained(
        _ERROR, _ACCEPTED, "No Gateway, listener or Service port is what the route's parentRef names."
    ),
    Reason.NOT_ALLOWED_BY_LISTENERS: Explained(
        _ERROR, _ACCEPTED, "The Gateway's listeners do not take routes of this kind from this namespace."
    ),
    Reason.NO_MATCHING_LISTENER_HOSTNAME: Explained(
        _ERROR, _ACCEPTED, "No hostname of the route is one that the listener serves."
    ),
    Reason.UNSUPPORTED_VALUE: Explained(
        _ERROR, _ACCEPTED, "The rule asks for what headgate can't do; its requests are answered with 500."
    ),
    Reason.CONSUMER_ROUTE: Explained(
        _NOTE, _PROGRAMMED, "The route is for clients in its own namespace, which the gateway can't tell from others."
    ),
    Reason.INVALID_KIND: Explained(_WARNING, _REFS, "The reference names something that is no Service."),
    Reason.UNSUPPORTED_PROTOCOL: Explained(
        _WARNING, _REFS, "The port speaks a protocol that this route or listener can't serve."
    ),
    Reason.INVALID_ROUTE_KINDS: Explained(
        _WARNING, _REFS, "The listener names kinds of routes that its protocol can't have; it takes the others."
    ),
    Reason.INVALID_CERTIFICATE_REF: Explained(
        _ERROR, _REFS, "The listener's certificate is missing or can't be used; the listener is not served."
    ),
    Reason.LISTENER_PROTOCOL_CONFLICT: Explained(
        _ERROR, _ACCEPTED, "Listeners ask for different protocols on one port; none of them is served."
    ),
    Reason.INVALID_PARAMETERS: Explained(
        _ERROR, _ACCEPTED, "The Gateway or its class names an object with parameters; headgate has none."
    ),
    Reason.UNSUPPORTED_ADDRESS: Explained(
        _ERROR, _ACCEPTED, "The Gateway asks for an address of a type that headgate does not know; it is not served."
    ),
    Reason.ADDRESS_NOT_USABLE: Explained(
        _WARNING, _PROGRAMMED, "The Gateway does not get an address that it asks for; it is served at the others."
    ),
    Reason.ADDRESS_NOT_ASSIGNED: Explained(
        _WARNING, _PROGRAMMED, "The Gateway has no address yet, so nobody can reach it."
    ),
    Reason.NAME_REPEATED: Explained(
        _WARNING, _ACCEPTED, "A route names a header or a query parameter twice in one list; the first counts."
    ),
    Reason.PERCENT_IGNORED: Explained(_WARNING, _ACCEPTED, "A mirror has percent and fraction; the fraction counts."),
    Reason.FIELD_IGNORED: Explained(
        _WARNING, _PROGRAMMED, "The rule has a field that headgate does not read; the rest of it holds."
    ),
    Reason.TOO_MANY_MATCHES: Explained(
        _WARNING,
        _PROGRAMMED,
        "Splits behind one rule have matches in too many combinations; the matches of some of them are not asked.",
    ),
    Reason.COPIES_DROPPED: Explained(
        _WARNING, _PROGRAMMED, "A mirror does not keep up; proxies drop copies beyond its limits."
    ),
    Reason.NO_PODS: Explained(_NOTE, _REFS, "No pod is selected; there is nothing to do until one is."),
    Reason.NOT_ENFORCED: Explained(
        _ERROR,
        _PROGRAMMED,
        "Traffic reaches the pod past a sidecar, or it has none, so nothing enforces the object there.",
    ),
    Reason.RULE_NOT_FOUND: Explained(
        _WARNING, _REFS, "The rule names a route, or a match of it, that does not exist; it allows nothing."
    ),
    Reason.RULE_NOT_APPLICABLE: Explained(
        _WARNING, _PROGRAMMED, "No port of the destination speaks what the rule is about; it allows nothing."
    ),
    Reason.SUBJECTS_MERGED: Explained(
        _NOTE, _PROGRAMMED, "Several TLSConfigs select a pod; its certificate carries the names of all of them."
    ),
    Reason.IDENTITY_UNAVAILABLE: Explained(
        _ERROR, _PROGRAMMED, "The pod's sidecar has no certificate; it takes and makes no calls until it has one."
    ),
    Reason.FRACTION_ROUNDED: Explained(
        _NOTE, _PROGRAMMED, "A mirror's fraction is finer than proxies can count; the nearest millionth is used."
    ),
}
