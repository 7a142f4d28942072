"""The kinds that headgate stores: their versions and the resources that an API serves.

`headgate.kinds` has their names.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs

from headgate.kinds import ACCESS, GATEWAY, MESH, SPECS, SPLIT, KindNames, names_of
from headgate.resources import smi
from headgate.resources.canaries import Canary
from headgate.resources.core import ConfigMap, EndpointSlice, Namespace, Secret, Service
from headgate.resources.gateway import Gateway, GatewayClass, ReferenceGrant
from headgate.resources.meta import Key, Object, Resource, Value
from headgate.resources.pods import Pod
from headgate.resources.routes import GRPCRoute, HTTPRoute, TCPRoute
from headgate.resources.sidecars import Sidecar
from headgate.resources.smi import TLSConfig

CUSTOM_GROUPS = (SPLIT, SPECS, ACCESS, GATEWAY, MESH)
_SCALED = frozenset({"Deployment", "ReplicaSet"})
_ALL = frozenset({"Pod", "Service", "Deployment", "ReplicaSet"})  # The kinds that `kubectl get all` lists.
_PER_OBJECT = frozenset({"Namespace", "Service"})  # Kinds that can't be deleted as a collection, as in Kubernetes.


class Kind(KindNames, frozen=True, kw_only=True):
    """A kind. `versions[0]` is the hub: the version that the store holds and that discovery prefers.

    `shape` is the type of its decoded objects. `aliases` are further groups and versions that clients may use.
    """

    versions: tuple[str, ...] = ("v1",)
    status: bool = False
    shape: type[Resource] | None = None
    aliases: tuple[tuple[str, str], ...] = ()  # pairs of group and version

    @property
    def hub(self) -> str:
        """The apiVersion in which objects of the kind are stored."""
        return api_version(self.group, self.versions[0])

    @property
    def is_custom(self) -> bool:
        """Whether the kind is a custom resource on a cluster: unknown fields are pruned, patches have no merge keys."""
        return self.group in CUSTOM_GROUPS

    @property
    def served_versions(self) -> Sequence[tuple[str, str]]:
        """Every group and version that clients may use for the kind; aliases come last."""
        return [*((self.group, version) for version in self.versions), *self.aliases]

    def key(self, namespace: str, name: str) -> Key:
        """Return the key of an object of the kind."""
        return Key(self.group, self.kind, namespace if self.namespaced else "", name)


def api_version(group: str, version: str) -> str:
    """Return the `apiVersion` of a group and a version: `v1`, `apps/v1`."""
    return f"{group}/{version}" if group else version


def split_api_version(text: str) -> tuple[str, str]:
    """Return the group and the version of an `apiVersion`."""
    group, _, version = text.rpartition("/")
    return group, version


class ServedKind(Value, frozen=True, kw_only=True):
    """A kind in one of its versions, as the API serves it."""

    kind: Kind
    group: str
    version: str

    @property
    def api_version(self) -> str:
        """The `apiVersion` of the kind's objects in this version."""
        return api_version(self.group, self.version)

    @property
    def plural(self) -> str:
        """The resource name in paths. An alias has its own name, because kubectl rejects ambiguous names."""
        return self.kind.plural if self.group == self.kind.group else f"bare{self.kind.plural}"

    @property
    def short(self) -> tuple[str, ...]:
        """The short names for kubectl; an alias has none."""
        return self.kind.short if self.group == self.kind.group else ()

    @property
    def categories(self) -> tuple[str, ...]:
        """The categories in API discovery: `kubectl get all` lists the category `all`."""
        return ("all",) if self.kind.kind in _ALL else ()

    @property
    def is_hub(self) -> bool:
        """Whether this is the version that the store holds."""
        return self.api_version == self.kind.hub

    @property
    def verbs(self) -> tuple[str, ...]:
        """The verbs of the resource in API discovery."""
        many = () if self.kind.kind in _PER_OBJECT else ("deletecollection",)
        return ("create", "delete", *many, "get", "list", "patch", "update", "watch")

    @property
    def subresources(self) -> tuple[str, ...]:
        """The subresources that have a path of their own, such as `status`."""
        names = ["status"] if self.kind.status else []
        names += ["scale"] if self.kind.kind in _SCALED else []
        names += ["log", "eviction"] if self.kind.kind == "Pod" else []
        return tuple(names)


def _kind(group: str, kind: str, **facts: Any) -> Kind:
    return Kind(**structs.asdict(names_of(kind, group)), **facts)


