"""The roles of the control plane's ServiceAccount. docs/tasks/kubernetes.md has the reason for each permission."""

from collections.abc import Iterable, Iterator, Sequence

from headgate.admission.sidecar_containers import ROOTS_CONFIG_MAP
from headgate.api.aggregated_server import api_services
from headgate.api.computed_groups import REQUESTED_GROUPS, ComputedGroup
from headgate.kinds import GATEWAY, MESH, METRICS_KINDS, NAMES, SPECS, SPLIT, TAPPABLE_KINDS, names_of
from headgate.kubernetes.cert_manager import CERTIFICATE_REQUEST
from headgate.kubernetes.install.custom_resources import converted_kinds
from headgate.kubernetes.names import EVENTS_NAMESPACE, NAME, NAMESPACE
from headgate.kubernetes.permissions import Role, RoleRule
from headgate.options import MeshOptions
from headgate.plane.feed import COMPILED
from headgate.plane.status.writer import ONLY_WITH_FINDINGS, STATUSES
from headgate.resources.authority_status import CONFIG_MAP as CA_STATUS
from headgate.resources.gateway_api.gateway import OWN_CLASS
from headgate.resources.registry import ENDPOINT_SLICE, EVENT, LIMIT_RANGE, RESOURCE_QUOTA

ACCOUNT = (
    f"system:serviceaccount:{NAMESPACE}:{NAME}",
    ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated"),
)
"""The user name and the groups of the control plane's ServiceAccount."""
CERTIFICATE_REQUESTS_ROLE = f"{NAME}-certificate-requests"
NAMESPACE_ROLE = f"{NAME}-namespace"  # in each namespace of a mesh that is limited to namespaces
_FOLLOW = ("list", "watch")
_BUNDLE = ("get", "update")
_NOT_GOTTEN = {("", "pods"), ("", "secrets"), ("", "configmaps")}
_STALE = "after an installation, and after the root certificate of the mesh is replaced"
_CERTIFICATE_REQUESTS = Role(
    "Role",
    CERTIFICATE_REQUESTS_ROLE,
    NAMESPACE,
    (
        RoleRule(
            CERTIFICATE_REQUEST.group,
            (CERTIFICATE_REQUEST.plural,),
            ("get", "list", "watch", "create", "delete"),
            "no new certificates are issued, and a replica that starts does not become ready",
        ),
    ),
)
_RECORD = ("get", "create", "update")
_EVENTS = (
    RoleRule(EVENT.group, (EVENT.plural,), _RECORD, "Events are not written"),
    # For objects without a namespace, and clusters without events.k8s.io/v1. The same objects: it adds no right.
    RoleRule("", ("events",), _RECORD, "Events of objects without a namespace are not written"),
)
_OF_CLUSTER = {(kind.group, kind.plural) for kind in NAMES if not kind.namespaced}
_REQUEST_HEADERS = RoleRule(
    "",
    ("configmaps",),
    ("get",),
    "a replica that becomes active does not serve the metrics and inspect APIs",
    ("extension-apiserver-authentication",),
)


def roles(mesh: MeshOptions) -> tuple[Role, ...]:
    """Return all roles that the control plane needs with the options of the mesh, also Kubernetes' own."""
    rules, namespaces = (*_reads(), *_writes()), mesh.namespaces
    return (
        Role("ClusterRole", NAME, "", (*(_part(rules, namespaced=False) if namespaces else rules), *_bundles())),
        *(_in_namespaces(rules, namespaces) if namespaces else ()),
        *(_requested(group) for group in REQUESTED_GROUPS.values() if getattr(mesh, group.option)),
        *([_CERTIFICATE_REQUESTS] if mesh.cert_manager_issuer else []),
        Role("Role", NAME, NAMESPACE, tuple(_own())),
        Role("ClusterRole", "system:auth-delegator", "", tuple(_reviews()), binding=f"{NAME}-auth-delegator"),
        Role(
            "Role",
            "extension-apiserver-authentication-reader",
            "kube-system",
            (_REQUEST_HEADERS,),
            binding=f"{NAME}-reader",
        ),
    )


