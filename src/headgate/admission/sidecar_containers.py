"""The containers, volumes and probes that a transparent sidecar adds to a pod on Kubernetes, and the pods of Gateways."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from headgate.admission.injection import InjectionMode, pod_namespace, sidecar_causes, wants_sidecar
from headgate.admission.sidecar_merge import with_sidecars
from headgate.envoy.probes import READY_PATH
from headgate.envoy.view import INBOUND_PORT, OUTBOUND_PORT, PROBE_PORT, TRANSPARENT_UID
from headgate.errors import Invalid
from headgate.objects.ports import AdmissionStep, View
from headgate.resources.checks.pods import pod_causes
from headgate.resources.meta import Object, Value, part
from headgate.resources.pods import EXCLUDED_PORTS, PROBES, SIDECAR

CONTAINER, INIT_CONTAINER = "headgate-sidecar", "headgate-redirect"
AUDIENCE = "headgate"
ROOTS_CONFIG_MAP, ROOTS_KEY = "headgate-roots", "roots.pem"
DIRECTORY, SECRETS = "/run/headgate", "/run/headgate-secrets"
OWN_PORTS = (OUTBOUND_PORT, INBOUND_PORT, PROBE_PORT)
TOKEN_SECONDS = 3600
JOB = "--job"
"""The option of the sidecar's commands in pods that end by themselves, such as those of Jobs."""
_KINDS = ("startupProbe", "readinessProbe", "livenessProbe")


class SidecarOptions(Value, frozen=True, kw_only=True):
    """The options of injected sidecars. `xds` is the address of the control plane's xDS server, as `host:port`.

    `resources` are the resource requests and limits of both injected containers. With `native`, the sidecar is an init
    container with the restart policy Always (Kubernetes 1.29 and newer).
    """

    image: str
    xds: str
    pull_policy: str = "IfNotPresent"
    resources: Mapping[str, Any] = {}
    native: bool = False
    log_level: str = "warning"


def inject_transparent_sidecars(mode: InjectionMode, options: SidecarOptions) -> AdmissionStep:
    """Return the admission step that adds transparent sidecars, and what Sidecars add, to new pods.

    The step raises Invalid.
    """

    def admit(new: Object, old: Object | None, view: View) -> Object:
        lists = (new["spec"].get(field) or () for field in ("containers", "initContainers"))
        names = [item.get("name") for items in lists for item in items]
        if old is not None or CONTAINER in names or new["spec"].get("hostNetwork"):
            return new
        around = pod_namespace(view, new)
        wanted = wants_sidecar(new, mode, around)
        if causes := [*pod_causes(new), *(sidecar_causes(new, OWN_PORTS) if wanted else ())]:
            raise Invalid(*causes)
        return with_transparent_sidecar(with_sidecars(new, around.sidecars), options) if wanted else new

    return admit


def with_transparent_sidecar(pod: Object, options: SidecarOptions) -> Object:
    """Return a pod with a transparent sidecar, which starts before the application and ends after it.

    The kubelet sends the application's HTTP probes to the proxy, which forwards them. A sidecar that is not native starts
    after all init containers, so these come before the redirection and use the network without it.
    """
    spec, metadata = dict(pod["spec"]), dict(pod["metadata"])
    probes = {
        f"{container['name']}/{name}": container[name]
        for container in spec.get("containers") or ()
        for name in _KINDS
        if (container.get(name) or {}).get("httpGet")
    }
    annotations = {**part(metadata, "annotations"), SIDECAR: "transparent"}
    if probes:
        annotations[PROBES] = json.dumps(probes, separators=(",", ":"), sort_keys=True)
    sidecar = _sidecar(options, is_job=spec.get("restartPolicy", "Always") != "Always")
    applications = [_redirected(item) for item in spec.get("containers") or ()]
    initial = spec.get("initContainers") or ()
    spec["volumes"] = [*(spec.get("volumes") or ()), *_volumes()]
    if options.native:
        spec["initContainers"] = [_redirection(options), {**sidecar, "restartPolicy": "Always"}, *initial]
        spec["containers"] = applications
    else:
        spec["initContainers"] = [*initial, _redirection(options)]
        spec["containers"] = [sidecar, *applications]
    return {**pod, "metadata": {**metadata, "annotations": annotations}, "spec": spec}


