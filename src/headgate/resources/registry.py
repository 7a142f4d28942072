"""The kinds that headgate knows: one table, read by the store, the API server, the compiler and the command line."""

from headgate.resources import smi
from headgate.resources.core import EndpointSlice, Namespace, Secret, Service
from headgate.resources.gateway import GROUP, Gateway, GatewayClass, ReferenceGrant
from headgate.resources.mesh import TLSConfig
from headgate.resources.meta import Key, Object, Resource, Value
from headgate.resources.pods import Pod
from headgate.resources.routes import GRPCRoute, HTTPRoute, TCPRoute

SPLIT = "split.smi-spec.io"
SPECS = "specs.smi-spec.io"
ACCESS = "access.smi-spec.io"
MESH = "headgate.dev"
GATEWAY = GROUP
CUSTOM_GROUPS = (SPLIT, SPECS, ACCESS, GATEWAY, MESH)


class Kind(Value, frozen=True, kw_only=True):
    """What is known of a kind. `versions[0]` is the hub: what the store holds and discovery prefers."""

    group: str
    kind: str
    plural: str
    versions: tuple[str, ...]
    short: tuple[str, ...] = ()
    namespaced: bool = True
    status: bool = False
    shape: type[Resource] | None = None
    aliases: tuple[tuple[str, str], ...] = ()  # (group, version) under which it is known besides

    @property
    def hub(self) -> str:
        """The apiVersion in which objects of the kind are stored."""
        return api_version(self.group, self.versions[0])

    @property
    def is_custom(self) -> bool:
        """Whether the kind is a custom resource on a cluster: unknown fields are pruned, patches have no merge keys."""
        return self.group in CUSTOM_GROUPS

    def key(self, namespace: str, name: str) -> Key:
        """Point at an object of the kind."""
        return Key(self.group, self.kind, namespace if self.namespaced else "", name)


def api_version(group: str, version: str) -> str:
    """Join as `apiVersion` has it: `v1`, `apps/v1`."""
    return f"{group}/{version}" if group else version


def split_api_version(text: str) -> tuple[str, str]:
    """Return group and version of an `apiVersion`."""
    group, _, version = text.rpartition("/")
    return group, version


