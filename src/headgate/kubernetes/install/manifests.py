"""The objects of an installation on a cluster. The Helm chart is generated from them (`tools/chart.py`)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from headgate.api.aggregated_server import api_services
from headgate.kubernetes.install.custom_resources import custom_resource_definitions, mesh_kinds
from headgate.kubernetes.install.node_agent import NAMESPACE_LABELS, RULES, daemon_set_spec
from headgate.kubernetes.install.roles import reading_roles, roles
from headgate.kubernetes.install.user_roles import UserRole, user_roles
from headgate.kubernetes.install.webhook_configurations import (
    injection_webhooks,
    revision_webhooks,
    service_of_webhooks,
    validation_webhooks,
)
from headgate.kubernetes.names import (
    ACTIVE,
    API_PORT,
    CONVERSION,
    CONVERTS,
    NAME,
    NAMESPACE,
    NODE_AGENT,
    REVISION_PREFIX,
    WEBHOOK_PORT,
    WEBHOOKS,
    XDS_PORT,
)
from headgate.kubernetes.permissions import Role, RoleRule
from headgate.model.identities import GATEWAY_ACCOUNT
from headgate.options import OPTIONS, IssuerRef, MeshOptions, pod_arguments
from headgate.resources.core.pod_metadata import INJECT, REVISION
from headgate.resources.meta import Object, Value

USER = 65532  # the user ID of the control plane; the image needs no entry for it
MANAGED_BY = "app.kubernetes.io/managed-by"
LABELS = {"app.kubernetes.io/name": NAME, MANAGED_BY: NAME}
_SELECTOR = {"app.kubernetes.io/name": NAME}
_SERVICE = f"{NAMESPACE}/{NAME}"
_ADMISSION = "admissionregistration.k8s.io/v1"
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
        *map(_labeled, custom_resource_definitions(mesh_kinds(), {"service": service_of_webhooks(CONVERSION)})),
        _object("v1", "ServiceAccount", NAME),
        _object("v1", "ServiceAccount", GATEWAY_ACCOUNT, automountServiceAccountToken=False),
        *_with_bindings(roles(mesh)),
        *map(_user_role, user_roles()),
        *_services(),
        _deployment(values),
        *(_node_agent(values) if mesh.node_agent else ()),
        _disruption_budget(values),
        _network_policy(),
        _mutating(injection_webhooks(mesh.namespaces)),
        _object(
            _ADMISSION,
            "ValidatingWebhookConfiguration",
            NAME,
            namespace="",
            webhooks=validation_webhooks(mesh.namespaces),
        ),
        *map(_labeled, api_services(_SERVICE, b"", mesh)),
    )


def revision_manifests(values: Values, revision: str) -> tuple[Object, ...]:
    """Return the objects of a revision beside the default one, whose options it has: `values` differ in the image and the replicas.

    Its replicas have the ServiceAccount of the default one. They are in no Service of the default one, and in no disruption budget.
    """
    name = f"{REVISION_PREFIX}{revision}"
    selector = {"app.kubernetes.io/name": name}
    port = {"name": "https", "port": 443, "targetPort": WEBHOOK_PORT, "protocol": "TCP"}
    deployment = _deployment(values, name, selector, ["--revision", revision])
    injection = revision_webhooks(values.mesh.namespaces, revision, name)
    objects = (
        *_with_bindings(_revision_roles(values.mesh, name)),
        _object("v1", "Service", name, spec={"selector": selector, "ports": [port]}),
        deployment,
        _network_policy(name, selector, (WEBHOOK_PORT,)),
        _mutating(injection, name),
    )
    return tuple(_of_revision(obj, revision) for obj in objects)


def _revision_roles(mesh: MeshOptions, name: str) -> Iterator[Role]:
    """Yield the roles of a revision. It reads kinds that the roles of an older installation lack."""
    webhooks = ("mutatingwebhookconfigurations",)
    rule = RoleRule("admissionregistration.k8s.io", webhooks, ("get", "update"), "its webhooks fail", (name,))
    for role in reading_roles(mesh):
        own = (rule,) if role.kind == "ClusterRole" else ()
        yield role._replace(name=name, rules=(*own, *role.rules))


def _of_revision(obj: Object, revision: str) -> Object:
    return {**obj, "metadata": {**obj["metadata"], "labels": {**obj["metadata"]["labels"], REVISION: revision}}}


def is_own_api_service(obj: Object) -> bool:
    """Return whether an APIService names headgate's Service; another server of custom metrics may have the same APIService."""
    service = obj["spec"].get("service") or {}
    return (service.get("namespace"), service.get("name")) == (NAMESPACE, NAME)


