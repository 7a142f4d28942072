"""One valid object of each kind that headgate stores, in the kind's hub version."""

from typing import Any

from tests.make.objects import obj

from headgate.resources.kind import Kind

_PODS = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "web"}]}}
_WORKLOAD = {"selector": {"matchLabels": {"app": "web"}}, "template": _PODS}
_RULES = [{"backendRefs": [{"name": "web", "port": 80}]}]
_CONTENT: dict[tuple[str, str], dict[str, Any]] = {
    ("", "Namespace"): {},
    ("", "Node"): {"spec": {}},
    ("", "Service"): {"spec": {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80}]}},
    ("", "Pod"): _PODS,
    ("", "ServiceAccount"): {},
    ("", "Secret"): {"stringData": {"a": "b"}},
    ("", "ConfigMap"): {"data": {"a": "b"}},
    ("", "Event"): {"involvedObject": {"kind": "Pod", "name": "web", "namespace": "default"}, "reason": "Started"},
    ("apps", "Deployment"): {"spec": _WORKLOAD},
    ("apps", "ReplicaSet"): {"spec": _WORKLOAD},
    ("discovery.k8s.io", "EndpointSlice"): {
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["127.0.0.1"]}],
        "ports": [{"name": "http", "port": 80}],
    },
    ("gateway.networking.k8s.io", "GatewayClass"): {"spec": {"controllerName": "headgate.dev/gateway-controller"}},
    ("gateway.networking.k8s.io", "Gateway"): {
        "spec": {
            "gatewayClassName": "headgate",
            "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}],
        }
    },
    ("gateway.networking.k8s.io", "ListenerSet"): {
        "spec": {"parentRef": {"name": "shop"}, "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]}
    },
    ("gateway.networking.k8s.io", "HTTPRoute"): {"spec": {"parentRefs": [{"name": "shop"}], "rules": _RULES}},
    ("gateway.networking.k8s.io", "GRPCRoute"): {"spec": {"parentRefs": [{"name": "shop"}], "rules": _RULES}},
    ("gateway.networking.k8s.io", "TCPRoute"): {"spec": {"parentRefs": [{"name": "shop"}], "rules": _RULES}},
    ("gateway.networking.k8s.io", "TLSRoute"): {
        "spec": {"parentRefs": [{"name": "shop"}], "hostnames": ["shop.example"], "rules": _RULES}
    },
    ("gateway.networking.k8s.io", "BackendTLSPolicy"): {
        "spec": {
            "targetRefs": [{"group": "", "kind": "Service", "name": "website"}],
            "validation": {"hostname": "website.example", "wellKnownCACertificates": "System"},
        }
    },
    ("gateway.networking.k8s.io", "UDPRoute"): {"spec": {"parentRefs": [{"name": "shop"}], "rules": _RULES}},
    ("gateway.networking.k8s.io", "ReferenceGrant"): {
        "spec": {
            "from": [{"group": "split.smi-spec.io", "kind": "TrafficSplit", "namespace": "web"}],
            "to": [{"group": "", "kind": "Service"}],
        }
    },
    ("split.smi-spec.io", "TrafficSplit"): {
        "spec": {
            "service": "web",
            "backends": [{"service": "web-v1", "weight": 90}, {"service": "web-v2", "weight": 10}],
        }
    },
    ("specs.smi-spec.io", "HTTPRouteGroup"): {"spec": {"matches": [{"name": "all", "pathRegex": ".*"}]}},
    ("specs.smi-spec.io", "TCPRoute"): {"spec": {"matches": {"ports": [80]}}},
    ("specs.smi-spec.io", "UDPRoute"): {"spec": {"matches": {"ports": [53]}}},
    ("access.smi-spec.io", "TrafficTarget"): {
        "spec": {
            "destination": {"kind": "ServiceAccount", "name": "web", "namespace": "default"},
            "sources": [{"kind": "ServiceAccount", "name": "shop", "namespace": "default"}],
            "rules": [{"kind": "TCPRoute", "name": "web"}],
        }
    },
    ("gateway.networking.x-k8s.io", "XMesh"): {"spec": {"controllerName": "headgate.dev/mesh-controller"}},
    ("gateway.networking.x-k8s.io", "XBackend"): {
        "spec": {
            "type": "ExternalHostname",
            "externalHostname": {"hostname": "api.example.com"},
            "port": {"port": 443},
            "tls": {"mode": "ServerOnly"},
        }
    },
    ("gateway.networking.x-k8s.io", "XBackendTrafficPolicy"): {
        "spec": {
            "targetRefs": [{"group": "", "kind": "Service", "name": "web"}],
            "retryConstraint": {
                "budget": {"percent": 20, "interval": "10s"},
                "minRetryRate": {"count": 10, "interval": "1s"},
            },
            "sessionPersistence": {"sessionName": "user", "type": "Cookie"},
        }
    },
    ("gateway.networking.x-k8s.io", "XAuthorizationPolicy"): {
        "spec": {
            "targetRefs": [{"group": "", "kind": "Pod", "selector": {"matchLabels": {"app": "web"}}}],
            "action": "ALLOW",
            "rules": [{"sources": [{"type": "ServiceAccount", "serviceAccount": {"name": "client"}}]}],
        }
    },
    ("headgate.dev", "TLSConfig"): {
        "spec": {"subjectNames": ["foo"], "selector": {"matchLabels": {"app": "web"}}},
    },
    ("headgate.dev", "Sidecar"): {
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "containers": [{"name": "agent", "image": "agent"}]},
    },
    ("headgate.dev", "Canary"): {
        "spec": {
            "service": "web",
            "backends": [{"service": "web-v1", "weight": "900m"}, {"service": "web-v2", "weight": "100m"}],
            "analysis": {"canary": "web-v2", "steps": [{"share": "50%"}]},
        }
    },
}


def sound(kind: Kind, name: str) -> dict[str, Any]:
    """Return a valid object of a kind."""
    namespace = "default" if kind.namespaced else ""
    return obj(kind.kind, name, namespace=namespace, version=kind.hub, **_CONTENT[kind.group, kind.kind])


def path(kind: Kind) -> str:
    """Return the API path of a kind's collection in the namespace `default`, in the hub version."""
    scope = "/namespaces/default" if kind.namespaced else ""
    return f"/{'apis' if kind.group else 'api'}/{kind.hub}{scope}/{kind.plural}"
