"""The kinds that headgate stores, and the resources that an API serves.

The room of a kind ends in its `Kind`; this module lists them. `headgate.kinds` has their names.
"""

from collections.abc import Mapping

from headgate.kinds import KindNames, names_of
from headgate.resources.apps import deployment, replica_set
from headgate.resources.core import config_map, event, namespace, node, pod, secret, service, service_account
from headgate.resources.discovery import endpoint_slice
from headgate.resources.gateway_api import gateway, gateway_class, grpc_route, http_route, reference_grant, tcp_route
from headgate.resources.kind import Kind, ServedKind, split_api_version
from headgate.resources.mesh import sidecar, tls_config
from headgate.resources.mesh.canary import kind as canary
from headgate.resources.meta import Key, Object
from headgate.resources.smi import http_route_group, port_routes, traffic_split, traffic_target

KINDS = (
    namespace.KIND,
    node.KIND,
    service.KIND,
    pod.KIND,
    service_account.KIND,
    secret.KIND,
    config_map.KIND,
    event.KIND,
    deployment.KIND,
    replica_set.KIND,
    endpoint_slice.KIND,
    gateway_class.KIND,
    gateway.KIND,
    http_route.KIND,
    grpc_route.KIND,
    tcp_route.KIND,
    reference_grant.KIND,
    traffic_split.KIND,
    http_route_group.KIND,
    port_routes.TCP,
    port_routes.UDP,
    traffic_target.KIND,
    tls_config.KIND,
    sidecar.KIND,
    canary.KIND,
)
"""The kinds that the embedded API serves."""
EVENT = Kind(KindNames("events.k8s.io", "Event", "events"))
"""Events in a cluster. Those of the core group, which the embedded API serves, are the same objects there."""
DISRUPTION_BUDGET = Kind(names_of("PodDisruptionBudget", "policy"), versions=("v1", "v1beta1"))
OWNERS = tuple(Kind(names_of(kind)) for kind in ("ReplicationController", "DaemonSet", "StatefulSet", "Job"))
"""Further kinds that own pods; headgate reads their objects for the metrics of workloads."""
CLUSTER_KINDS = (*KINDS, EVENT, DISRUPTION_BUDGET, *OWNERS)
"""The kinds that headgate reads or writes on a cluster. The embedded API serves only `KINDS`."""

_BY_KIND = {(kind.group, kind.kind): kind for kind in CLUSTER_KINDS}
SERVICE = service.KIND
POD = pod.KIND
SERVICE_ACCOUNT = service_account.KIND
CONFIG_MAP = config_map.KIND
ROUTE_GROUP = http_route_group.KIND
TCP_ROUTE = port_routes.TCP  # SMI's TCPRoute for access rules, not the Gateway API's
TRAFFIC_SPLIT = traffic_split.KIND
TRAFFIC_TARGET = traffic_target.KIND
TLS_CONFIG = tls_config.KIND
SIDECAR = sidecar.KIND
CANARY = canary.KIND
DEPLOYMENT = deployment.KIND
REPLICA_SET = replica_set.KIND
ENDPOINT_SLICE = endpoint_slice.KIND


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
