"""The kinds that headgate stores, and the resources that an API serves.

The room of a kind ends in its `Kind`; this module lists them. `headgate.kinds` has their names. `further.kinds` has the
kinds that are only stored.
"""

from headgate.kinds import KindNames, names_of
from headgate.resources.apps import deployment, replica_set
from headgate.resources.core import config_map, event, namespace, node, pod, secret, service, service_account
from headgate.resources.custom import definition
from headgate.resources.discovery import endpoint_slice
from headgate.resources.further.kinds import FURTHER_KINDS
from headgate.resources.gateway_api import (
    authorization_policy,
    backend,
    backend_tls_policy,
    backend_traffic_policy,
    gateway,
    gateway_class,
    grpc_route,
    http_route,
    listener_set,
    mesh,
    reference_grant,
    tcp_route,
    tls_route,
    udp_route,
)
from headgate.resources.kind import Kind, split_api_version
from headgate.resources.kind_set import KindSet
from headgate.resources.mesh import sidecar, tls_config
from headgate.resources.mesh.canary import kind as canary
from headgate.resources.meta import Key, Object
from headgate.resources.pod_templates import TEMPLATED_KINDS
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
    listener_set.KIND,
    http_route.KIND,
    grpc_route.KIND,
    tcp_route.KIND,
    tls_route.KIND,
    udp_route.KIND,
    backend_tls_policy.KIND,
    reference_grant.KIND,
    backend.KIND,
    backend_traffic_policy.KIND,
    mesh.KIND,
    authorization_policy.KIND,
    traffic_split.KIND,
    http_route_group.KIND,
    port_routes.TCP,
    port_routes.UDP,
    traffic_target.KIND,
    tls_config.KIND,
    sidecar.KIND,
    canary.KIND,
)
"""The kinds that headgate works with."""
ROUTES = tuple(kind for kind in KINDS if kind.listeners)
"""The kinds of the Gateway API's routes."""
EVENT = Kind(KindNames("events.k8s.io", "Event", "events"))
"""Events in a cluster. Those of the core group, which the embedded API serves, are the same objects there."""
DISRUPTION_BUDGET = Kind(names_of("PodDisruptionBudget", "policy"), versions=("v1", "v1beta1"))
LIMIT_RANGE, RESOURCE_QUOTA, CRON_JOB = (
    next(kind for kind in FURTHER_KINDS if (kind.group, kind.kind) == name)
    for name in (("", "LimitRange"), ("", "ResourceQuota"), ("batch", "CronJob"))
)
"""The limits of a namespace, to which injection fits sidecars, and the owner of Jobs, which users tap."""
OWNERS = tuple(
    Kind(names_of(templated.kind))
    for templated in TEMPLATED_KINDS
    if templated.owns_pods and templated.kind != replica_set.KIND.kind
)
"""Further kinds that own pods; headgate reads their objects for the metrics of workloads."""
WORKLOADS = (deployment.KIND, replica_set.KIND, *OWNERS)
"""The kinds that own pods, themselves or through another kind."""
CLUSTER_KINDS = (*KINDS, EVENT, DISRUPTION_BUDGET, LIMIT_RANGE, RESOURCE_QUOTA, *OWNERS, CRON_JOB)
"""The kinds that headgate reads or writes on a cluster."""

_BY_KIND = {(kind.group, kind.kind): kind for kind in (*FURTHER_KINDS, *CLUSTER_KINDS)}
SERVICE = service.KIND
POD = pod.KIND
SERVICE_ACCOUNT = service_account.KIND
CONFIG_MAP = config_map.KIND
LISTENER_SET = listener_set.KIND
ROUTE_GROUP = http_route_group.KIND
TCP_ROUTE = port_routes.TCP  # SMI's TCPRoute for access rules, not the Gateway API's
TRAFFIC_SPLIT = traffic_split.KIND
TRAFFIC_TARGET = traffic_target.KIND
BACKEND = backend.KIND
AUTHORIZATION_POLICY = authorization_policy.KIND
TLS_CONFIG = tls_config.KIND
SIDECAR = sidecar.KIND
CANARY = canary.KIND
DEPLOYMENT = deployment.KIND
ENDPOINT_SLICE = endpoint_slice.KIND
DEFINITION = definition.KIND
BUILT_IN = KindSet((*KINDS, definition.KIND, *FURTHER_KINDS))
"""The kinds that the embedded API serves without CustomResourceDefinitions."""


def find(group: str, kind: str) -> Kind | None:
    """Return a kind by its group and name; None if headgate does not store it."""
    return _BY_KIND.get((group, kind))


def find_written(apiversion: str, kind: str) -> Kind | None:
    """Return a kind by the `apiVersion` and `kind` of an object, in any version or alias; None if unknown."""
    return BUILT_IN.find_written(apiversion, kind)


def key_of(obj: Object) -> Key:
    """Return the key of an object in hub version."""
    group, _ = split_api_version(obj["apiVersion"])
    metadata = obj["metadata"]
    return Key(group, obj["kind"], metadata.get("namespace", ""), metadata["name"])