def gateway_pod(options: SidecarOptions) -> Mapping[str, Any]:
    """Return the spec of a pod that runs the proxy of a Gateway, apart from its ServiceAccount.

    When the pod ends, its proxy asks clients to close their connections and waits until they have done so.
    """
    proxy = _proxy(options, "gateway", [("preStop", ["drain"])])
    return {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 60,
        "containers": [{**proxy, "name": "proxy"}],
        "volumes": _volumes(),
    }


def _redirected(container: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a container whose HTTP probes have the path and the port at which the proxy serves them."""
    changed = dict(container)
    for name in _KINDS:
        probe = container.get(name) or {}
        if get := probe.get("httpGet"):
            kept = {field: value for field, value in get.items() if field in ("host", "httpHeaders")}
            path = f"/{container['name']}/{name.removesuffix('Probe')}"
            changed[name] = {**probe, "httpGet": {**kept, "path": path, "port": PROBE_PORT, "scheme": "HTTP"}}
    return changed


def _sidecar(options: SidecarOptions, *, is_job: bool) -> dict[str, Any]:
    """Return the container of a sidecar. `is_job` says that the pod ends by itself.

    In such a pod, the sidecar reports its last requests before it ends. Unless it is native, it ends by itself too.
    """
    job = [JOB] if is_job else []
    stopped = ("preStop", ["drain", *job])
    if options.native:
        return {**_proxy(options, "sidecar", [stopped]), "startupProbe": _probe(failureThreshold=600)}
    found = _proxy(options, "sidecar", [("postStart", ["wait"]), stopped])
    return {**found, "command": [*found["command"], *job]}


def _proxy(options: SidecarOptions, role: str, hooks: Sequence[tuple[str, Sequence[str]]]) -> dict[str, Any]:
    """Return the container of a proxy. The names of `hooks` are those of the container's lifecycle."""
    command = ["headgate", role]
    return {
        "name": CONTAINER,
        "image": options.image,
        "imagePullPolicy": options.pull_policy,
        "command": [*command, "run"],
        "env": [
            {"name": "HEADGATE_XDS", "value": options.xds},
            {"name": "HEADGATE_LOG_LEVEL", "value": options.log_level},
            _field_variable("POD_NAMESPACE", "metadata.namespace"),
            _field_variable("POD_NAME", "metadata.name"),
        ],
        "resources": dict(options.resources),
        "securityContext": _restricted(runAsUser=TRANSPARENT_UID, runAsGroup=TRANSPARENT_UID, runAsNonRoot=True),
        "lifecycle": {name: {"exec": {"command": [*command, *words]}} for name, words in hooks},
        "readinessProbe": _probe(failureThreshold=3),
        "volumeMounts": [
            {"name": "headgate", "mountPath": DIRECTORY},
            {"name": "headgate-secrets", "mountPath": SECRETS, "readOnly": True},
        ],
    }


def _redirection(options: SidecarOptions) -> dict[str, Any]:
    ports = "EXCLUDED_INBOUND_PORTS"
    return {
        "name": INIT_CONTAINER,
        "image": options.image,
        "imagePullPolicy": options.pull_policy,
        "command": ["headgate", "redirect", "apply", f"--excluded-inbound-ports=$({ports})"],
        "env": [_field_variable(ports, f"metadata.annotations['{EXCLUDED_PORTS}']")],
        "resources": dict(options.resources),
        "securityContext": _restricted(
            capabilities={"drop": ["ALL"], "add": ["NET_ADMIN", "NET_RAW"]},
            runAsUser=0,
            runAsGroup=0,
            runAsNonRoot=False,
        ),
    }


def _restricted(**more: Any) -> dict[str, Any]:
    """Return a security context without privileges, changed by the fields in `more`."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "seccompProfile": {"type": "RuntimeDefault"},
        **more,
    }


def _field_variable(name: str, field: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": field}}}


def _probe(*, failureThreshold: int) -> dict[str, Any]:  # noqa: N803 - the name of the probe's field
    return {
        "httpGet": {"path": READY_PATH, "port": PROBE_PORT},
        "periodSeconds": 2,
        "timeoutSeconds": 3,
        "failureThreshold": failureThreshold,
    }


def _volumes() -> list[dict[str, Any]]:
    token = {"audience": AUDIENCE, "expirationSeconds": TOKEN_SECONDS, "path": "token"}
    roots = {"name": ROOTS_CONFIG_MAP, "items": [{"key": ROOTS_KEY, "path": ROOTS_KEY}]}
    return [
        {"name": "headgate", "emptyDir": {"medium": "Memory"}},
        {"name": "headgate-secrets", "projected": {"sources": [{"serviceAccountToken": token}, {"configMap": roots}]}},
    ]
