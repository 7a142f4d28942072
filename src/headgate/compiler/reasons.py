"""All reasons that headgate reports, with severity, condition and meaning. docs/reference/reasons.md lists them for users."""

import enum
from typing import NamedTuple

from headgate.resources.inspect import Severity


class ConditionType(enum.StrEnum):
    """The condition in an object's status that a reason sets to False."""

    ACCEPTED = "Accepted"
    RESOLVED_REFS = "ResolvedRefs"
    BACKENDS_READY = "BackendsReady"
    PROGRAMMED = "Programmed"


def prefixed(type: str) -> str:
    """Return the type of a condition on an object whose status other controllers write too, such as a Service, or a route's parent."""
    return f"headgate.dev/{type}"


class ReasonInfo(NamedTuple):
    """The severity, the condition and the meaning of a reason."""

    severity: Severity
    condition: ConditionType
    meaning: str


class Reason(enum.Enum):
    """The reason of a finding about an object. The value is the `reason` in status conditions and Events."""

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
    TRACE_HEADER = "TraceHeader"
    NO_EFFECT = "NoEffect"
    MATCH_NOT_APPLICABLE = "MatchNotApplicable"
    PROTOCOL_CONFLICT = "ProtocolConflict"
    UNKNOWN_PROTOCOL = "UnknownProtocol"
    TARGET_PORT_NOT_DECLARED = "TargetPortNotDeclared"
    ENVOY_REJECTED = "EnvoyRejected"
    NO_MATCHING_PARENT = "NoMatchingParent"
    NOT_ALLOWED_BY_LISTENERS = "NotAllowedByListeners"
    NO_MATCHING_LISTENER_HOSTNAME = "NoMatchingListenerHostname"
    NOT_ALLOWED = "NotAllowed"
    UNSUPPORTED_VALUE = "UnsupportedValue"
    CONSUMER_ROUTE = "ConsumerRoute"
    REGEX_NOT_PORTABLE = "RegexNotPortable"
    INVALID_KIND = "InvalidKind"
    UNSUPPORTED_PROTOCOL = "UnsupportedProtocol"
    INVALID_ROUTE_KINDS = "InvalidRouteKinds"
    CERTIFICATE_EXPIRES = "CertificateExpires"
    INVALID_CERTIFICATE_REF = "InvalidCertificateRef"
    INVALID_CA_CERTIFICATE_REF = "InvalidCACertificateRef"
    INVALID_CA_CERTIFICATE_KIND = "InvalidCACertificateKind"
    NO_VALID_CA_CERTIFICATE = "NoValidCACertificate"
    INSECURE_FRONTEND_VALIDATION_MODE = "InsecureFrontendValidationMode"
    TARGET_NOT_FOUND = "TargetNotFound"
    INVALID_CLIENT_CERTIFICATE_REF = "InvalidClientCertificateRef"
    LISTENER_PROTOCOL_CONFLICT = "ListenerProtocolConflict"
    LISTENER_HOSTNAME_CONFLICT = "ListenerHostnameConflict"
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
    NO_SUCH_PODS = "NoSuchPods"
    NO_CALLERS = "NoCallers"
    ALL_CALLERS_ALLOWED = "AllCallersAllowed"
    NOT_ENFORCED = "NotEnforced"
    RULE_NOT_FOUND = "RuleNotFound"
    RULE_NOT_APPLICABLE = "RuleNotApplicable"
    SUBJECTS_MERGED = "SubjectsMerged"
    AUDIT_WITHOUT_EFFECT = "AuditWithoutEffect"
    AUDIT_MODE = "AuditMode"
    RESTART_NEEDED = "RestartNeeded"
    NOT_INJECTED = "NotInjected"
    NAME_CONFLICT = "NameConflict"
    IDENTITY_UNAVAILABLE = "IdentityUnavailable"
    NO_RESOURCES = "NoResources"
    OBJECT_REJECTED = "ObjectRejected"
    PODS_REFUSED = "PodsRefused"
    NODE_AGENT_MISSING = "NodeAgentMissing"
    NODE_AGENT_FAILS = "NodeAgentFails"
    REVISION_NOT_FOUND = "RevisionNotFound"
    GATEWAY_BYPASSED = "GatewayBypassed"
    GATEWAY_NOT_READY = "GatewayNotReady"

    @property
    def severity(self) -> Severity:
        """Return the severity of findings with this reason."""
        return REASONS[self].severity

    @property
    def condition(self) -> ConditionType:
        """Return the condition that this reason sets to False."""
        return REASONS[self].condition


