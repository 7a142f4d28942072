"""The objects of an installation on a cluster. The Helm chart is generated from them (`tools/chart.py`)."""

from collections.abc import Mapping, Sequence
from typing import Any

from headgate.api.aggregated_server import api_services
from headgate.kinds import ACCESS, GATEWAY, MESH, SPECS, SPLIT
from headgate.kubernetes.install.custom_resources import custom_resource_definitions, mesh_kinds
from headgate.kubernetes.names import ACTIVE, API_PORT, NAME, NAMESPACE, WEBHOOK_PORT, WEBHOOKS, XDS_PORT
from headgate.model.identities import GATEWAY_ACCOUNT
from headgate.resources.meta import Object, Value
from headgate.resources.pods import INJECT, INJECTED, NOT_INJECTED

USER = 65532  # the user ID of the control plane; the image needs no entry for it
_GROUPS = [SPLIT, SPECS, ACCESS, MESH, GATEWAY]
MANAGED_BY = "app.kubernetes.io/managed-by"
_LABELS = {"app.kubernetes.io/name": NAME, MANAGED_BY: NAME}
_SELECTOR = {"app.kubernetes.io/name": NAME}
_READ = ["get", "list", "watch"]
_LABELED = {"key": INJECT, "operator": "Exists"}
_SERVICE = f"{NAMESPACE}/{NAME}"
_RBAC = "rbac.authorization.k8s.io"


class Values(Value, frozen=True, kw_only=True):
    """The values that users set, with `headgate install` or in the Helm chart.

    `budget_version` is the apiVersion of PodDisruptionBudgets that the cluster serves. With `custom_metrics`, headgate is the
    cluster's server of custom metrics, which HorizontalPodAutoscalers read.
    """

    image: str
    pull_policy: str = "IfNotPresent"
    replicas: int = 2
    mtls: str = "permissive"
    access: str = "selected"
    sidecars: str = "labelled"
    trust_domain: str = "cluster.local"
    budget_version: str = "policy/v1"
    custom_metrics: bool = False


def manifests(values: Values) -> tuple[Object, ...]:
    """Return all objects, in the order in which they can be created."""
    return (
        _object("v1", "Namespace", NAMESPACE, namespace=""),
        *map(_labeled, custom_resource_definitions(mesh_kinds(), {"service": _webhooks_service()})),
        _object("v1", "ServiceAccount", NAME),
        _object("v1", "ServiceAccount", GATEWAY_ACCOUNT, automountServiceAccountToken=False),
        *_roles(),
        *_services(),
        _deployment(values),
        _disruption_budget(values),
        _network_policy(),
        _injection(),
        _validation(),
        *map(_labeled, api_services(_SERVICE, b"", custom_metrics=values.custom_metrics)),
    )


def every_api_service() -> tuple[Object, ...]:
    """Return the APIServices of an installation with custom metrics."""
    return api_services(_SERVICE, b"", custom_metrics=True)


def is_own_api_service(obj: Object) -> bool:
    """Return whether an APIService names headgate's Service; another server of custom metrics may have the same APIService."""
    service = obj["spec"].get("service") or {}
    return (service.get("namespace"), service.get("name")) == (NAMESPACE, NAME)


def _labeled(obj: Object) -> Object:
    return {**obj, "metadata": {**obj["metadata"], "labels": dict(_LABELS)}}


def _object(version: str, kind: str, name: str, *, namespace: str = NAMESPACE, **parts: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "labels": dict(_LABELS)}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **parts}


def _rule(groups: Sequence[str], resources: str, verbs: Sequence[str], names: Sequence[str] = ()) -> dict[str, Any]:
    found = {"apiGroups": list(groups), "resources": resources.split(), "verbs": list(verbs)}
    return {**found, "resourceNames": list(names)} if names else found


