"""Kinds and their names: the one table of them, for the registry, the APIs, the command line and the kubectl plugin.

Every kind whose name users write is here, also those that headgate does not store.
"""

import msgspec

GATEWAY = "gateway.networking.k8s.io"
SPLIT = "split.smi-spec.io"
SPECS = "specs.smi-spec.io"
ACCESS = "access.smi-spec.io"
MESH = "headgate.dev"


class Names(msgspec.Struct, frozen=True):
    """The names of a kind: `plural` is its resource in paths, `short` what kubectl's users write."""

    group: str
    kind: str
    plural: str
    short: tuple[str, ...] = ()
    namespaced: bool = True

    @property
    def singular(self) -> str:
        """The name that stands before a slash: `deployment/foo`."""
        return self.kind.lower()

    @property
    def words(self) -> tuple[str, ...]:
        """Every word that means the kind."""
        return (self.singular, self.plural, *self.short)


NAMES = (
    Names("", "Namespace", "namespaces", ("ns",), namespaced=False),
    Names("", "Node", "nodes", ("no",), namespaced=False),
    Names("", "Service", "services", ("svc",)),
    Names("", "Pod", "pods", ("po",)),
    Names("", "ServiceAccount", "serviceaccounts", ("sa",)),
    Names("", "Secret", "secrets"),
    Names("", "ConfigMap", "configmaps", ("cm",)),
    Names("", "Event", "events", ("ev",)),
    Names("", "ReplicationController", "replicationcontrollers", ("rc",)),
    Names("apps", "Deployment", "deployments", ("deploy",)),
    Names("apps", "ReplicaSet", "replicasets", ("rs",)),
    Names("apps", "StatefulSet", "statefulsets", ("sts",)),
    Names("apps", "DaemonSet", "daemonsets", ("ds",)),
    Names("batch", "Job", "jobs"),
    Names("discovery.k8s.io", "EndpointSlice", "endpointslices", ("ep",)),
    Names(GATEWAY, "GatewayClass", "gatewayclasses", ("gc",), namespaced=False),
    Names(GATEWAY, "Gateway", "gateways", ("gtw",)),
    Names(GATEWAY, "HTTPRoute", "httproutes"),
    Names(GATEWAY, "GRPCRoute", "grpcroutes"),
    Names(GATEWAY, "TCPRoute", "tcproutes"),
    Names(GATEWAY, "ReferenceGrant", "referencegrants", ("refgrant",)),
    Names(SPLIT, "TrafficSplit", "trafficsplits", ("ts",)),
    Names(SPECS, "HTTPRouteGroup", "httproutegroups", ("htr",)),
    Names(SPECS, "TCPRoute", "tcproutes", ("tr",)),
    Names(SPECS, "UDPRoute", "udproutes", ("ur",)),
    Names(ACCESS, "TrafficTarget", "traffictargets", ("tt",)),
    Names(MESH, "TLSConfig", "tlsconfigs"),
)
_BY_KIND = {(names.group, names.kind): names for names in NAMES}
_BY_NAME = {names.kind: names for names in reversed(NAMES)}


def names_of(kind: str, group: str | None = None) -> Names:
    """Return the names of a kind; without a group, of the first that is called so. Raises KeyError for an unknown one."""
    return _BY_NAME[kind] if group is None else _BY_KIND[group, kind]


def _all(*kinds: str) -> tuple[Names, ...]:
    return tuple(map(names_of, kinds))


METERED = (
    *_all("Namespace", "Node", "Pod", "ReplicationController", "Service"),
    *_all("DaemonSet", "Deployment", "ReplicaSet", "StatefulSet", "Job"),
)
"""The kinds of every metrics API (R82)."""
TAPPED = (
    *_all("Pod", "Deployment", "ReplicaSet", "Service", "Namespace"),
    *_all("TrafficSplit", "HTTPRoute", "GRPCRoute", "Gateway"),
)
"""The kinds whose requests can be tapped."""
