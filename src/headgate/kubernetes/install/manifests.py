"""The objects of an installation on a cluster. The Helm chart is generated from them (`tools/chart.py`)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headgate.admission.injection import INJECT_LABELED, NAMESPACE_NAME
from headgate.api.aggregated_server import api_services
from headgate.kinds import ACCESS, GATEWAY, MESH, SPECS, SPLIT
from headgate.kubernetes.install.custom_resources import custom_resource_definitions, mesh_kinds
from headgate.kubernetes.install.node_agent import NAMESPACE_LABELS, RULES, daemon_set_spec
from headgate.kubernetes.install.roles import roles
from headgate.kubernetes.install.user_roles import UserRole, user_roles
from headgate.kubernetes.names import (
    ACTIVE,
    API_PORT,
    CONVERSION,
    CONVERTS,
    NAME,
    NAMESPACE,
    NODE_AGENT,
    WEBHOOK_PORT,
    WEBHOOKS,
    XDS_PORT,
)
from headgate.kubernetes.permissions import Role, RoleRule
from headgate.model.identities import GATEWAY_ACCOUNT
from headgate.options import NEVER_INJECTED, OPTIONS, IssuerRef, MeshOptions, pod_arguments
from headgate.resources.core.pod_metadata import INJECT, INJECTED, NOT_INJECTED
from headgate.resources.meta import Object, Value

USER = 65532  # the user ID of the control plane; the image needs no entry for it
_GROUPS = [SPLIT, SPECS, ACCESS, MESH, GATEWAY]
MANAGED_BY = "app.kubernetes.io/managed-by"
LABELS = {"app.kubernetes.io/name": NAME, MANAGED_BY: NAME}
_SELECTOR = {"app.kubernetes.io/name": NAME}
_SERVICE = f"{NAMESPACE}/{NAME}"
_SHORT_S = 2  # seconds that a write waits for a webhook whose answer is not required
_RBAC = "rbac.authorization.k8s.io"


class Values(Value, frozen=True, kw_only=True):
    """The values that users set, with `headgate install` or in the Helm chart.

    `budget_version` is the apiVersion of PodDisruptionBudgets that the cluster serves. `options` has the texts of
    options of the mesh, by their fields in `MeshOptions`; without a text, an option has its default.
    """

    image: str
    pull_policy: str = "IfNotPresent"
    replicas: int = 2
    budget_version: str = "policy/v1"
    options: Mapping[str, str] = {}

    @property
    def mesh(self) -> MeshOptions:
        """The options that decide which objects there are. Further options are only arguments of the control plane.

        In the chart, template expressions stand for the texts, so no text is checked.
        """
        texts = {field: self.options.get(field, declared.text) for field, declared in OPTIONS.items()}
        issuer = texts["cert_manager_issuer"]
        values: dict[str, Any] = {"cert_manager_issuer": IssuerRef(name=issuer) if issuer else None}
        for field, declared in OPTIONS.items():
            if declared.type is bool:
                values[field] = bool(texts[field])
            elif declared.default == ():
                values[field] = _names(texts[field])
        return MeshOptions(**values)


def all_manifests(budget_version: str) -> tuple[Object, ...]:
    """Return the objects of an installation with every option that adds objects."""
    switches = {field: str(True) for field, declared in OPTIONS.items() if declared.type is bool}
    return manifests(Values(image="", budget_version=budget_version, options=switches))


def manifests(values: Values) -> tuple[Object, ...]:
    """Return all objects, in the order in which they can be created."""
    mesh = values.mesh
    return (
        _namespace(values),
        *map(_labeled, custom_resource_definitions(mesh_kinds(), {"service": _service_of_webhooks(CONVERSION)})),
        _object("v1", "ServiceAccount", NAME),
        _object("v1", "ServiceAccount", GATEWAY_ACCOUNT, automountServiceAccountToken=False),
        *_roles(values),
        *map(_user_role, user_roles()),
        *_services(),
        _deployment(values),
        *(_node_agent(values) if mesh.node_agent else ()),
        _disruption_budget(values),
        _network_policy(),
        _injection(mesh.namespaces),
        _validation(mesh.namespaces),
        *map(_labeled, api_services(_SERVICE, b"", mesh)),
    )


def is_own_api_service(obj: Object) -> bool:
    """Return whether an APIService names headgate's Service; another server of custom metrics may have the same APIService."""
    service = obj["spec"].get("service") or {}
    return (service.get("namespace"), service.get("name")) == (NAMESPACE, NAME)


