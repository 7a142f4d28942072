"""Texts that reach terminals, file names, requests and configurations are checked when they are written."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from headgate.admission.chain import object_check
from headgate.admission.workloads import workload_causes
from headgate.resources.decode import check
from headgate.resources.registry import BUILT_IN, DEFINITION
from headgate.resources.schema.catalog import schemas
from headgate.settings import DEFAULTS

HOSTILE = "X y\x1b[31m/../\n"
KEY = "the key of a map"
UNCHECKED = {
    # Kubernetes' schemas and the Gateway API's CRDs allow any text there. These fields are references and free texts: what
    # does not exist is reported with escapes, and no proxy, file or request gets the text.
    "Secret": ("type", "data.k", "stringData.k"),
    "ConfigMap": ("data.k",),
    "Namespace": ("spec.finalizers[0]",),
    "Service": (
        *("spec.clusterIPs[0]", "spec.externalIPs[0]", "spec.externalTrafficPolicy", "spec.internalTrafficPolicy"),
        *("spec.ipFamilies[0]", "spec.ipFamilyPolicy", "spec.loadBalancerClass", "spec.loadBalancerIP"),
        *(
            "spec.loadBalancerSourceRanges[0]",
            "spec.sessionAffinity",
            "spec.topologyKeys[0]",
            "spec.trafficDistribution",
        ),
        "spec.externalName",  # the compiler checks it: the reason NameNotResolved
    ),
    "PersistentVolumeClaim": ("spec.",),  # its directory has only its name, which is checked
    "ServiceAccount": ("imagePullSecrets[0].", "secrets[0]."),
    "EndpointSlice": (
        *("endpoints[0].deprecatedTopology", "endpoints[0].topology", "endpoints[0].hints"),
        *("endpoints[0].targetRef", "endpoints[0].zone"),
    ),
    "GatewayClass": ("spec.description", "spec.parametersRef.name"),
    "Gateway": (
        *("spec.addresses[0]", "spec.allowedListeners.namespaces.selector", "spec.gatewayClassName"),
        *("spec.infrastructure.annotations", "spec.infrastructure.labels"),  # Programmed has the API server's message
        *("spec.infrastructure.parametersRef.name", "spec.listeners[0].allowedRoutes.namespaces.selector"),
        *("spec.listeners[0].tls.certificateRefs[0].name", "spec.listeners[0].tls.options", "spec.tls."),
    ),
    "ListenerSet": (
        *("spec.listeners[0].allowedRoutes.namespaces.selector", "spec.parentRef.name"),
        *("spec.listeners[0].tls.certificateRefs[0].name", "spec.listeners[0].tls.options"),
    ),
    "HTTPRoute": (
        *("spec.parentRefs[0].name", "spec.rules[0].sessionPersistence"),
        *("spec.rules[0].matches[0].headers[0].value", "spec.rules[0].matches[0].queryParams[0].value"),
    ),
    "GRPCRoute": (
        *("spec.parentRefs[0].name", "spec.rules[0].sessionPersistence", "spec.rules[0].matches[0].headers[0].value"),
    ),
    "TCPRoute": ("spec.parentRefs[0].name",),
    "TLSRoute": ("spec.parentRefs[0].name",),
    "UDPRoute": ("spec.parentRefs[0].name",),
    "ReferenceGrant": ("spec.to[0].name",),
    "BackendTLSPolicy": ("spec.options", "spec.targetRefs[0].name", "spec.validation.caCertificateRefs[0].name"),
    "XMesh": ("spec.description", "spec.parametersRef.name"),
    "XBackendTrafficPolicy": ("spec.targetRefs[0].name",),
    "XBackend": ("spec.tls.validation.caCertificateRefs[0].name",),
}
IN_ROUTES = ("backendRefs[0].name", "backendRef.name", "extensionRef.name", ".externalAuth.backendRef.")
WORKLOADS = {"Deployment", "ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Job", "CronJob"}
ELSEWHERE = {"Pod", *WORKLOADS, "Event", "Node", "Scale", "Status"}
"""Kinds with own tests below: all workloads have the same check of their pod templates; Events have free texts, and users can't write a Node other than that of the machine."""


