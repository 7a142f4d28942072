"""The names of all kinds, for the registry, the APIs, the command line and the kubectl plugin.

The list includes kinds that headgate does not store, such as Deployment, because commands accept their names.
"""

import msgspec

GATEWAY = "gateway.networking.k8s.io"
EXPERIMENTAL = "gateway.networking.x-k8s.io"  # of the Gateway API's kinds that begin with X
SPLIT = "split.smi-spec.io"
SPECS = "specs.smi-spec.io"
ACCESS = "access.smi-spec.io"
MESH = "headgate.dev"


class KindNames(msgspec.Struct, frozen=True):
    """The names of a kind: `plural` is its resource name in API paths, `short` has kubectl's short names."""

    group: str
    kind: str
    plural: str
    short: tuple[str, ...] = ()
    namespaced: bool = True

    @property
    def singular(self) -> str:
        """The kind in lower case, as in `deployment/foo`."""
        return self.kind.lower()

    @property
    def words(self) -> tuple[str, ...]:
        """All names of the kind that a command accepts."""
        return (self.singular, self.plural, *self.short)


NAMES = (
    KindNames("", "Namespace", "namespaces", ("ns",), namespaced=False),
    KindNames("", "Node", "nodes", ("no",), namespaced=False),
    KindNames("", "Service", "services", ("svc",)),
    KindNames("", "Pod", "pods", ("po",)),
    KindNames("", "ServiceAccount", "serviceaccounts", ("sa",)),
    KindNames("", "Secret", "secrets"),
    KindNames("", "ConfigMap", "configmaps", ("cm",)),
    KindNames("", "Event", "events", ("ev",)),
    KindNames("", "ReplicationController", "replicationcontrollers", ("rc",)),
    KindNames("apps", "Deployment", "deployments", ("deploy",)),
    KindNames("apps", "ReplicaSet", "replicasets", ("rs",)),
    KindNames("apps", "StatefulSet", "statefulsets", ("sts",)),
    KindNames("apps", "DaemonSet", "daemonsets", ("ds",)),
    KindNames("batch", "Job", "jobs"),
    KindNames("batch", "CronJob", "cronjobs", ("cj",)),
    KindNames("policy", "PodDisruptionBudget", "poddisruptionbudgets", ("pdb",)),
    KindNames("discovery.k8s.io", "EndpointSlice", "endpointslices", ("ep",)),
    KindNames(GATEWAY, "GatewayClass", "gatewayclasses", ("gc",), namespaced=False),
    KindNames(GATEWAY, "Gateway", "gateways", ("gtw",)),
    KindNames(GATEWAY, "ListenerSet", "listenersets", ("lset",)),
    KindNames(GATEWAY, "HTTPRoute", "httproutes"),
    KindNames(GATEWAY, "GRPCRoute", "grpcroutes"),
    KindNames(GATEWAY, "TCPRoute", "tcproutes"),
    KindNames(GATEWAY, "TLSRoute", "tlsroutes"),
    KindNames(GATEWAY, "UDPRoute", "udproutes"),
    KindNames(GATEWAY, "BackendTLSPolicy", "backendtlspolicies", ("btlspolicy",)),
    KindNames(GATEWAY, "ReferenceGrant", "referencegrants", ("refgrant",)),
    KindNames(EXPERIMENTAL, "XBackend", "xbackends", ("xbackend",)),
    KindNames(EXPERIMENTAL, "XBackendTrafficPolicy", "xbackendtrafficpolicies", ("xbtrafficpolicy",)),
    KindNames(EXPERIMENTAL, "XMesh", "xmeshes", ("mesh",), namespaced=False),
    KindNames(EXPERIMENTAL, "XAuthorizationPolicy", "xauthorizationpolicies", ("xauthz",)),
    KindNames(SPLIT, "TrafficSplit", "trafficsplits", ("ts",)),
    KindNames(SPECS, "HTTPRouteGroup", "httproutegroups", ("htr",)),
    KindNames(SPECS, "TCPRoute", "tcproutes", ("tr",)),
    KindNames(SPECS, "UDPRoute", "udproutes", ("ur",)),
    KindNames(ACCESS, "TrafficTarget", "traffictargets", ("tt",)),
    KindNames(MESH, "TLSConfig", "tlsconfigs", ("tlsc",)),
    KindNames(MESH, "Sidecar", "sidecars", ("sdc",)),
    KindNames(MESH, "Canary", "canaries", ("cny",)),
)
_BY_KIND = {(names.group, names.kind): names for names in NAMES}
_BY_NAME = {names.kind: names for names in reversed(NAMES)}


def names_of(kind: str, group: str | None = None) -> KindNames:
    """Return the names of a kind; without a group, of the first kind of that name.

    Raises KeyError for an unknown kind.
    """
    return _BY_NAME[kind] if group is None else _BY_KIND[group, kind]


def _all(*kinds: str) -> tuple[KindNames, ...]:
    return tuple(map(names_of, kinds))


METRICS_KINDS = (
    *_all("Namespace", "Node", "Pod", "ReplicationController", "Service"),
    *_all("DaemonSet", "Deployment", "ReplicaSet", "StatefulSet", "Job"),
)
"""The kinds that every metrics API serves (R82)."""
ROUTE_KINDS = _all("TrafficSplit", "HTTPRoute", "GRPCRoute")
"""The kinds whose names a proxy logs as the route that it chose for a request."""
TAPPABLE_KINDS = (
    *_all("Pod", "Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob", "ReplicaSet", "ReplicationController"),
    *_all("Service", "Namespace"),
    *ROUTE_KINDS,
    *_all("Gateway"),
)
"""The kinds that `tap` accepts."""
