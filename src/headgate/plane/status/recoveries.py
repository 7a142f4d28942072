"""The messages of Events about resolved findings, by the reason of the finding."""

import re
from collections.abc import Collection, Iterator
from typing import Any

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.resources.meta import Object

_GETS_SHARE = "it gets its share of the traffic"

FOUND = {
    Reason.SERVICE_NOT_FOUND: "its traffic is split",
    Reason.BACKEND_NOT_FOUND: _GETS_SHARE,
    Reason.MATCH_NOT_FOUND: "its matches apply",
}
"""The effect when a missing object exists again, by the reason of the finding.

The finding's `related` names the object.
"""

RECOVERIES = {
    Reason.CONFLICTED: "this object applies now; the older one with the same claim is gone or has changed",
    Reason.SERVICE_NOT_FOUND: "the Service exists now",
    Reason.BACKEND_NOT_FOUND: f"the Service exists now; {_GETS_SHARE}",
    Reason.PORT_MISMATCH: f"the Service offers the root's port now; {_GETS_SHARE}",
    Reason.PROTOCOL_MISMATCH: f"the protocols agree now; {_GETS_SHARE}",
    Reason.MATCH_NOT_FOUND: "the HTTPRouteGroup exists now",
    Reason.REF_NOT_PERMITTED: "a ReferenceGrant allows the reference now",
    Reason.NO_READY_ENDPOINTS: f"the Service has ready endpoints; {_GETS_SHARE}",
    Reason.ALL_WEIGHTS_ZERO: "a backend has a weight above 0 now and gets the requests",
    Reason.COPIES_DROPPED: "proxies send all copies now",
    Reason.STICKY_NOT_APPLICABLE: "the port is an HTTP port now; users stay on their backend",
    Reason.PORT_NOT_BINDABLE: "the proxies listen on the port now",
    Reason.NOT_ROUTED: "headgate routes traffic to it now",
    Reason.SHADOWED: "requests reach the match now",
    Reason.NEVER_MATCHES: "requests reach the match now",
    Reason.NO_EFFECT: "requests reach the split now",
    Reason.MATCH_NOT_APPLICABLE: "the port is an HTTP port now; the matches apply",
    Reason.ENVOY_REJECTED: "every proxy accepts the configuration now",
    Reason.NO_MATCHING_PARENT: "the parent exists now",
    Reason.NOT_ALLOWED_BY_LISTENERS: "a listener allows the route now",
    Reason.NO_MATCHING_LISTENER_HOSTNAME: "a listener serves the hostname now",
    Reason.INVALID_CERTIFICATE_REF: "the certificate is valid; the listener is served",
    Reason.PROTOCOL_CONFLICT: "the protocols agree now",
    Reason.LISTENER_PROTOCOL_CONFLICT: "the listeners of the port agree now",
    Reason.TARGET_PORT_NOT_DECLARED: "the containers declare the port now",
    Reason.ADDRESS_NOT_ASSIGNED: "the Gateway has an address now",
    Reason.NO_PODS: "it selects pods now",
    Reason.NOT_ENFORCED: "it is enforced on every pod that it selects",
    Reason.RULE_NOT_FOUND: "the route that the rule names exists now",
    Reason.RULE_NOT_APPLICABLE: "a port of the destination has the protocol of the rule now",
    Reason.IDENTITY_UNAVAILABLE: "the sidecar has its certificate",
}
"""Messages for findings that a change of another object resolved, by reason.

After an edit of the object itself, the message is the same for all reasons.
"""


def recovered(finding: Finding, now: Collection[Finding], *, edited: bool, obj: Object | None = None) -> str:
    """Return the recovery message of a finding; empty if one of the current findings `now` is about the same fault.

    `edited` is True if the object itself has changed since the finding. With `obj`, the message contains the current
    value of the finding's field: `spec.service (web): the Service exists now`.
    """
    if any(_is_same(finding, other) for other in now if other.about == finding.about):
        return ""
    text = f"the edit resolved {finding.reason.value}"
    if not edited and finding.related and finding.reason in FOUND:
        return f"{finding.field}: {finding.related[0]} found; {FOUND[finding.reason]}"
    if not edited:
        text = RECOVERIES.get(finding.reason, f"{finding.reason.value} is resolved")
    if not finding.field:
        return text
    value = _value(obj, finding.field) if obj else None
    return f"{finding.field} ({value}): {text}" if isinstance(value, str | int) else f"{finding.field}: {text}"


def _is_same(one: Finding, other: Finding) -> bool:
    """Return whether two findings are about the same fault: the same field, or without a field the same reason."""
    return one.field == other.field and (bool(one.field) or one.reason is other.reason)


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