def _roles() -> tuple[Object, ...]:
    """Return the roles and their bindings. docs/kubernetes.md has the reason for each permission."""
    cluster = [
        _rule([""], "namespaces services pods secrets", _READ),
        _rule([""], "nodes replicationcontrollers", _READ),
        _rule([""], "configmaps", ["create", "patch"]),
        _rule([""], "events", ["get", "create", "update"]),
        _rule(["apps"], "deployments replicasets daemonsets statefulsets", _READ),
        _rule(["batch"], "jobs", _READ),
        _rule(["discovery.k8s.io"], "endpointslices", _READ),
        _rule(_GROUPS, "*", _READ),
        _rule(_GROUPS, "*/status", ["update"]),
        _rule([GATEWAY], "gateways/status", ["patch"]),
        _rule([GATEWAY], "gatewayclasses", ["create"]),
        _rule(
            ["admissionregistration.k8s.io"],
            "mutatingwebhookconfigurations validatingwebhookconfigurations",
            ["get", "update"],
            [NAME],
        ),
        _rule(
            ["apiextensions.k8s.io"],
            "customresourcedefinitions",
            ["get", "update"],
            [f"{kind.plural}.{kind.group}" for kind in mesh_kinds()],
        ),
        _rule(
            ["apiregistration.k8s.io"],
            "apiservices",
            ["get", "update"],
            [item["metadata"]["name"] for item in every_api_service()],
        ),
    ]
    own = [
        _rule([""], "secrets", ["create", "update"]),
        _rule([""], "configmaps", _READ),
        _rule([""], "pods", ["patch"]),
        _rule([""], "services", ["create", "patch", "delete"]),
        _rule(["apps"], "deployments", ["create", "patch", "delete"]),
        _rule(["coordination.k8s.io"], "leases", ["get", "list", "watch", "create", "update"]),
    ]
    return (
        _object(f"{_RBAC}/v1", "ClusterRole", NAME, namespace="", rules=cluster),
        _binding("ClusterRoleBinding", NAME, ("ClusterRole", NAME), namespace=""),
        _binding(
            "ClusterRoleBinding", f"{NAME}-auth-delegator", ("ClusterRole", "system:auth-delegator"), namespace=""
        ),
        _object(f"{_RBAC}/v1", "Role", NAME, rules=own),
        _binding("RoleBinding", NAME, ("Role", NAME)),
        _binding(
            "RoleBinding",
            f"{NAME}-reader",
            ("Role", "extension-apiserver-authentication-reader"),
            namespace="kube-system",
        ),
    )


def _binding(kind: str, name: str, role: tuple[str, str], *, namespace: str = NAMESPACE) -> Object:
    return _object(
        f"{_RBAC}/v1",
        kind,
        name,
        namespace=namespace,
        roleRef={"apiGroup": _RBAC, "kind": role[0], "name": role[1]},
        subjects=[{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}],
    )


def _services() -> tuple[Object, ...]:
    active = [
        {"name": "grpc-xds", "port": XDS_PORT, "targetPort": XDS_PORT, "protocol": "TCP"},
        {"name": "https", "port": 443, "targetPort": API_PORT, "protocol": "TCP"},
    ]
    every = [{"name": "https", "port": 443, "targetPort": WEBHOOK_PORT, "protocol": "TCP"}]
    return (
        _object("v1", "Service", NAME, spec={"selector": {**_SELECTOR, ACTIVE: "true"}, "ports": active}),
        _object("v1", "Service", WEBHOOKS, spec={"selector": dict(_SELECTOR), "ports": every}),
    )


def _deployment(values: Values) -> Object:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    spec = {
        "replicas": values.replicas,
        "selector": {"matchLabels": dict(_SELECTOR)},
        "strategy": strategy,
        "template": {"metadata": {"labels": {**_LABELS, INJECT: "false"}}, "spec": _pod(values)},
    }
    return _object("apps/v1", "Deployment", NAME, spec=spec)