KINDS = (
    Kind(
        group="",
        kind="Namespace",
        plural="namespaces",
        versions=("v1",),
        short=("ns",),
        namespaced=False,
        status=True,
        shape=Namespace,
    ),
    Kind(group="", kind="Node", plural="nodes", versions=("v1",), short=("no",), namespaced=False, status=True),
    Kind(group="", kind="Service", plural="services", versions=("v1",), short=("svc",), status=True, shape=Service),
    Kind(group="", kind="Pod", plural="pods", versions=("v1",), short=("po",), status=True, shape=Pod),
    Kind(group="", kind="ServiceAccount", plural="serviceaccounts", versions=("v1",), short=("sa",)),
    Kind(group="", kind="Secret", plural="secrets", versions=("v1",), shape=Secret),
    Kind(group="", kind="ConfigMap", plural="configmaps", versions=("v1",), short=("cm",)),
    Kind(group="", kind="Event", plural="events", versions=("v1",), short=("ev",)),
    Kind(group="apps", kind="Deployment", plural="deployments", versions=("v1",), short=("deploy",), status=True),
    Kind(group="apps", kind="ReplicaSet", plural="replicasets", versions=("v1",), short=("rs",), status=True),
    Kind(
        group="discovery.k8s.io",
        kind="EndpointSlice",
        plural="endpointslices",
        versions=("v1", "v1beta1"),
        short=("ep",),
        shape=EndpointSlice,
    ),
    Kind(
        group=GATEWAY,
        kind="GatewayClass",
        plural="gatewayclasses",
        versions=("v1", "v1beta1"),
        short=("gc",),
        namespaced=False,
        status=True,
        shape=GatewayClass,
    ),
    Kind(
        group=GATEWAY,
        kind="Gateway",
        plural="gateways",
        versions=("v1", "v1beta1"),
        short=("gtw",),
        status=True,
        shape=Gateway,
    ),
    Kind(
        group=GATEWAY,
        kind="HTTPRoute",
        plural="httproutes",
        versions=("v1", "v1beta1"),
        status=True,
        shape=HTTPRoute,
    ),
    Kind(group=GATEWAY, kind="GRPCRoute", plural="grpcroutes", versions=("v1",), status=True, shape=GRPCRoute),
    Kind(group=GATEWAY, kind="TCPRoute", plural="tcproutes", versions=("v1alpha2",), status=True, shape=TCPRoute),
    Kind(
        group=GATEWAY,
        kind="ReferenceGrant",
        plural="referencegrants",
        versions=("v1", "v1beta1"),
        short=("refgrant",),
        shape=ReferenceGrant,
    ),
    Kind(
        group=SPLIT,
        kind="TrafficSplit",
        plural="trafficsplits",
        versions=("v1alpha4", "v1alpha3", "v1alpha2", "v1alpha1"),
        short=("ts",),
        status=True,
        shape=smi.TrafficSplit,
        aliases=(("", "v1beta1"),),
    ),
    Kind(
        group=SPECS,
        kind="HTTPRouteGroup",
        plural="httproutegroups",
        versions=("v1alpha4", "v1alpha3", "v1alpha2", "v1alpha1"),
        short=("htr",),
        status=True,
        shape=smi.HTTPRouteGroup,
    ),
    Kind(
        group=SPECS,
        kind="TCPRoute",
        plural="tcproutes",
        versions=("v1alpha4", "v1alpha3", "v1alpha2", "v1alpha1"),
        short=("tr",),
        shape=smi.TCPRoute,
    ),
    Kind(group=SPECS, kind="UDPRoute", plural="udproutes", versions=("v1alpha4",), short=("ur",), shape=smi.UDPRoute),
    Kind(
        group=ACCESS,
        kind="TrafficTarget",
        plural="traffictargets",
        versions=("v1alpha3", "v1alpha2", "v1alpha1"),
        short=("tt",),
        status=True,
        shape=smi.TrafficTarget,
    ),
    Kind(
        group=MESH,
        kind="TLSConfig",
        plural="tlsconfigs",
        versions=("v1beta1",),
        status=True,
        shape=TLSConfig,
        aliases=(("", "v1beta1"),),
    ),
)

_BY_KIND = {(kind.group, kind.kind): kind for kind in KINDS}
SERVICE = _BY_KIND["", "Service"]
POD = _BY_KIND["", "Pod"]
ROUTE_GROUP = _BY_KIND[SPECS, "HTTPRouteGroup"]
TCP_ROUTE = _BY_KIND[SPECS, "TCPRoute"]  # SMI's, which says what may be allowed; not the Gateway API's
UDP_ROUTE = _BY_KIND[SPECS, "UDPRoute"]
TRAFFIC_SPLIT = _BY_KIND[SPLIT, "TrafficSplit"]
TRAFFIC_TARGET = _BY_KIND[ACCESS, "TrafficTarget"]
TLS_CONFIG = _BY_KIND[MESH, "TLSConfig"]

_BY_VERSION = {
    (group, version, kind.kind): kind
    for kind in KINDS
    for group, version in (*((kind.group, version) for version in kind.versions), *kind.aliases)
}


def find(group: str, kind: str) -> Kind | None:
    """Look a kind up by its hub group and name."""
    return _BY_KIND.get((group, kind))


def find_written(apiversion: str, kind: str) -> Kind | None:
    """Look a kind up as a manifest names it, older versions and aliases included."""
    return _BY_VERSION.get((*split_api_version(apiversion), kind))


def key_of(obj: Object) -> Key:
    """Point at an object as it stands in the store (hub version). Cluster-scoped objects have no namespace."""
    group, _ = split_api_version(obj["apiVersion"])
    metadata = obj["metadata"]
    return Key(group, obj["kind"], metadata.get("namespace", ""), metadata["name"])
