"""The containers, volumes and probes that a transparent sidecar adds to a pod on Kubernetes."""

import itertools
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from headgate.admission.injection import InjectionDecision, PodNamespace, Sidecars, decide
from headgate.admission.namespace_limits import LimitsByNamespace, NamespaceLimits, no_limits
from headgate.admission.proxy_settings import ProxySettings, proxy_settings
from headgate.admission.proxy_users import PROXY_USERS, proxy_user
from headgate.admission.redirection_container import (
    INIT_CONTAINER,
    field_variable,
    redirection_container,
    redirects_by_agent,
    restricted,
)
from headgate.admission.sidecar_merge import with_sidecars
from headgate.envoy.node_ids import DEFAULT_USER, INBOUND_PORT, OUTBOUND_PORT, PROBE_PORT
from headgate.envoy.proxy_container import (
    COLLECTOR,
    CONCURRENCY,
    DIRECTORY,
    JOB,
    LOG_LEVEL,
    READY_PATH,
    ROOTS_KEY,
    SECRETS,
)
from headgate.options import NEVER_INJECTED, InjectionMode
from headgate.resources.core.pod_metadata import PROBES, REVISION, SIDECAR
from headgate.resources.meta import Object, Value, part

CONTAINER = "headgate-sidecar"
AUDIENCE = "headgate"
NO_ANNOTATIONS: Mapping[str, str] = {}
ROOTS_CONFIG_MAP = "headgate-roots"
OWN_PORTS = (OUTBOUND_PORT, INBOUND_PORT, PROBE_PORT)
_PERIOD_S = 2
_STARVED_S = 60
"""The time without an answer after which a proxy that has been ready is not ready any more.

A proxy on a starved node still serves, late as all its programs. If its pods were not ready, the requests would load the other
nodes, or get 503 if there is no other pod. A proxy that has ended is not ready at once, whatever its probe.
"""
TOKEN_SECONDS = 12 * 60 * 60
DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
"""The annotation with the container that `kubectl logs` and `kubectl exec` use, instead of the first one."""
_KINDS = ("startupProbe", "readinessProbe", "livenessProbe")
_MOVED_CHECKS = ("httpGet", "tcpSocket", "grpc")
"""The checks of probes that the sidecar makes for the kubelet."""


class SidecarOptions(Value, frozen=True, kw_only=True):
    """The options of injected sidecars. `xds` is the address of the control plane's xDS server, as `host:port`.

    `pull_secrets` has names of Secrets in the pod's namespace with which the image is pulled. With `native`, the sidecar is
    an init container with the restart policy Always (Kubernetes 1.29 and newer). `collector` is the address of an
    OpenTelemetry collector, to which proxies report too; empty means none. `proxy` is the mesh's settings of proxies, by the
    annotations that replace them. With `node_agent`, the node agent redirects the connections of pods, unless an annotation of
    the namespace or pod says otherwise. `revision` is written on each pod; the default one is empty.
    """

    image: str
    xds: str
    pull_policy: str = "IfNotPresent"
    pull_secrets: tuple[str, ...] = ()
    native: bool = False
    collector: str = ""
    proxy: Mapping[str, str] = {}
    node_agent: bool = False
    revision: str = ""


def transparent_sidecars(
    mode: InjectionMode,
    options: SidecarOptions,
    users: Iterator[int] | None = None,
    *,
    limits: LimitsByNamespace = no_limits,
) -> Sidecars:
    """Return how a cluster adds transparent sidecars, and what Sidecars add, to new pods. Their proxies run as `users`, in turn.

    The resources of sidecars are fitted to `limits`.
    """
    users = users or itertools.cycle(PROXY_USERS)

    def create(pod: Object, around: PodNamespace, injected: bool) -> Object:  # noqa: FBT001 - a function of `Sidecars`
        if not injected:
            return pod
        return with_user(pod, around, next(users))

    def with_user(pod: Object, around: PodNamespace, user: int) -> Object:
        of_namespace = limits(pod["metadata"].get("namespace", ""))
        added = with_sidecars(pod, around.sidecars)
        return with_transparent_sidecar(added, options, user, around.annotations, limits=of_namespace)

    def warn(pod: Object, around: PodNamespace) -> Iterator[str]:
        of_namespace = limits(pod["metadata"].get("namespace", ""))
        if not any(of_namespace):
            return iter(())
        settings = proxy_settings(options.proxy, around.annotations, part(pod["metadata"], "annotations"))
        return of_namespace.warnings(settings, with_user(pod, around, PROXY_USERS[0]))

    return Sidecars(
        lambda pod, around: decide_transparent(pod, mode, around),
        "transparent",
        OWN_PORTS,
        create,
        is_complete=lambda pod: CONTAINER in container_names(pod),
        warn=warn,
    )