def _labeled(obj: Object) -> Object:
    return {**obj, "metadata": {**obj["metadata"], "labels": dict(LABELS)}}


def _object(version: str, kind: str, name: str, *, namespace: str = NAMESPACE, **parts: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "labels": dict(LABELS)}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **parts}


def _namespace(values: Values) -> Object:
    namespace = _object("v1", "Namespace", NAMESPACE, namespace="")
    if values.mesh.node_agent:
        namespace["metadata"]["labels"].update(NAMESPACE_LABELS)
    return namespace


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in text.split(",") if name))


def _roles(values: Values) -> Iterator[Object]:
    """Yield headgate's own roles, and a binding for each role."""
    for role in roles(values.mesh):
        if not role.binding:
            rules = [_rule(rule) for rule in role.rules]
            yield _object(f"{_RBAC}/v1", role.kind, role.name, namespace=role.namespace, rules=rules)
        yield _binding(role)


def _rule(rule: RoleRule) -> dict[str, Any]:
    fields = {"apiGroups": [rule.group], "resources": list(rule.resources), "verbs": list(rule.verbs)}
    return {**fields, "resourceNames": list(rule.names)} if rule.names else fields


def _binding(role: Role, account: str = NAME) -> Object:
    return _object(
        f"{_RBAC}/v1",
        "RoleBinding" if role.namespace else "ClusterRoleBinding",
        role.binding or role.name,
        namespace=role.namespace,
        roleRef={"apiGroup": _RBAC, "kind": role.kind, "name": role.name},
        subjects=[{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}],
    )


def _user_role(role: UserRole) -> Object:
    made = _object(f"{_RBAC}/v1", "ClusterRole", role.name, namespace="", rules=list(role.rules))
    made["metadata"]["labels"].update(role.labels)
    return made


def _services() -> tuple[Object, ...]:
    active = [
        {"name": "grpc-xds", "port": XDS_PORT, "targetPort": XDS_PORT, "protocol": "TCP"},
        {"name": "https", "port": 443, "targetPort": API_PORT, "protocol": "TCP"},
    ]
    every = [{"name": "https", "port": 443, "targetPort": WEBHOOK_PORT, "protocol": "TCP"}]
    converting = {"selector": {**_SELECTOR, CONVERTS: "true"}, "ports": every, "publishNotReadyAddresses": True}
    return (
        _object("v1", "Service", NAME, spec={"selector": {**_SELECTOR, ACTIVE: "true"}, "ports": active}),
        _object("v1", "Service", WEBHOOKS, spec={"selector": dict(_SELECTOR), "ports": every}),
        _object("v1", "Service", CONVERSION, spec=converting),
    )


def _deployment(values: Values) -> Object:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    spec = {
        "replicas": values.replicas,
        "selector": {"matchLabels": dict(_SELECTOR)},
        "strategy": strategy,
        "template": {"metadata": {"labels": {**LABELS, INJECT: "false"}}, "spec": _pod(values)},
    }
    return _object("apps/v1", "Deployment", NAME, spec=spec)