def _pod(values: Values) -> Mapping[str, Any]:
    apart = {
        "weight": 100,
        "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": dict(_SELECTOR)}},
    }
    return {
        "serviceAccountName": NAME,
        "priorityClassName": "system-cluster-critical",
        "securityContext": {"runAsNonRoot": True, "runAsUser": USER, "seccompProfile": {"type": "RuntimeDefault"}},
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [apart]}},
        "containers": [_container(values)],
        "volumes": [{"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}}],
    }


def _container(values: Values) -> Mapping[str, Any]:
    options = {
        "sidecars": values.sidecars,
        "mtls": values.mtls,
        "access": values.access,
        "trust-domain": values.trust_domain,
    }
    ports = {"grpc-xds": XDS_PORT, "webhooks": WEBHOOK_PORT, "https": API_PORT}
    return {
        "name": NAME,
        "image": values.image,
        "imagePullPolicy": values.pull_policy,
        "command": ["headgate", "control-plane"],
        "args": [f"--{name}={value}" for name, value in options.items()],
        "env": [
            {"name": "HEADGATE_IMAGE", "value": values.image},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ],
        "ports": [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in ports.items()],
        "startupProbe": {**_probe("/healthz", period=2), "failureThreshold": 60},  # the first lists may take a minute
        "readinessProbe": _probe("/readyz", period=2),
        "livenessProbe": _probe("/healthz", period=10),
        # Measured: 239 MB with 1,000 Services and 1,000 proxies, 366 MB while all reconnect (docs/performance.md).
        "resources": {
            "requests": {"cpu": "100m", "memory": "256Mi"},
            "limits": {"memory": "2Gi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108 - a directory of the container
    }


def _probe(path: str, *, period: int) -> Mapping[str, Any]:
    get = {"path": path, "port": WEBHOOK_PORT, "scheme": "HTTPS"}
    return {"httpGet": get, "periodSeconds": period, "timeoutSeconds": 5}


def _disruption_budget(values: Values) -> Object:
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": dict(_SELECTOR)}}
    return _object(values.budget_version, "PodDisruptionBudget", NAME, spec=spec)


def _network_policy() -> Object:
    """Return the NetworkPolicy, which allows connections to the three ports from any source.

    The API server is not a pod, so no selector can allow only its connections.
    """
    ports = [{"protocol": "TCP", "port": port} for port in (XDS_PORT, WEBHOOK_PORT, API_PORT)]
    spec = {
        "podSelector": {"matchLabels": dict(_SELECTOR)},
        "policyTypes": ["Ingress"],
        "ingress": [{"ports": ports}],
    }
    return _object("networking.k8s.io/v1", "NetworkPolicy", NAME, spec=spec)


def _webhooks_service() -> dict[str, Any]:
    return {"namespace": NAMESPACE, "name": WEBHOOKS, "port": 443}


def _webhook(name: str, path: str, **more: Any) -> dict[str, Any]:
    return {
        "name": f"{name}.headgate.dev",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {"service": {**_webhooks_service(), "path": path}},
        **more,
    }


def _injection() -> Object:
    """Return the webhooks of injection: one for labeled namespaces, one for labeled pods in other namespaces.

    These pods must not start without a sidecar, so both webhooks fail closed. No webhook is called for other pods.
    """
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    injected = {"key": INJECT, "operator": "In", "values": list(INJECTED)}
    names = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", NAMESPACE]}
    elsewhere = {"matchExpressions": [{**injected, "operator": "NotIn"}, names]}
    hooks = [
        _webhook(
            "namespaces",
            "/inject",
            failurePolicy="Fail",
            rules=[rule],
            namespaceSelector={"matchExpressions": [injected]},
        ),
        _webhook(
            "pods",
            "/inject",
            failurePolicy="Fail",
            rules=[rule],
            namespaceSelector=elsewhere,
            objectSelector={
                "matchExpressions": [_LABELED, {**_LABELED, "operator": "NotIn", "values": list(NOT_INJECTED)}]
            },
        ),
    ]
    return _object(
        "admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", NAME, namespace="", webhooks=hooks
    )


def _validation() -> Object:
    rule = {"apiGroups": _GROUPS, "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": ["*"]}
    namespaces = {**rule, "apiGroups": [""], "apiVersions": ["v1"], "resources": ["namespaces"]}
    selector = {"objectSelector": {"matchExpressions": [_LABELED]}}
    hooks = [
        _webhook("objects", "/validate", failurePolicy="Ignore", timeoutSeconds=5, rules=[rule]),
        _webhook("labels", "/validate", failurePolicy="Ignore", timeoutSeconds=5, rules=[namespaces], **selector),
    ]
    return _object(
        "admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", NAME, namespace="", webhooks=hooks
    )