def container_names(pod: Object) -> Collection[str]:
    """Return the names of a pod's containers and init containers."""
    lists = (part(pod, "spec").get(field) or () for field in ("containers", "initContainers"))
    return {container.get("name", "") for items in lists for container in items}


def decide_transparent(pod: Object, mode: InjectionMode, around: PodNamespace) -> InjectionDecision:
    """Decide whether a pod on a cluster gets a sidecar when it is created now."""
    if part(pod, "spec").get("hostNetwork"):  # the redirection would change the network of the node
        return InjectionDecision("HostNetwork", injected=False)
    if pod["metadata"].get("namespace") in NEVER_INJECTED:
        return InjectionDecision("SystemNamespace", injected=False)
    return decide(pod, mode, around)


def with_transparent_sidecar(
    pod: Object,
    options: SidecarOptions,
    first_user: int = PROXY_USERS[0],
    namespace: Mapping[str, str] = NO_ANNOTATIONS,
    *,
    limits: NamespaceLimits = NamespaceLimits(),  # noqa: B008 - an immutable value
) -> Object:
    """Return a pod with a transparent sidecar, which starts before the application and ends after it.

    The kubelet sends the application's HTTP, TCP and gRPC probes to the proxy, which makes the checks. A sidecar that is not native starts
    after all init containers, so these run before the redirection and use the network directly. It runs as `first_user`, or as
    the next user that no container has. `namespace` has the annotations of the pod's namespace, `limits` those of its resources.
    """
    spec, metadata = dict(pod["spec"]), dict(pod["metadata"])
    initial = spec.get("initContainers") or ()
    probes = {
        f"{container['name']}/{name}": container[name]
        for container in (*(spec.get("containers") or ()), *(initial if options.native else ()))
        for name in _KINDS
        if _moved_check(container.get(name) or {})
    }
    annotations = {**part(metadata, "annotations"), SIDECAR: "transparent"}
    annotations.pop(REVISION, None)  # of a copy of another pod
    if options.revision:
        annotations[REVISION] = options.revision
    if probes:
        annotations[PROBES] = json.dumps(probes, separators=(",", ":"), sort_keys=True)
    settings, user = proxy_settings(options.proxy, namespace, annotations), proxy_user(pod, first_user)
    settings = limits.fitted(settings, pod)
    is_job = (spec.get("restartPolicy") or "Always") != "Always"
    sidecar = _sidecar(options, settings, user, is_job=is_job)
    by_agent = redirects_by_agent(namespace, annotations, by_default=options.node_agent)
    redirection = {
        "name": INIT_CONTAINER,
        "image": options.image,
        "imagePullPolicy": options.pull_policy,
        **redirection_container(user, by_agent=by_agent),
        "resources": settings.resources,
    }
    applications = [_redirected(container) for container in spec.get("containers") or ()]
    spec["volumes"] = [*(spec.get("volumes") or ()), *proxy_volumes()]
    if secrets := pull_secrets(spec.get("imagePullSecrets") or (), options):
        spec["imagePullSecrets"] = secrets
    if options.native:
        spec["initContainers"] = [redirection, {**sidecar, "restartPolicy": "Always"}, *map(_redirected, initial)]
        spec["containers"] = applications
    else:
        spec["initContainers"] = [*initial, redirection]
        spec["containers"] = [sidecar, *applications]
        if applications:
            annotations.setdefault(DEFAULT_CONTAINER, applications[0]["name"])
    return {**pod, "metadata": {**metadata, "annotations": annotations}, "spec": spec}


def pull_secrets(own: Sequence[Mapping[str, Any]], options: SidecarOptions) -> list[Mapping[str, Any]]:
    """Return the pull secrets of a pod with those of the image that headgate adds."""
    return [*own, *({"name": name} for name in options.pull_secrets if {"name": name} not in own)]


