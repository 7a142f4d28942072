"""Every reason that headgate gives, with its meaning: a closed list, explained in docs/reasons.md."""

import enum
from typing import NamedTuple


class Severity(enum.StrEnum):
    """How bad a finding is: errors stop the object, warnings change what it does, notes only tell."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class ConditionType(enum.StrEnum):
    """The condition of the object's status that a reason makes False."""

    ACCEPTED = "Accepted"
    RESOLVED_REFS = "ResolvedRefs"
    BACKENDS_READY = "BackendsReady"
    PROGRAMMED = "Programmed"


class ReasonInfo(NamedTuple):
    """What belongs to a reason."""

    severity: Severity
    condition: ConditionType
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
        return REASONS[self].severity

    @property
    def condition(self) -> ConditionType:
        """The condition that it makes False."""
        return REASONS[self].condition


_MEANINGS = {
    (Severity.ERROR, ConditionType.ACCEPTED): {
        Reason.INVALID: "The object breaks a rule of its kind; it is ignored.",
        Reason.SELF_REFERENCE: "The split's root is one of its own backends; the root keeps its plain behaviour.",
        Reason.CONFLICTED: "An older object has what this one asks for: a root service, an address, or a listener.",
        Reason.NO_MATCHING_PARENT: "No Gateway, listener or Service port is what the route's parentRef names.",
        Reason.NOT_ALLOWED_BY_LISTENERS: "The Gateway's listeners do not take routes of this kind from this namespace.",
        Reason.NO_MATCHING_LISTENER_HOSTNAME: "No hostname of the route is one that the listener serves.",
        Reason.UNSUPPORTED_VALUE: "The rule asks for what headgate can't do; its requests are answered with 500.",
        Reason.LISTENER_PROTOCOL_CONFLICT: "Listeners ask for different protocols on one port; none of them is served.",
        Reason.INVALID_PARAMETERS: "The Gateway or its class names an object with parameters; headgate has none.",
        Reason.UNSUPPORTED_ADDRESS: "The Gateway asks for an address of a type that headgate does not know; it is not served.",
    },
    (Severity.ERROR, ConditionType.RESOLVED_REFS): {
        Reason.INVALID_CERTIFICATE_REF: "The listener's certificate is missing or can't be used; the listener is not served.",
    },
    (Severity.ERROR, ConditionType.PROGRAMMED): {
        Reason.ENVOY_REJECTED: "A proxy refused the configuration; it keeps the last one.",
        Reason.NOT_ENFORCED: "Traffic reaches the pod past a sidecar, or it has none, so nothing enforces the object there.",
        Reason.IDENTITY_UNAVAILABLE: "The pod's sidecar has no certificate; it takes and makes no calls until it has one.",
    },
    (Severity.WARNING, ConditionType.ACCEPTED): {
        Reason.NAME_REPEATED: "A route names a header or a query parameter twice in one list; the first counts.",
        Reason.PERCENT_IGNORED: "A mirror has percent and fraction; the fraction counts.",
    },
    (Severity.WARNING, ConditionType.RESOLVED_REFS): {
        Reason.SERVICE_NOT_FOUND: "The root Service does not exist; there is nothing to split.",
        Reason.BACKEND_NOT_FOUND: "The backend Service does not exist; it gets no traffic.",
        Reason.PORT_MISMATCH: "The backend Service does not offer the root's port; it gets no traffic on that port.",
        Reason.PROTOCOL_MISMATCH: "The backend Service's port is not HTTP and the root's is, or the other way; it gets no traffic.",
        Reason.MATCH_NOT_FOUND: "An HTTPRouteGroup of the split does not exist; it matches nothing.",
        Reason.REF_NOT_PERMITTED: "The Service is in another namespace and no ReferenceGrant there allows the reference.",
        Reason.TARGET_PORT_NOT_DECLARED: "The Service's targetPort is none of the ports that the containers of its pods declare.",
        Reason.INVALID_KIND: "The reference names something that is no Service.",
        Reason.UNSUPPORTED_PROTOCOL: "The port speaks a protocol that this route or listener can't serve.",
        Reason.INVALID_ROUTE_KINDS: "The listener names kinds of routes that its protocol can't have; it takes the others.",
        Reason.RULE_NOT_FOUND: "The rule names a route, or a match of it, that does not exist; it allows nothing.",
    },
    (Severity.WARNING, ConditionType.BACKENDS_READY): {
        Reason.NO_READY_ENDPOINTS: "The backend has no ready endpoint: the others of a split share its traffic, a route answers its share with 503.",
        Reason.ALL_WEIGHTS_ZERO: "No backend has a weight above 0; requests are answered with an error.",
    },
    (Severity.WARNING, ConditionType.PROGRAMMED): {
        Reason.STICKY_NOT_APPLICABLE: "The port carries connections, not requests; its users do not stay on their side.",
        Reason.PORT_NOT_BINDABLE: "This user may not listen on the port; it is reachable through the HTTP proxy only.",
        Reason.MATCH_NOT_APPLICABLE: "The port carries connections, not requests; a split with matches does nothing there.",
        Reason.PROTOCOL_CONFLICT: "An older Service declares another protocol for the same port of the same pods.",
        Reason.UNKNOWN_PROTOCOL: "The port's appProtocol is not known; the port counts as http.",
        Reason.NAME_NOT_RESOLVED: "Proxies do not resolve the Service's externalName; its requests get 503.",
        Reason.SHADOWED: "Every request that the match names goes to what is tried before it.",
        Reason.NEVER_MATCHES: "No request can fit the match, whatever a client sends.",
        Reason.NO_EFFECT: "No request reaches the split, so its weights mean nothing.",
        Reason.ADDRESS_NOT_USABLE: "The Gateway does not get an address that it asks for; it is served at the others.",
        Reason.ADDRESS_NOT_ASSIGNED: "The Gateway has no address yet, so no client can reach it.",
        Reason.FIELD_IGNORED: "A field is written that headgate does not read; all else holds.",
        Reason.TOO_MANY_MATCHES: "Splits behind one rule have matches in too many combinations; the matches of some of them are not asked.",
        Reason.COPIES_DROPPED: "A mirror does not keep up; proxies drop copies beyond its limits.",
        Reason.RULE_NOT_APPLICABLE: "No port of the destination speaks what the rule is about; it allows nothing.",
    },
    (Severity.NOTE, ConditionType.RESOLVED_REFS): {
        Reason.NO_PODS: "No pod is selected; there is nothing to do until one is.",
    },
    (Severity.NOTE, ConditionType.PROGRAMMED): {
        Reason.WEIGHTS_ROUNDED: "The weights of a sticky split are not whole 10 000ths; the nearest are used.",
        Reason.NOT_ROUTED: "headgate does not route this port or Service.",
        Reason.CONSUMER_ROUTE: "The route is for clients in its own namespace, which the gateway can't tell from others.",
        Reason.SUBJECTS_MERGED: "Several TLSConfigs select a pod; its certificate carries the names of all of them.",
        Reason.FRACTION_ROUNDED: "A mirror's fraction is finer than proxies can count; the nearest millionth is used.",
    },
}
REASONS = {
    reason: ReasonInfo(severity, condition, meaning)
    for (severity, condition), meanings in _MEANINGS.items()
    for reason, meaning in meanings.items()
}