def reading_roles(mesh: MeshOptions) -> Iterator[Role]:
    """Yield the roles by which a revision lists and watches the objects of the mesh, without its other permissions."""
    for role in roles(mesh):
        rules = tuple(rule._replace(verbs=_FOLLOW) for rule in role.rules if set(_FOLLOW) <= set(rule.verbs))
        if rules and (role.kind, role.name) in {("ClusterRole", NAME), ("Role", NAMESPACE_ROLE)}:
            yield role._replace(rules=rules)


def _in_namespaces(mesh: Sequence[RoleRule], namespaces: Sequence[str]) -> Iterator[Role]:
    """Yield a role for each namespace of the mesh, and one for Events about objects without a namespace."""
    rules = tuple(_part(mesh, namespaced=True))
    for namespace in dict.fromkeys((*namespaces, NAMESPACE)):
        yield Role("Role", NAMESPACE_ROLE, namespace, rules)
    if EVENTS_NAMESPACE not in namespaces:
        yield Role("Role", NAMESPACE_ROLE, EVENTS_NAMESPACE, _EVENTS)


def _part(rules: Iterable[RoleRule], *, namespaced: bool) -> Iterator[RoleRule]:
    """Yield the rules with only the resources that have a namespace, or that have none."""
    for rule in rules:
        kept = [
            resource
            for resource in rule.resources
            if ((rule.group, resource.partition("/")[0]) in _OF_CLUSTER) != namespaced
        ]
        if kept:
            yield rule._replace(resources=tuple(kept))


def _reviews() -> Iterator[RoleRule]:
    yield RoleRule("authentication.k8s.io", ("tokenreviews",), ("create",), "proxies that connect are rejected")
    without = "requests to the metrics and inspect APIs are rejected"
    yield RoleRule("authorization.k8s.io", ("subjectaccessreviews",), ("create",), without)


def _reads() -> Iterator[RoleRule]:
    compiled = [(kind.group, kind.plural) for kind in COMPILED]
    metrics = [(kind.group, kind.plural) for kind in METRICS_KINDS]
    for group, resources in by_group(compiled):
        yield RoleRule(
            group, resources, _FOLLOW, "changes have no effect, and a replica that starts does not become ready"
        )
    for group, resources in by_group(key for key in compiled if key not in _NOT_GOTTEN):
        yield RoleRule(group, resources, ("get",), "statuses and Events are not written")
    yield RoleRule("", ("pods",), ("get",), "the sidecars of Jobs do not end, and Events of pods are not written")
    without = "sidecars are not fitted to LimitRanges and ResourceQuotas, whose namespaces may refuse pods"
    yield RoleRule(LIMIT_RANGE.group, (LIMIT_RANGE.plural, RESOURCE_QUOTA.plural), _FOLLOW, without)
    without = "that the cluster refuses pods of StatefulSets, DaemonSets and Jobs is not reported, and failed probes have no answer"
    yield RoleRule(EVENT.group, (EVENT.plural,), _FOLLOW, without)
    for group, resources in by_group(key for key in metrics if key not in compiled):
        yield RoleRule(group, resources, _FOLLOW, "the metrics API does not serve metrics of these objects")
    tapped = [(kind.group, kind.plural) for kind in TAPPABLE_KINDS]
    for group, resources in by_group(key for key in tapped if key not in {*compiled, *metrics}):
        yield RoleRule(group, resources, _FOLLOW, "these objects can't be tapped")


def _writes() -> Iterator[RoleRule]:
    written = [names_of(kind, group) for group, kind in (*STATUSES, *ONLY_WITH_FINDINGS)]
    for group, resources in by_group((kind.group, f"{kind.plural}/status") for kind in written):
        yield RoleRule(group, resources, ("update",), "these statuses are not written")
    yield RoleRule(GATEWAY, ("gateways/status",), ("patch",), "Gateways get no addresses")
    yield RoleRule(GATEWAY, ("gatewayclasses",), ("create",), f"the GatewayClass {OWN_CLASS} is not created")
    yield from _EVENTS
    without = "pods with a sidecar do not start in namespaces that had none before"
    yield RoleRule("", ("configmaps",), ("create",), without)
    yield RoleRule("", ("configmaps",), ("patch", "delete"), without, (ROOTS_CONFIG_MAP,))
    without = "clients without a sidecar do not reach the gateways of Services"
    yield RoleRule(ENDPOINT_SLICE.group, (ENDPOINT_SLICE.plural,), ("create", "patch", "delete"), without)
    yield from _rollouts()