def _redirected(container: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a container whose probes are HTTP requests to the path and the port at which the proxy serves them."""
    changed = dict(container)
    for name in _KINDS:
        probe = container.get(name) or {}
        if check := _moved_check(probe):
            kept = {field: value for field, value in probe.items() if field != check}
            headers = {"httpHeaders": own_headers} if (own_headers := probe[check].get("httpHeaders")) else {}
            path = f"/{container['name']}/{name.removesuffix('Probe')}"
            changed[name] = {**kept, "httpGet": {**headers, "path": path, "port": PROBE_PORT, "scheme": "HTTP"}}
    return changed


def moved_checks(pod: Object) -> Iterator[str]:
    """Yield the probes of a pod that injection would change, as `CONTAINER.FIELD.CHECK`."""
    for container in pod["spec"].get("containers") or ():
        for name in _KINDS:
            probe = container.get(name) or {}
            check = _moved_check(probe)
            if check and probe[check].get("port") != PROBE_PORT and container["name"] != CONTAINER:
                yield f"{container['name']}.{name}.{check}"


def _moved_check(probe: Mapping[str, Any]) -> str:
    """Return the field with the check of a probe if the sidecar makes it; else an empty string.

    A probe with `host` does not go to the pod, and a command runs in the container.
    """
    return next((field for field in _MOVED_CHECKS if probe.get(field) and not probe[field].get("host")), "")


def _sidecar(options: SidecarOptions, settings: ProxySettings, user: int, *, is_job: bool) -> dict[str, Any]:
    """Return the container of a sidecar. With `is_job` the pod ends by itself, and a sidecar that is not native does too."""
    stopped = ("preStop", ["drain"])
    if options.native:
        return {
            **proxy_container(options, "sidecar", [stopped], settings, user),
            "startupProbe": _probe(failureThreshold=600),
        }
    container = proxy_container(options, "sidecar", [("postStart", ["wait"]), stopped], settings, user)
    return {**container, "command": [*container["command"], JOB]} if is_job else container


def proxy_container(
    options: SidecarOptions,
    role: str,
    hooks: Sequence[tuple[str, Sequence[str]]],
    settings: ProxySettings,
    user: int = DEFAULT_USER,
) -> dict[str, Any]:
    """Return the container of a proxy. `hooks` has the names of the container's lifecycle."""
    command = ["headgate", role]
    return {
        "name": CONTAINER,
        "image": options.image,
        "imagePullPolicy": options.pull_policy,
        "command": [*command, "run"],
        "env": [
            {"name": "HEADGATE_XDS", "value": options.xds},
            {"name": LOG_LEVEL, "value": settings.log_level},
            {"name": CONCURRENCY, "value": settings.concurrency},
            *([{"name": COLLECTOR, "value": options.collector}] if options.collector else []),
            field_variable("POD_NAMESPACE", "metadata.namespace"),
            field_variable("POD_NAME", "metadata.name"),
        ],
        "securityContext": restricted(runAsUser=user, runAsGroup=user, runAsNonRoot=True),
        "resources": settings.resources,
        "lifecycle": {name: {"exec": {"command": [*command, *words]}} for name, words in hooks},
        "readinessProbe": _probe(failureThreshold=_STARVED_S // _PERIOD_S),
        "volumeMounts": [
            {"name": "headgate", "mountPath": DIRECTORY},
            {"name": "headgate-secrets", "mountPath": SECRETS, "readOnly": True},
        ],
    }


def _probe(*, failureThreshold: int) -> dict[str, Any]:  # noqa: N803 - the name of the probe's field
    return {
        "httpGet": {"path": READY_PATH, "port": PROBE_PORT},
        "periodSeconds": _PERIOD_S,
        "timeoutSeconds": 3,
        "failureThreshold": failureThreshold,
    }


def proxy_volumes() -> list[dict[str, Any]]:
    token = {"audience": AUDIENCE, "expirationSeconds": TOKEN_SECONDS, "path": "token"}
    roots = {"name": ROOTS_CONFIG_MAP, "items": [{"key": ROOTS_KEY, "path": ROOTS_KEY}]}
    return [
        {"name": "headgate", "emptyDir": {"medium": "Memory"}},
        {"name": "headgate-secrets", "projected": {"sources": [{"serviceAccountToken": token}, {"configMap": roots}]}},
    ]