def texts(schema: Mapping[str, Any], path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the path of each text in a schema; 0 is the first item of a list."""
    if schema.get("type") == "array":
        yield from texts(schema.get("items", {}), (*path, 0))
    elif schema.get("type") == "object" or "properties" in schema:
        for name, field in schema.get("properties", {}).items():
            yield from texts(field, (*path, name))
        if isinstance(schema.get("additionalProperties"), Mapping):
            yield from texts(schema["additionalProperties"], (*path, "k"))
            yield (*path, KEY)
    elif schema.get("type") == "string" or schema.get("format") == "int-or-string":
        yield path


def written(path: tuple[str | int, ...]) -> Any:
    value: Any = "v" if path[-1] == KEY else HOSTILE
    for name in reversed(path):
        value = [value] if name == 0 else {HOSTILE if name == KEY else name: value}
    return value


def field(path: tuple[str | int, ...]) -> str:
    return "".join(f"[{name}]" if name == 0 else f".{name}" for name in path if name != KEY).lstrip(".")


def is_carried_out(group: str, kind: str) -> bool:
    """Return whether headgate reads objects of a kind; the other kinds' texts reach no proxy, no file and no program."""
    stored = BUILT_IN.find(group, kind)
    return stored is not DEFINITION and not (stored and stored.without_effect)


def is_unchecked(kind: str, name: str) -> bool:
    return name.startswith(UNCHECKED.get(kind, ("-",))) or any(word in name for word in IN_ROUTES)


@pytest.mark.parametrize(
    ("apiversion", "kind"),
    [
        (f"{group}/{version}" if group else version, kind)
        for group, version, kind in schemas()
        if kind not in ELSEWHERE and is_carried_out(group, kind)
    ],
)
def test_each_text_of_a_kind_is_checked_or_listed_as_free(apiversion: str, kind: str) -> None:
    group, _, version = apiversion.rpartition("/")
    accepted = []
    for path in texts(schemas()[group, version, kind]):
        if path[0] in ("apiVersion", "kind", "metadata", "status"):
            continue
        obj = {"apiVersion": apiversion, "kind": kind, "metadata": {"name": "a", "namespace": "b"}, **written(path)}
        causes = [cause.field for cause in object_check(DEFAULTS)(obj, request=True).causes]
        name = field(path)
        if not any(cause.startswith(name) or cause == field(path[:-1]) for cause in causes):
            accepted.append(name)
    assert [name for name in accepted if not is_unchecked(kind, name)] == []


def deployment_with_template(metadata: Mapping[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    labels = {"app": "a"}
    containers = [{"name": "a", "image": "a"}]
    template = {"metadata": {"labels": labels, **(metadata or {})}, "spec": {"containers": containers, **spec}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "a", "namespace": "b"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


def with_container(**fields: Any) -> dict[str, Any]:
    return deployment_with_template(containers=[{"name": "a", "image": "a", **fields}])


def with_volume(**source: Any) -> dict[str, Any]:
    return deployment_with_template(volumes=[{"name": "v", **source}])


POD_FIELDS = [
    (with_container(ports=[{"containerPort": 80, "name": HOSTILE}]), "containers[0].ports[0].name"),
    (with_container(ports=[{"containerPort": 80, "name": "a-name-of-16-char"}]), "containers[0].ports[0].name"),
    (with_container(ports=[{"containerPort": 80, "protocol": "tcp"}]), "containers[0].ports[0].protocol"),
    (with_container(env=[{"name": "A=B", "value": HOSTILE}]), "containers[0].env[0].name"),
    (with_container(env=[{"name": "A\n"}]), "containers[0].env[0].name"),
    (
        with_container(env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "a", "key": "../a"}}}]),
        "containers[0].env[0].valueFrom.secretKeyRef.key",
    ),
    (with_container(envFrom=[{"prefix": HOSTILE, "configMapRef": {"name": "a"}}]), "containers[0].envFrom[0].prefix"),
    (
        with_container(volumeMounts=[{"name": "v", "mountPath": "/a", "subPath": "../b"}]),
        "containers[0].volumeMounts[0].subPath",
    ),
    (
        with_container(readinessProbe={"httpGet": {"port": 80, "httpHeaders": [{"name": "a\r\nb", "value": "c"}]}}),
        "containers[0].readinessProbe.httpGet.httpHeaders[0].name",
    ),
    (with_container(livenessProbe={"httpGet": {"port": "A B"}}), "containers[0].livenessProbe.httpGet.port"),
    (
        with_container(startupProbe={"httpGet": {"port": 80, "scheme": "ftp"}}),
        "containers[0].startupProbe.httpGet.scheme",
    ),
    (deployment_with_template(volumes=[{"name": "../v", "emptyDir": {}}]), "volumes[0].name"),
    (
        deployment_with_template(volumes=[{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}]),
        "volumes[1].name",
    ),
    (with_volume(hostPath={"path": "/a/../b"}), "volumes[0].hostPath.path"),
    (
        with_volume(configMap={"name": "a", "items": [{"key": "k", "path": "../b"}]}),
        "volumes[0].configMap.items[0].path",
    ),
    (with_volume(configMap={"name": "a", "items": [{"key": "k", "path": "/b"}]}), "volumes[0].configMap.items[0].path"),
    (with_volume(secret={"secretName": "a", "items": [{"key": "a b", "path": "b"}]}), "volumes[0].secret.items[0].key"),
    (deployment_with_template(nodeName=HOSTILE), "nodeName"),
    (deployment_with_template(restartPolicy="Sometimes"), "restartPolicy"),
    (deployment_with_template(activeDeadlineSeconds=0), "activeDeadlineSeconds"),
    (deployment_with_template(securityContext={"fsGroup": -1}), "securityContext.fsGroup"),
    (
        deployment_with_template(initContainers=[{"name": "i", "image": "i", "restartPolicy": "Never"}]),
        "initContainers[0].restartPolicy",
    ),
    (with_container(securityContext={"runAsUser": 2**40}), "containers[0].securityContext.runAsUser"),
    (
        with_container(
            lifecycle={"preStop": {"httpGet": {"port": 80, "httpHeaders": [{"name": "a\nb", "value": "c"}]}}}
        ),
        "containers[0].lifecycle.preStop.httpGet.httpHeaders[0].name",
    ),
    (
        with_volume(projected={"sources": [{"secret": {"name": "a", "items": [{"key": "k", "path": "../b"}]}}]}),
        "volumes[0].projected.sources[0].secret.items[0].path",
    ),
    (
        with_volume(downwardAPI={"items": [{"path": "/b", "fieldRef": {"fieldPath": "metadata.name"}}]}),
        "volumes[0].downwardAPI.items[0].path",
    ),
]