def _rollouts() -> Iterator[RoleRule]:
    """Yield the rules for Canaries. A rollout applies its TrafficSplit, and deletes it if the Canary loses its root.

    In a step with matches it has a second TrafficSplit and an HTTPRouteGroup, which it deletes after the step.
    It creates the root Service if there is none, but never changes a Service.
    """
    yield RoleRule(
        MESH, ("canaries/status",), ("update",), "rollouts do not go on, because their state can't be written"
    )
    yield RoleRule(
        SPLIT, ("trafficsplits",), ("create", "patch", "update", "delete"), "Canaries do not change the traffic"
    )
    yield RoleRule(
        SPECS, ("httproutegroups",), ("create", "patch", "delete"), "steps of Canaries with matches do not begin"
    )
    yield RoleRule("", ("services",), ("create",), "a root Service that does not exist is not created for its Canary")


def _bundles() -> Iterator[RoleRule]:
    """Yield rules for the objects that contain the CA bundle."""
    webhooks = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
    definitions = tuple(f"{kind.plural}.{kind.group}" for kind in converted_kinds())
    services = [
        api_service["metadata"]["name"] for api_service in api_services(f"{NAMESPACE}/{NAME}", b"", MeshOptions())
    ]
    yield RoleRule("admissionregistration.k8s.io", webhooks, _BUNDLE, f"webhooks fail {_STALE}", (NAME,))
    without = f"the conversion between versions fails {_STALE}"
    yield RoleRule("apiextensions.k8s.io", ("customresourcedefinitions",), _BUNDLE, without, definitions)
    without = f"the metrics and inspect APIs fail {_STALE}"
    yield RoleRule("apiregistration.k8s.io", ("apiservices",), _BUNDLE, without, tuple(services))


def _requested(group: ComputedGroup) -> Role:
    """Return the role for the APIService of a group that a cluster has only on request: `headgate-custom-metrics`."""
    without = f"clients of {group.name}, such as HorizontalPodAutoscalers, get no metrics {_STALE}"
    rule = RoleRule("apiregistration.k8s.io", ("apiservices",), _BUNDLE, without, (f"{group.version}.{group.name}",))
    return Role("ClusterRole", f"{NAME}-{group.option.replace('_', '-')}", "", (rule,))


def _own() -> Iterator[RoleRule]:
    """Yield the rules for the namespace of the control plane."""
    without = "no new certificates are issued, and a replica that starts does not become ready"
    yield RoleRule("", ("secrets",), ("get", "create", "update"), without)
    without = "`headgate ca` and the ConfigMap do not show the current roots"
    yield RoleRule("", ("configmaps",), ("patch",), without, (CA_STATUS.name,))
    yield RoleRule(
        "", ("pods",), ("patch",), "a replica that becomes active is not reached by proxies and the API server"
    )
    yield RoleRule("", ("services",), ("create", "patch", "delete"), "Gateways get no Services")
    without = "the proxies of Gateways and of Services are not created, changed and deleted"
    yield RoleRule("apps", ("deployments",), ("get", *_FOLLOW, "create", "patch", "delete"), without)
    yield RoleRule("policy", ("poddisruptionbudgets",), ("create", "patch", "delete"), without)
    without = "no replica becomes active: no proxy gets configurations or certificates"
    yield RoleRule("coordination.k8s.io", ("leases",), ("get", "create", "update"), without)
    without = "a standby replica takes over up to two seconds later"
    yield RoleRule("coordination.k8s.io", ("leases",), ("watch",), without)


def by_group(resources: Iterable[tuple[str, str]]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each group with its resources."""
    grouped: dict[str, list[str]] = {}
    for group, resource in resources:
        grouped.setdefault(group, []).append(resource)
    yield from ((group, tuple(names)) for group, names in grouped.items())