_SMI = ("v1alpha4", "v1alpha3", "v1alpha2", "v1alpha1")
_BARE = (("", "v1beta1"),)  # the early SMI's apiVersion, which has no group
KINDS = (
    _kind("", "Namespace", status=True, shape=Namespace),
    _kind("", "Node", status=True),
    _kind("", "Service", status=True, shape=Service),
    _kind("", "Pod", status=True, shape=Pod),
    _kind("", "ServiceAccount"),
    _kind("", "Secret", shape=Secret),
    _kind("", "ConfigMap", shape=ConfigMap),
    _kind("", "Event"),
    _kind("apps", "Deployment", status=True),
    _kind("apps", "ReplicaSet", status=True),
    _kind("discovery.k8s.io", "EndpointSlice", versions=("v1", "v1beta1"), shape=EndpointSlice),
    _kind(GATEWAY, "GatewayClass", versions=("v1", "v1beta1"), status=True, shape=GatewayClass),
    _kind(GATEWAY, "Gateway", versions=("v1", "v1beta1"), status=True, shape=Gateway),
    _kind(GATEWAY, "HTTPRoute", versions=("v1", "v1beta1"), status=True, shape=HTTPRoute),
    _kind(GATEWAY, "GRPCRoute", status=True, shape=GRPCRoute),
    _kind(GATEWAY, "TCPRoute", versions=("v1alpha2",), status=True, shape=TCPRoute),
    _kind(GATEWAY, "ReferenceGrant", versions=("v1", "v1beta1"), shape=ReferenceGrant),
    _kind(SPLIT, "TrafficSplit", versions=_SMI, status=True, shape=smi.TrafficSplit, aliases=_BARE),
    _kind(SPECS, "HTTPRouteGroup", versions=_SMI, status=True, shape=smi.HTTPRouteGroup),
    _kind(SPECS, "TCPRoute", versions=_SMI, shape=smi.TCPRoute),
    _kind(SPECS, "UDPRoute", versions=("v1alpha4",), shape=smi.UDPRoute),
    _kind(ACCESS, "TrafficTarget", versions=_SMI[1:], status=True, shape=smi.TrafficTarget),
    _kind(MESH, "TLSConfig", versions=("v1beta1",), status=True, shape=TLSConfig, aliases=_BARE),
    _kind(MESH, "Sidecar", versions=("v1beta1",), status=True, shape=Sidecar),
    _kind(MESH, "Canary", versions=("v1beta1",), status=True, shape=Canary, aliases=_BARE),
)
EVENT = Kind(group="events.k8s.io", kind="Event", plural="events")
"""Events in a cluster. Those of the core group, which the embedded API serves, are the same objects there."""
DISRUPTION_BUDGET = _kind("policy", "PodDisruptionBudget", versions=("v1", "v1beta1"))
OWNERS = (
    _kind("", "ReplicationController"),
    _kind("apps", "DaemonSet"),
    _kind("apps", "StatefulSet"),
    _kind("batch", "Job"),
)
"""Further kinds that own pods; headgate reads their objects for the metrics of workloads."""
CLUSTER_KINDS = (*KINDS, EVENT, DISRUPTION_BUDGET, *OWNERS)
"""The kinds that headgate reads or writes on a cluster. The embedded API serves only `KINDS`."""

_BY_KIND = {(kind.group, kind.kind): kind for kind in CLUSTER_KINDS}
SERVICE = _BY_KIND["", "Service"]
POD = _BY_KIND["", "Pod"]
SERVICE_ACCOUNT = _BY_KIND["", "ServiceAccount"]
CONFIG_MAP = _BY_KIND["", "ConfigMap"]
ROUTE_GROUP = _BY_KIND[SPECS, "HTTPRouteGroup"]
TCP_ROUTE = _BY_KIND[SPECS, "TCPRoute"]  # SMI's TCPRoute for access rules, not the Gateway API's
UDP_ROUTE = _BY_KIND[SPECS, "UDPRoute"]
TRAFFIC_SPLIT = _BY_KIND[SPLIT, "TrafficSplit"]
TRAFFIC_TARGET = _BY_KIND[ACCESS, "TrafficTarget"]
TLS_CONFIG = _BY_KIND[MESH, "TLSConfig"]
SIDECAR = _BY_KIND[MESH, "Sidecar"]
CANARY = _BY_KIND[MESH, "Canary"]
DEPLOYMENT = _BY_KIND["apps", "Deployment"]
REPLICA_SET = _BY_KIND["apps", "ReplicaSet"]
ENDPOINT_SLICE = _BY_KIND["discovery.k8s.io", "EndpointSlice"]


def _groups() -> Mapping[str, Mapping[str, tuple[ServedKind, ...]]]:
    found: dict[str, dict[str, tuple[ServedKind, ...]]] = {"": {"v1": ()}}
    for kind in KINDS:
        for group, version in kind.served_versions:
            versions = found.setdefault(group, {})
            versions[version] = (*versions.get(version, ()), ServedKind(kind=kind, group=group, version=version))
    return found


GROUPS = _groups()
"""Group -> version -> kinds; the first version of a group is the preferred one."""
_SERVED = [served for versions in GROUPS.values() for many in versions.values() for served in many]
_BY_VERSION = {(served.group, served.version, served.kind.kind): served.kind for served in _SERVED}
_BY_PATH = {(served.group, served.version, served.kind.plural): served for served in _SERVED} | {
    (served.group, served.version, served.plural): served for served in _SERVED
}


def find(group: str, kind: str) -> Kind | None:
    """Return a kind by its group and name; None if headgate does not store it."""
    return _BY_KIND.get((group, kind))


def find_written(apiversion: str, kind: str) -> Kind | None:
    """Return a kind by the `apiVersion` and `kind` of an object, in any version or alias; None if unknown."""
    return _BY_VERSION.get((*split_api_version(apiversion), kind))


def served_at(group: str, version: str, plural: str) -> ServedKind | None:
    """Return the kind that a path names; None if unknown. An alias also accepts the kind's usual plural."""
    return _BY_PATH.get((group, version, plural))


def key_of(obj: Object) -> Key:
    """Return the key of an object in hub version."""
    group, _ = split_api_version(obj["apiVersion"])
    metadata = obj["metadata"]
    return Key(group, obj["kind"], metadata.get("namespace", ""), metadata["name"])
