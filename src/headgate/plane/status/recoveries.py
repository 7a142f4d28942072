"""The messages of Events about resolved findings, by the reason of the finding."""

import re
from collections.abc import Collection, Iterator
from typing import Any

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.resources.meta import Key, Object

_GETS_SHARE = "the backend gets its share of the traffic"

FOUND = {
    Reason.SERVICE_NOT_FOUND: "the traffic of the Service is split",
    Reason.BACKEND_NOT_FOUND: _GETS_SHARE,
    Reason.MATCH_NOT_FOUND: "the split applies the matches of the group",
}
"""The effect once a missing object exists, by the reason of the finding.

The finding's `related` names the object.
"""

_APPLIED = "the cluster accepts the objects of the proxies now"

RECOVERIES = {
    Reason.CONFLICTED: "this object applies now, because the older object in conflict with it was deleted or changed",
    Reason.SERVICE_NOT_FOUND: "the root Service exists now; the traffic of the Service is split",
    Reason.BACKEND_NOT_FOUND: f"the backend Service exists now; {_GETS_SHARE}",
    Reason.PORT_MISMATCH: f"the backend Service offers the root's port now; {_GETS_SHARE}",
    Reason.PROTOCOL_MISMATCH: f"the root and the backend Service use the same protocol on the port now; {_GETS_SHARE}",
    Reason.MATCH_NOT_FOUND: "the HTTPRouteGroup exists now; the split applies the matches of the group",
    Reason.REF_NOT_PERMITTED: "a ReferenceGrant allows the reference to the other namespace now",
    Reason.NO_READY_ENDPOINTS: f"the backend Service has ready endpoints now; {_GETS_SHARE}",
    Reason.ALL_WEIGHTS_ZERO: "a backend has a weight above 0 now; the backend gets the requests",
    Reason.COPIES_DROPPED: "proxies send all mirrored copies of requests now",
    Reason.STICKY_NOT_APPLICABLE: "the port is an HTTP port now; the requests of a user go to one backend",
    Reason.PORT_NOT_BINDABLE: "the proxies listen on the port now",
    Reason.NOT_ROUTED: "headgate routes traffic to this port or Service now, or it is outside of the mesh",
    Reason.SHADOWED: "this route gets requests or connections now",
    Reason.NEVER_MATCHES: "requests can satisfy the match now",
    Reason.TRACE_HEADER: "proxies leave the header to the route now",
    Reason.NO_EFFECT: "the split applies to requests now",
    Reason.MATCH_NOT_APPLICABLE: "the port is an HTTP port now; the split applies the matches",
    Reason.ENVOY_REJECTED: "every proxy accepts the configuration of this object now",
    Reason.NO_MATCHING_PARENT: "the Gateway, ListenerSet, listener or Service port in the parentRef exists now",
    Reason.NOT_ALLOWED: "the Gateway allows ListenerSets from this namespace now",
    Reason.NOT_ALLOWED_BY_LISTENERS: "a listener of the Gateway allows the route now",
    Reason.NO_MATCHING_LISTENER_HOSTNAME: "a hostname of the route matches the listener now",
    Reason.CERTIFICATE_EXPIRES: "the certificate of the Gateway is valid now",
    Reason.INVALID_CERTIFICATE_REF: "the certificate of the listener is valid now; the gateway serves the listener",
    Reason.INVALID_CA_CERTIFICATE_REF: "the ConfigMap has certificates of authorities now",
    Reason.NO_VALID_CA_CERTIFICATE: "a certificate of an authority is usable now; proxies validate certificates with it",
    Reason.PROTOCOL_CONFLICT: "all Services declare the same protocol for this port of the pods now",
    Reason.LISTENER_HOSTNAME_CONFLICT: "the listener is the only one with its port and hostname now; the gateway serves the listener",
    Reason.LISTENER_PROTOCOL_CONFLICT: "all listeners on the port can share it now; the gateway serves the listener",
    Reason.TARGET_PORT_NOT_DECLARED: "a container of the Service's pods declares the targetPort now",
    Reason.ADDRESS_NOT_ASSIGNED: "the Gateway has an address now; clients can reach the Gateway",
    Reason.NO_PODS: "this object selects pods now",
    Reason.NO_SUCH_PODS: "this object selects pods now",
    Reason.NO_CALLERS: "pods run as the ServiceAccount of the source now",
    Reason.FIELD_IGNORED: "the field is valid or absent now",
    Reason.INVALID_PARAMETERS: "the parameters are valid now",
    Reason.NOT_ENFORCED: "every selected pod enforces this object now",
    Reason.RULE_NOT_FOUND: "the routes and matches that the rule names exist now",
    Reason.RULE_NOT_APPLICABLE: "a port of the destination has the protocol of the rule now",
    Reason.IDENTITY_UNAVAILABLE: "the sidecar has a certificate now; the sidecar sends and accepts traffic",
    Reason.NO_RESOURCES: _APPLIED,
    Reason.OBJECT_REJECTED: _APPLIED,
    Reason.GATEWAY_BYPASSED: "clients without a sidecar reach only the gateway of the Service now",
    Reason.GATEWAY_NOT_READY: "a proxy of the gateway is ready now",
}
"""Messages for findings that a change to another object resolved, by reason.

After an edit of the object itself, the message is the same for all reasons.
"""


def missing_object(finding: Finding) -> Key | None:
    """Return the object whose absence is the finding; None for other findings."""
    return finding.related[0] if finding.related and finding.reason in FOUND else None


def recovered(
    finding: Finding, now: Collection[Finding], *, edited: bool, still_missing: bool = False, obj: Object | None = None
) -> str:
    """Return the recovery message of a finding; empty if one of the current findings `now` is about the same fault.

    It is empty too if the object that the finding misses (`missing_object`) is `still_missing`, for example because the root
    of a split was deleted and the backends do not matter anymore. `edited` is True if the object itself has changed since the finding. With `obj`, the message contains the current
    value of the finding's field: `spec.service (web): the root Service exists now`.
    """
    if any(_is_same(finding, other) for other in now if other.about == finding.about):
        return ""
    text = f"the edit resolved {finding.reason.value}"
    if not edited and (missing := missing_object(finding)):
        return "" if still_missing else f"{finding.field}: {missing} found; {FOUND[finding.reason]}"
    if not edited:
        text = RECOVERIES.get(finding.reason, f"{finding.reason.value} is resolved")
    if not finding.field:
        return text
    value = _value(obj, finding.field) if obj else None
    return f"{finding.field} ({value}): {text}" if isinstance(value, str | int) else f"{finding.field}: {text}"


def _is_same(finding: Finding, other: Finding) -> bool:
    """Return whether two findings are about the same fault: the same field, or without a field the same reason."""
    return finding.field == other.field and (bool(finding.field) or finding.reason is other.reason)


def _value(obj: Any, field: str) -> Any:
    for step in _steps(field):
        try:
            obj = obj[step]
        except (KeyError, IndexError, TypeError):
            return None
    return obj


def _steps(field: str) -> Iterator[str | int]:
    """Yield the steps of a path: `spec`, `backends`, 1 and `service` for `spec.backends[1].service`."""
    for name, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", field):
        yield name or int(index)