def _mutating(hooks: Sequence[Object], name: str = NAME) -> Object:
    return _object(_ADMISSION, "MutatingWebhookConfiguration", name, namespace="", webhooks=hooks)


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


def _with_bindings(own: Iterable[Role]) -> Iterator[Object]:
    """Yield headgate's own roles, and a binding for each role."""
    for role in own:
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


def _deployment(
    values: Values, name: str = NAME, selector: Mapping[str, str] = _SELECTOR, arguments: Sequence[str] = ()
) -> Object:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    spec = {
        "replicas": values.replicas,
        "selector": {"matchLabels": dict(selector)},
        "strategy": strategy,
        "template": {
            "metadata": {"labels": {**LABELS, **selector, INJECT: "false"}},
            "spec": _pod(values, selector, arguments),
        },
    }
    return _object("apps/v1", "Deployment", name, spec=spec)


def _pod(values: Values, selector: Mapping[str, str], arguments: Sequence[str]) -> Mapping[str, Any]:
    apart = {
        "weight": 100,
        "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": dict(selector)}},
    }
    secrets = [{"name": name} for name in values.mesh.pull_secrets]
    return {
        **({"imagePullSecrets": secrets} if secrets else {}),
        "serviceAccountName": NAME,
        "priorityClassName": "system-cluster-critical",
        "securityContext": {"runAsNonRoot": True, "runAsUser": USER, "seccompProfile": {"type": "RuntimeDefault"}},
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [apart]}},
        "containers": [_container(values, arguments)],
        "volumes": [{"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}}],
    }


def _container(values: Values, arguments: Sequence[str]) -> Mapping[str, Any]:
    ports = {"grpc-xds": XDS_PORT, "webhooks": WEBHOOK_PORT, "https": API_PORT}
    return {
        "name": NAME,
        "image": values.image,
        "imagePullPolicy": values.pull_policy,
        "command": ["headgate", "control-plane"],
        "args": [*pod_arguments(values.options), *arguments],
        "env": [
            {"name": "HEADGATE_IMAGE", "value": values.image},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ],
        "ports": [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in ports.items()],
        "startupProbe": {**_probe("/healthz", period=2), "failureThreshold": 60},  # the first lists may take a minute
        "readinessProbe": _probe("/readyz", period=2),
        "livenessProbe": _probe("/healthz", period=10),
        # Measured: 239 MB with 1,000 Services and 1,000 proxies, 366 MB while all reconnect (docs/explain/performance.md).
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


def _network_policy(
    name: str = NAME,
    selector: Mapping[str, str] = _SELECTOR,
    numbers: Sequence[int] = (XDS_PORT, WEBHOOK_PORT, API_PORT),
) -> Object:
    """Return the NetworkPolicy, which allows connections to the ports of replicas from any source.

    The API server is not a pod, so no selector can allow only its connections.
    """
    ports = [{"protocol": "TCP", "port": port} for port in numbers]
    spec = {
        "podSelector": {"matchLabels": dict(selector)},
        "policyTypes": ["Ingress"],
        "ingress": [{"ports": ports}],
    }
    return _object("networking.k8s.io/v1", "NetworkPolicy", name, spec=spec)
