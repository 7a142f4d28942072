"""The fields of a pod's `spec` that have no effect when one machine runs the pod.

The fields that work are listed, so a new field of Kubernetes counts as without effect. A value that equals what happens anyway,
such as a default of Kubernetes, is not mentioned. Fields about images are not mentioned either, because a pod runs commands.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from headgate.resources.meta import part, rows

_USERS = ("runAsUser", "runAsGroup")
_POD_USERS = (*_USERS, "supplementalGroups", "fsGroup")
_POD = frozenset(
    {
        "containers",
        "initContainers",
        "volumes",
        "restartPolicy",
        "terminationGracePeriodSeconds",
        "activeDeadlineSeconds",
    }
    | {
        "securityContext",
        "serviceAccountName",
        "serviceAccount",
        "nodeName",
        "hostname",
        "subdomain",
        "enableServiceLinks",
        "imagePullSecrets",
    }
)
NAMES = frozenset({"hostAliases", "dnsPolicy", "dnsConfig"})
"""The fields about the resolution of names, which have an effect in a network of the pod's own."""
_CONTAINER = frozenset(
    {"name", "image", "imagePullPolicy", "command", "args", "workingDir", "env", "envFrom", "ports", "volumeMounts"}
    | {"readinessProbe", "livenessProbe", "startupProbe", "lifecycle", "resources", "securityContext", "stdin"}
)
_MOUNT = frozenset({"name", "mountPath", "subPath", "subPathExpr", "readOnly"})
_PORT = frozenset({"name", "containerPort", "protocol"})
_RESOURCES = frozenset({"requests"})  # HorizontalPodAutoscalers read them
_SAME: Mapping[str, Any] = {
    "allowPrivilegeEscalation": True,
    "automountServiceAccountToken": False,
    "dnsPolicy": "ClusterFirst",
    "fsGroupChangePolicy": "OnRootMismatch",
    "hostNetwork": True,
    "mountPropagation": "None",
    "preemptionPolicy": "PreemptLowerPriority",
    "priority": 0,
    "recursiveReadOnly": "Disabled",
    "schedulerName": "default-scheduler",
    "supplementalGroupsPolicy": "Strict",
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
"""Values that describe what happens on one machine, or that Kubernetes sets by default."""


def ignored_fields(
    spec: Mapping[str, Any], *, is_root: bool, own_networks: bool, limited: Collection[str] = ()
) -> Iterator[str]:
    """Yield the path of each field in the `spec` of a pod that is set and has no effect, such as `containers[0].tty`.

    `is_root` says whether headgate runs as root, and can change users. `own_networks` says whether pods without `hostNetwork`
    have networks of their own, and `limited` has the resources whose limits have an effect.
    """
    yield from _unknown(spec, _POD | NAMES if own_networks and not spec.get("hostNetwork") else _POD, "")
    yield from _unknown(
        part(spec, "securityContext"), (*(_POD_USERS if is_root else ()), "runAsNonRoot"), "securityContext."
    )
    for index, volume in rows(spec.get("volumes")):
        yield from _of_volume(volume, f"volumes[{index}].")
    for field in ("initContainers", "containers"):
        for index, container in rows(spec.get(field)):
            effective = _CONTAINER | {"restartPolicy"} if field == "initContainers" else _CONTAINER
            yield from _of_container(container, effective, f"{field}[{index}].", is_root=is_root, limited=limited)


def _of_container(
    container: Mapping[str, Any], effective: Collection[str], where: str, *, is_root: bool, limited: Collection[str]
) -> Iterator[str]:
    yield from _unknown(container, effective, where)
    resources = part(container, "resources")
    if limited:
        yield from _unknown(resources, _RESOURCES | {"limits"}, f"{where}resources.")
        yield from _unknown(part(resources, "limits"), limited, f"{where}resources.limits.")
    else:
        yield from _unknown(resources, _RESOURCES, f"{where}resources.")
    users = _USERS if is_root else ()
    yield from _unknown(part(container, "securityContext"), (*users, "runAsNonRoot"), f"{where}securityContext.")
    for index, port in rows(container.get("ports")):
        yield from _unknown(port, _PORT, f"{where}ports[{index}].")
    for index, mount in rows(container.get("volumeMounts")):
        yield from _unknown(mount, _MOUNT, f"{where}volumeMounts[{index}].")
    for hook, handler in part(container, "lifecycle").items():
        if hook not in {"postStart", "preStop"}:
            yield f"{where}lifecycle.{hook}"
        elif isinstance(handler, Mapping):
            yield from _unknown(handler, ("exec", "httpGet", "sleep"), f"{where}lifecycle.{hook}.")


def _of_volume(volume: Mapping[str, Any], where: str) -> Iterator[str]:
    yield from _unknown(part(volume, "emptyDir"), (), f"{where}emptyDir.")
    for index, source in rows(part(volume, "projected").get("sources")):
        yield from _unknown(source, ("configMap", "secret", "downwardAPI"), f"{where}projected.sources[{index}].")


def _unknown(fields: Mapping[str, Any], effective: Collection[str], where: str) -> Iterator[str]:
    for name, value in fields.items():
        is_set = value != _SAME[name] if name in _SAME else _has_content(value)
        if name not in effective and value is not None and is_set:
            yield f"{where}{name}"


def _has_content(value: Any) -> bool:
    """Return whether a value is more than the empty maps that charts write: `affinity: {podAffinity: null}`."""
    return any(map(_has_content, value.values())) if isinstance(value, Mapping) else bool(value)