def _pod(values: Values) -> Mapping[str, Any]:
    apart = {
        "weight": 100,
        "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": dict(_SELECTOR)}},
    }
    secrets = [{"name": name} for name in values.mesh.pull_secrets]
    return {
        **({"imagePullSecrets": secrets} if secrets else {}),
        "serviceAccountName": NAME,
        "priorityClassName": "system-cluster-critical",
        "securityContext": {"runAsNonRoot": True, "runAsUser": USER, "seccompProfile": {"type": "RuntimeDefault"}},
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [apart]}},
        "containers": [_container(values)],
        "volumes": [{"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}}],
    }


def _container(values: Values) -> Mapping[str, Any]:
    ports = {"grpc-xds": XDS_PORT, "webhooks": WEBHOOK_PORT, "https": API_PORT}
    return {
        "name": NAME,
        "image": values.image,
        "imagePullPolicy": values.pull_policy,
        "command": ["headgate", "control-plane"],
        "args": pod_arguments(values.options),
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


def _node_agent(values: Values) -> tuple[Object, ...]:
    spec = daemon_set_spec(values.image, values.pull_policy, values.mesh.pull_secrets)
    return (
        _object("v1", "ServiceAccount", NODE_AGENT),
        _object(f"{_RBAC}/v1", "ClusterRole", NODE_AGENT, namespace="", rules=RULES),
        _binding(Role("ClusterRole", NODE_AGENT, "", ()), NODE_AGENT),
        _object("apps/v1", "DaemonSet", NODE_AGENT, spec=spec),
    )


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


def _service_of_webhooks(name: str = WEBHOOKS) -> dict[str, Any]:
    return {"namespace": NAMESPACE, "name": name, "port": 443}


def _webhook(name: str, path: str, **more: Any) -> dict[str, Any]:
    return {
        "name": f"{name}.headgate.dev",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {"service": {**_service_of_webhooks(), "path": path}},
        **more,
    }


def _injection(namespaces: Sequence[str]) -> Object:
    """Return the webhooks of injection: for labeled namespaces, for labeled pods elsewhere, and for pods without the label.

    The first one has a path of its own, so that the label holds as the API server knows it.
    The first two fail closed, because these pods must not start without a sidecar. The third one is for pods that get a
    sidecar by their annotation, by a TLSConfig or by `--sidecars all`. It must not stop other pods, so it fails open.
    """
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]
    labeled, unlabeled = ({"key": INJECT, "operator": operator} for operator in ("Exists", "DoesNotExist"))
    not_opted_out = {"key": INJECT, "operator": "NotIn", "values": list(NOT_INJECTED)}
    injected = _selector(namespaces, {"key": INJECT, "operator": "In", "values": list(INJECTED)})
    elsewhere = _selector(namespaces, {"key": INJECT, "operator": "NotIn", "values": list(INJECTED)})
    hooks = [
        _webhook("namespaces", INJECT_LABELED, failurePolicy="Fail", rules=rules, namespaceSelector=injected),
        _webhook(
            "pods",
            "/inject",
            failurePolicy="Fail",
            rules=rules,
            namespaceSelector=elsewhere,
            objectSelector={"matchExpressions": [labeled, not_opted_out]},
        ),
        _webhook(
            "unlabeled-pods",
            "/inject",
            failurePolicy="Ignore",
            timeoutSeconds=_SHORT_S,
            rules=rules,
            namespaceSelector=elsewhere,
            objectSelector={"matchExpressions": [unlabeled]},
        ),
    ]
    return _object(
        "admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", NAME, namespace="", webhooks=hooks
    )


def _selector(namespaces: Sequence[str], *requirements: Mapping[str, Any]) -> dict[str, Any]:
    """Return a selector of namespaces, of all if none are given, without those that a webhook must never delay.

    Kubernetes 1.21 and newer write the label with their names.
    """
    names = {"key": NAMESPACE_NAME, "operator": "NotIn", "values": list(NEVER_INJECTED)}
    return {"matchExpressions": [*requirements, names, *_only(namespaces).get("matchExpressions", ())]}


def _only(namespaces: Sequence[str]) -> dict[str, Any]:
    limit = {"key": NAMESPACE_NAME, "operator": "In", "values": list(namespaces)}
    return {"matchExpressions": [limit]} if namespaces else {}


def _validation(namespaces: Sequence[str]) -> Object:
    def rule(
        groups: Sequence[str], *resources: str, operations: Sequence[str] = ("CREATE", "UPDATE")
    ) -> dict[str, Any]:
        fields = {"operations": list(operations), "resources": list(resources)}
        return {"apiGroups": list(groups), "apiVersions": ["*"], **fields}

    workloads = [rule(["apps"], "daemonsets", "deployments", "statefulsets"), rule(["batch"], "cronjobs", "jobs")]
    short = {"failurePolicy": "Ignore", "timeoutSeconds": _SHORT_S, "namespaceSelector": _selector(namespaces)}
    hooks = [
        _webhook(
            "objects",
            "/validate",
            failurePolicy="Ignore",
            timeoutSeconds=5,
            rules=[rule(_GROUPS, "*")],
            namespaceSelector=_only(namespaces),
        ),
        # Only for warnings. While no control plane answers, it delays the deletion of an object by this time at most.
        _webhook(
            "deletions",
            "/validate",
            failurePolicy="Ignore",
            timeoutSeconds=_SHORT_S,
            rules=[rule(_GROUPS, "*", operations=["DELETE"])],
            namespaceSelector=_only(namespaces),
        ),
        # Only for warnings: Kubernetes itself validates Services.
        _webhook("services", "/validate", rules=[rule([""], "services")], **{**short, "timeoutSeconds": 5}),
        _webhook("labels", "/validate", rules=[rule([""], "namespaces")], **short),
        _webhook("workloads", "/validate", rules=workloads, **short),
    ]
    return _object(
        "admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", NAME, namespace="", webhooks=hooks
    )