_MEANINGS = {
    (Severity.ERROR, ConditionType.ACCEPTED): {
        Reason.INVALID: "The object is invalid and is ignored.",
        Reason.SELF_REFERENCE: "The split's root is one of its own backends; the split is ignored.",
        Reason.CONFLICTED: "An older object already has the Service, the address or the listener, or routes of a preferred kind have the Service port.",
        Reason.NO_MATCHING_PARENT: "No Gateway, ListenerSet, listener or Service port matches the parentRef.",
        Reason.NOT_ALLOWED_BY_LISTENERS: "The Gateway's listeners do not allow routes of this kind from this namespace.",
        Reason.NO_MATCHING_LISTENER_HOSTNAME: "No hostname of the route matches a hostname of the listener.",
        Reason.NOT_ALLOWED: "The Gateway does not allow ListenerSets from this namespace.",
        Reason.UNSUPPORTED_VALUE: "The rule or policy uses a value that headgate does not support; its requests get an error.",
        Reason.LISTENER_PROTOCOL_CONFLICT: "Listeners use different protocols on one port; none of a Gateway is served. A ListenerSet's gives way to the Gateway's and to those of older ListenerSets.",
        Reason.LISTENER_HOSTNAME_CONFLICT: "Listeners have the same port and hostname; an HTTPS and a TLS listener of one Gateway are both not served. A ListenerSet's gives way to the Gateway's and to those of older ListenerSets.",
        Reason.INVALID_PARAMETERS: "A parameter of the Gateway or of its class is not valid; the proxies keep the parameters that they have.",
        Reason.NO_VALID_CA_CERTIFICATE: "No certificate of an authority is usable, so proxies can't validate certificates: they accept no connection, or send nothing.",
        Reason.UNSUPPORTED_ADDRESS: "The Gateway requests an address of a type that headgate does not support; the Gateway is not served.",
    },
    (Severity.ERROR, ConditionType.RESOLVED_REFS): {
        Reason.INVALID_CLIENT_CERTIFICATE_REF: "The Gateway's certificate for backends is missing, or proxies would refuse it; backends get none.",
        Reason.INVALID_CERTIFICATE_REF: "A certificate of the listener is missing, or proxies would refuse it. Its other certificates are served; without one, the listener is not served.",
        Reason.INVALID_CA_CERTIFICATE_REF: "A ConfigMap or Secret with certificates of authorities is missing, or proxies could not read it; other ones apply.",
        Reason.INVALID_CA_CERTIFICATE_KIND: "A reference to certificates of authorities is not to a ConfigMap; other ones apply.",
    },
    (Severity.ERROR, ConditionType.PROGRAMMED): {
        Reason.ENVOY_REJECTED: "A proxy rejected the configuration and keeps the previous one.",
        Reason.NOT_ENFORCED: "The pod has no sidecar, or traffic bypasses it, so nothing enforces the object there.",
        Reason.IDENTITY_UNAVAILABLE: "The pod's sidecar has no certificate; it sends and accepts no traffic until it has one.",
        Reason.NO_RESOURCES: "A quota of the cluster forbids an object that the proxies of a Gateway or Service need.",
        Reason.OBJECT_REJECTED: "The API server rejects an object that the proxies of a Gateway or Service need; they keep their current objects.",
        Reason.PODS_REFUSED: "The cluster refuses new pods of a workload with sidecars, for example because of a quota.",
        Reason.NODE_AGENT_MISSING: "The pod waits for the redirection of its connections, and no node agent is ready on its node.",
        Reason.NODE_AGENT_FAILS: "The pod waits for the redirection of its connections, and the node agent of its node fails.",
        Reason.GATEWAY_NOT_READY: "No proxy of a Service's gateway for clients without a sidecar is ready with its current configuration.",
    },
    (Severity.WARNING, ConditionType.ACCEPTED): {
        Reason.TARGET_NOT_FOUND: "No Service or port matches a targetRef of the policy, which has no effect there.",
        Reason.NAME_REPEATED: "A route names a header or a query parameter twice in one list; only the first entry is used.",
        Reason.PERCENT_IGNORED: "A mirror has both percent and fraction; only the fraction is used.",
    },
    (Severity.WARNING, ConditionType.RESOLVED_REFS): {
        Reason.REVISION_NOT_FOUND: "The label of a namespace names a revision of headgate that is not installed; the default one serves it.",
        Reason.SERVICE_NOT_FOUND: "The root Service does not exist, so the split does nothing.",
        Reason.BACKEND_NOT_FOUND: "The backend does not exist; it gets no traffic.",
        Reason.PORT_MISMATCH: "The backend Service does not have the root's port; it gets no traffic on that port.",
        Reason.PROTOCOL_MISMATCH: "The port is HTTP in either the root or the backend Service, but not in both; the backend gets no traffic.",
        Reason.MATCH_NOT_FOUND: "An HTTPRouteGroup of the split does not exist, so it matches no request.",
        Reason.REF_NOT_PERMITTED: "The Service is in another namespace, and no ReferenceGrant there allows the reference.",
        Reason.TARGET_PORT_NOT_DECLARED: "No container of the Service's pods declares the targetPort.",
        Reason.INVALID_KIND: "The reference names an object of a kind that is not possible there.",
        Reason.UNSUPPORTED_PROTOCOL: "The route or the listener does not support the protocol of the port.",
        Reason.INVALID_ROUTE_KINDS: "The listener allows kinds of routes that its protocol does not support; they are ignored.",
        Reason.NO_SUCH_PODS: "The object selects no pod, but there are pods with a similar name, so the name may be wrong.",
        Reason.RULE_NOT_FOUND: "The rule names a route, or a match in it, that does not exist; it allows nothing.",
    },
    (Severity.WARNING, ConditionType.BACKENDS_READY): {
        Reason.NO_READY_ENDPOINTS: "The backend has no ready endpoint. In a split, the other backends get its share; in a route, its share gets 503.",
        Reason.ALL_WEIGHTS_ZERO: "No backend has a weight above 0; requests get an error.",
    },
    (Severity.WARNING, ConditionType.PROGRAMMED): {
        Reason.STICKY_NOT_APPLICABLE: "The port is not HTTP, so users do not stay with one backend.",
        Reason.PORT_NOT_BINDABLE: "headgate has no permission to listen on the port; it can be reached only through headgate's HTTP proxy.",
        Reason.MATCH_NOT_APPLICABLE: "The port is not HTTP, so a split with matches does nothing there.",
        Reason.PROTOCOL_CONFLICT: "An older Service declares another protocol for the same port of the same pods.",
        Reason.UNKNOWN_PROTOCOL: "The port's appProtocol is unknown; headgate treats the port as http.",
        Reason.NAME_NOT_RESOLVED: "headgate does not resolve the externalName of the Service, or the hostname of the XBackend; its requests get 503.",
        Reason.SHADOWED: "Earlier routes get every request that fits this match, or an older route gets connections or datagrams of the TCPRoute, TLSRoute or UDPRoute.",
        Reason.NEVER_MATCHES: "No request can satisfy the match.",
        Reason.TRACE_HEADER: "While traces are on, proxies write the header that the route matches or changes.",
        Reason.NO_EFFECT: "No request reaches the split, so its weights have no effect.",
        Reason.ADDRESS_NOT_USABLE: "The Gateway does not get one of the addresses in its spec.",
        Reason.ADDRESS_NOT_ASSIGNED: "The Gateway has no address yet, so no client can reach it.",
        Reason.FIELD_IGNORED: "headgate does not read a field; the rest of the object is in effect.",
        Reason.TOO_MANY_MATCHES: "The splits behind one rule have too many combinations of matches; the matches of some splits are ignored.",
        Reason.INSECURE_FRONTEND_VALIDATION_MODE: "The Gateway accepts clients without a valid certificate.",
        Reason.CERTIFICATE_EXPIRES: "A certificate of the Gateway has expired, expires soon, or is not valid yet; clients refuse it then.",
        Reason.COPIES_DROPPED: "A mirror is too slow; proxies drop the requests that exceed its limits.",
        Reason.RESTART_NEEDED: "Pods are older than the Sidecar's current generation; they get it when they are replaced.",
        Reason.NOT_INJECTED: "Pods that the Sidecar selects get no proxy, so they get nothing from the Sidecar either.",
        Reason.NAME_CONFLICT: "A pod already has a container, volume or variable of the same name, and keeps its own.",
        Reason.AUDIT_WITHOUT_EFFECT: "The object is in audit mode, but another one or --access deny closes the same pods.",
        Reason.ALL_CALLERS_ALLOWED: "A rule of the policy has no sources, so it allows all callers, also those without a sidecar.",
        Reason.GATEWAY_BYPASSED: "The Service requests a gateway, but clients without a sidecar reach its own endpoints past it.",
        Reason.RULE_NOT_APPLICABLE: "No port of the destination has the protocol or the number of the rule, or no caller has its identity; it allows nothing.",
    },
    (Severity.NOTE, ConditionType.RESOLVED_REFS): {
        Reason.NO_PODS: "The object selects no pod, so it has no effect yet.",
        Reason.NO_CALLERS: "No pod runs as the ServiceAccount of a source, so the source allows no caller yet.",
    },
    (Severity.NOTE, ConditionType.PROGRAMMED): {
        Reason.WEIGHTS_ROUNDED: "The weights of a sticky split are rounded to multiples of 1/10 000.",
        Reason.NOT_ROUTED: "headgate does not route this port or Service.",
        Reason.CONSUMER_ROUTE: "The route applies to clients with a sidecar in its own namespace only.",
        Reason.REGEX_NOT_PORTABLE: "Other implementations of the Gateway API may read a regular expression in another way.",
        Reason.SUBJECTS_MERGED: "Several TLSConfigs select a pod; its certificate has all their names.",
        Reason.AUDIT_MODE: "The object is in audit mode: it denies nothing, and counts the calls that it would deny.",
        Reason.FRACTION_ROUNDED: "The fraction of a mirror is rounded to the nearest millionth.",
    },
}
REASONS = {
    reason: ReasonInfo(severity, condition, meaning)
    for (severity, condition), meanings in _MEANINGS.items()
    for reason, meaning in meanings.items()
}
