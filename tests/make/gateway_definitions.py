"""The CustomResourceDefinitions of the Gateway API, which every cluster installs itself, as the release has them.

They are made from headgate's schemas, with the default values of the release: an API server stores these in each object. Versions
differ only in their names, so the API server converts them without a webhook.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from headgate.kinds import GATEWAY
from headgate.kubernetes.install.custom_resources import custom_resource_definitions
from headgate.resources.registry import KINDS

_EVERY_PATH: Mapping[str, Any] = {"type": "PathPrefix", "value": "/"}
_PENDING = [
    {
        "type": kind,
        "status": "Unknown",
        "reason": "Pending",
        "message": "Waiting for controller",
        "lastTransitionTime": "1970-01-01T00:00:00Z",
    }
    for kind in ("Accepted", "Programmed")
]
_LISTENERS: Mapping[str, Mapping[str, Any]] = {
    "spec.listeners[]": {"allowedRoutes": {"namespaces": {"from": "Same"}}},
    "spec.listeners[].allowedRoutes": {"namespaces": {"from": "Same"}},
    "spec.listeners[].allowedRoutes.namespaces": {"from": "Same"},
    "spec.listeners[].allowedRoutes.kinds[]": {"group": GATEWAY},
    "spec.listeners[].tls": {"mode": "Terminate"},
    "spec.listeners[].tls.certificateRefs[]": {"group": "", "kind": "Secret"},
}
_SERVICE: Mapping[str, Any] = {"group": "", "kind": "Service"}
_ROUTE: Mapping[str, Mapping[str, Any]] = {
    "spec.parentRefs[]": {"group": GATEWAY, "kind": "Gateway"},
    "spec.rules[].backendRefs[]": {**_SERVICE, "weight": 1},
}
_MIRRORS = (
    "spec.rules[].filters[].requestMirror.backendRef",
    "spec.rules[].backendRefs[].filters[].requestMirror.backendRef",
)
_BY_MIRROR: Mapping[str, Mapping[str, Any]] = dict.fromkeys(_MIRRORS, _SERVICE)
DEFAULTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "GatewayClass": {"": {"status": {"conditions": _PENDING[:1]}}},
    "Gateway": {
        "": {"status": {"conditions": _PENDING}},
        "spec.addresses[]": {"type": "IPAddress"},
        "spec.allowedListeners": {"namespaces": {"from": "None"}},
        "spec.allowedListeners.namespaces": {"from": "None"},
        **_LISTENERS,
    },
    "ListenerSet": {
        "": {"status": {"conditions": _PENDING}},
        "spec.parentRef": {"group": GATEWAY, "kind": "Gateway"},
        **_LISTENERS,
    },
    "HTTPRoute": {
        **_ROUTE,
        **_BY_MIRROR,
        "spec": {"rules": [{"matches": [{"path": _EVERY_PATH}]}]},
        "spec.rules[]": {"matches": [{"path": _EVERY_PATH}]},
        "spec.rules[].matches[]": {"path": _EVERY_PATH},
        "spec.rules[].matches[].path": _EVERY_PATH,
        "spec.rules[].matches[].headers[]": {"type": "Exact"},
        "spec.rules[].matches[].queryParams[]": {"type": "Exact"},
        "spec.rules[].filters[].requestRedirect": {"statusCode": 302},
    },
    "GRPCRoute": {
        **_ROUTE,
        **_BY_MIRROR,
        "spec.rules[].matches[].method": {"type": "Exact"},
        "spec.rules[].matches[].headers[]": {"type": "Exact"},
    },
    "TCPRoute": _ROUTE,
    "TLSRoute": _ROUTE,
    "BackendTLSPolicy": {"status.ancestors[].ancestorRef": {"group": GATEWAY, "kind": "Gateway"}},
    "UDPRoute": _ROUTE,
    "XMesh": {"": {"status": {"conditions": _PENDING[:1]}}},
    "XBackend": {
        "spec.tls.clientCertificateRef": {"group": "", "kind": "Secret"},
        "status.parents[].parentRef": {"group": GATEWAY, "kind": "Gateway"},
    },
    "XBackendTrafficPolicy": {
        "spec.retryConstraint": {
            "budget": {"percent": 20, "interval": "10s"},
            "minRetryRate": {"count": 10, "interval": "1s"},
        },
        "spec.retryConstraint.budget": {"percent": 20, "interval": "10s"},
        "spec.sessionPersistence": {"type": "Cookie"},
        "spec.sessionPersistence.cookieConfig": {"lifetimeType": "Session"},
        "status.ancestors[].ancestorRef": {"group": GATEWAY, "kind": "Gateway"},
    },
    "ReferenceGrant": {},
}
"""The default values of fields, by kind and by the path of the object that has the fields."""


def gateway_api_definitions() -> list[dict[str, Any]]:
    """Return the CustomResourceDefinitions of the Gateway API."""
    kinds = [kind for kind in KINDS if kind.is_custom and not kind.schema]
    definitions = deepcopy(custom_resource_definitions(kinds, {"service": {"namespace": "none", "name": "none"}}))
    for item in definitions:
        item["spec"]["conversion"] = {"strategy": "None"}
        for version in item["spec"]["versions"]:
            for path, values in DEFAULTS[item["spec"]["names"]["kind"]].items():
                fields = _schema(version["schema"]["openAPIV3Schema"], path)["properties"]
                for field, value in values.items():
                    fields[field]["default"] = value
    approval = {"api-approved.kubernetes.io": "unapproved, for tests"}  # the API server requires it in this group
    return [{**item, "metadata": {**item["metadata"], "annotations": approval}} for item in definitions]


def _schema(root: Any, path: str) -> Any:
    """Return the schema at a path such as `spec.rules[].matches[]`."""
    for field in path.split(".") if path else ():
        root = root["properties"][field.removesuffix("[]")]
        root = root["items"] if field.endswith("[]") else root
    return root