@pytest.mark.parametrize(("obj", "where"), POD_FIELDS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_field_of_a_pod_template_is_checked_as_in_kubernetes(obj: Mapping[str, Any], where: str) -> None:
    (cause,) = workload_causes(obj)
    assert cause.field == f"spec.template.spec.{where}"
    assert cause.message.isprintable()
    spec = obj["spec"]["template"]["spec"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "b"}, "spec": spec}
    assert [cause.field for cause in workload_causes(pod)] == [f"spec.{where}"]


@pytest.mark.parametrize("word", ["labels", "annotations"])
def test_a_key_in_the_metadata_of_a_pod_template_is_checked(word: str) -> None:
    labels = {"app": "a"}
    obj = deployment_with_template({"labels": labels, word: {**(labels if word == "labels" else {}), HOSTILE: "v"}})
    (cause,) = workload_causes(obj)
    assert cause.field.startswith(f"spec.template.metadata.{word}.")


def test_a_plain_pod_is_accepted() -> None:
    container = {
        "name": "a",
        "ports": [{"containerPort": 80, "name": "web-1"}],
        "env": [
            {"name": "a.b-c", "value": HOSTILE},
            {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ],
        "volumeMounts": [{"name": "v", "mountPath": "/a", "subPath": "b/c"}],
        "readinessProbe": {"httpGet": {"port": "web-1", "httpHeaders": [{"name": "Host", "value": "a"}]}},
    }
    items = [{"key": "a.json", "path": "b/..c/a.json"}]
    assert [
        *workload_causes(
            deployment_with_template(
                containers=[container], volumes=[{"name": "v", "configMap": {"name": "a", "items": items}}]
            )
        )
    ] == []


@pytest.mark.parametrize(
    ("spec", "where"),
    [
        ({"containers": [{"name": "a", "env": [{"name": "A=B"}]}]}, "spec.containers[0].env[0].name"),
        ({"volumes": [{"name": "v", "hostPath": {"path": "/a/../b"}}]}, "spec.volumes[0].hostPath.path"),
        ({"env": [{"name": "A=B", "value": "c"}]}, "spec.env[0].name"),
    ],
)
def test_what_a_sidecar_adds_is_checked_like_a_pod(spec: Mapping[str, Any], where: str) -> None:
    head = {"apiVersion": "headgate.dev/v1beta1", "kind": "Sidecar", "metadata": {"name": "a", "namespace": "b"}}
    (cause,) = check({**head, "spec": {"selector": {}, **spec}}).causes
    assert cause.field == where


@pytest.mark.parametrize(
    ("kind", "spec", "where"),
    [
        ("TrafficSplit", {"service": "a", "backends": [{"service": "b", "weight": 1}], "matches": []}, "spec.matches"),
        ("HTTPRouteGroup", {"matches": [{"name": "m", "headers": {}}]}, "spec.matches[0].headers"),
        ("HTTPRouteGroup", {"matches": [{"name": "m", "headers": []}]}, "spec.matches[0].headers"),
        ("HTTPRouteGroup", {"matches": [{"name": "m", "headers": [{}]}]}, "spec.matches[0].headers"),
        ("HTTPRouteGroup", {"matches": [{"name": "m", "pathRegex": ""}]}, "spec.matches[0].pathRegex"),
        ("HTTPRouteGroup", {"matches": [{"name": "m", "methods": []}]}, "spec.matches[0].methods"),
        ("HTTPRouteGroup", {"matches": []}, "spec.matches"),
    ],
)
def test_an_empty_field_that_could_match_everything_is_rejected(kind: str, spec: Mapping[str, Any], where: str) -> None:
    group = "split" if kind == "TrafficSplit" else "specs"
    head = {"apiVersion": f"{group}.smi-spec.io/v1alpha4", "kind": kind, "metadata": {"name": "a"}}
    (cause,) = check({**head, "spec": spec}).causes
    assert cause.field == where
