"""Predict the pods that replace running ones after a change: those of a changed pod template, and those that a changed
namespace or TLSConfig gives another decision about their sidecar.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec import structs

from headgate.admission.injection import Decision, PodNamespace, pod_namespace
from headgate.compiler.snapshot import Snapshot
from headgate.compiler.workloads import has_sidecar
from headgate.errors import DecodeError
from headgate.plane.snapshot_view import SnapshotView
from headgate.resources.decode import read
from headgate.resources.meta import Key, Object, part
from headgate.resources.pod_owners import DEPLOYMENT, deployment_of, ownership_of
from headgate.resources.pod_templates import pod_of_template, template_path
from headgate.resources.pods import APPLICATION_PORTS, EXCLUDED_PORTS, INJECT, SIDECAR, Container, Pod
from headgate.resources.registry import POD, TLS_CONFIG

Decide = Callable[[Object, PodNamespace], Decision]
_OF_CONTROLLERS = ("pod-template-hash", "controller-revision-hash", "controller-uid", "job-name")
_FIRST_APPLICATION_PORT = 20_000
NAMESPACE = "Namespace"
_DECIDING = (NAMESPACE, TLS_CONFIG.kind)
"""Kinds of objects that decide about the sidecars of pods."""


class Predicted(NamedTuple):
    """A snapshot with predicted pods, and what is not predicted."""

    snapshot: Snapshot
    left_out: tuple[str, ...]


def with_replaced_pods(
    before: Snapshot, after: Snapshot, objects: Sequence[Object], changed: Collection[Key], decide: Decide
) -> Predicted:
    """Return `after` with the pods that replace running ones, once the pod templates in `objects` are applied.

    `changed` are the keys of the objects that differ. Without any replaced pod the snapshot is `after` itself.
    """
    left_out: list[str] = []
    pods: dict[Key, Pod] = {}
    for obj in objects:
        if not template_path(obj):
            continue
        names = list(_pods_of(after, obj))
        if not names and part(obj, "spec").get("replicas") != 0:
            title = f"{obj['kind']} {part(obj, 'metadata').get('namespace', '')}/{part(obj, 'metadata').get('name')}"
            left_out.append(f"{title} has no pods yet, so nothing about them is compared")
        pods |= _from_template(after, obj, names, decide)
    pods |= dict(_by_decision(before, after, pods, changed, decide))
    if not pods:
        return Predicted(after, tuple(left_out))
    edited = after.objects.edited(dict(pods))
    return Predicted(Snapshot(after.revision, edited, after.mistakes, fail_closed=after.fail_closed), tuple(left_out))


def _pods_of(snapshot: Snapshot, obj: Object) -> Iterator[str]:
    metadata, kind = part(obj, "metadata"), obj["kind"]
    for name in snapshot.pods_of_namespace.get(metadata.get("namespace", ""), ()):
        pod = snapshot.pods[name].metadata
        owner = ownership_of(pod).owner
        named = deployment_of(pod) if kind == DEPLOYMENT else owner.name if owner and owner.kind == kind else ""
        if named == metadata.get("name"):
            yield name


def _from_template(snapshot: Snapshot, obj: Object, names: Iterable[str], decide: Decide) -> Mapping[Key, Pod]:
    raw = pod_of_template(obj)
    try:
        template = read({**raw, "metadata": {**raw["metadata"], "name": "template"}}, Pod)
    except DecodeError:  # the check of the object reports the invalid template
        return {}
    injected = bool(template.metadata.annotations.get(SIDECAR)) or (
        decide(raw, pod_namespace(SnapshotView(snapshot), raw)).injected
    )
    found: dict[Key, Pod] = {}
    for name in names:
        old = snapshot.pods[name]
        new = _successor(snapshot, name, template, injected=injected)
        if _facts(new) != _facts(old):
            found[POD.key(*name.split("/"))] = new
    return found


def _facts(pod: Pod) -> object:
    """Return what decides the access to a pod, and that of the pod."""
    annotations = {key: pod.metadata.annotations.get(key) for key in (INJECT, EXCLUDED_PORTS)}
    spec = pod.spec
    ports = [(item.name, item.ports or ()) for item in spec.containers]
    return pod.metadata.labels, annotations, spec.service_account_name or "default", spec.host_network, ports


def _successor(snapshot: Snapshot, name: str, template: Pod, *, injected: bool) -> Pod:
    """Return the pod that replaces one: with its name, its address and the containers that injection added."""
    old = snapshot.pods[name]
    labels = {key: text for key, text in old.metadata.labels.items() if _is_of_controller(key)}
    kept = {key: text for key, text in old.metadata.annotations.items() if key not in {INJECT, EXCLUDED_PORTS}}
    metadata = structs.replace(
        old.metadata, labels=labels | template.metadata.labels, annotations=kept | template.metadata.annotations
    )
    written = {item.name: item for item in template.spec.containers}
    containers = [_with_ports(item, written.pop(item.name, None)) for item in old.spec.containers]
    spec = structs.replace(
        old.spec,
        containers=(*containers, *written.values()),
        service_account_name=template.spec.service_account_name,
        host_network=template.spec.host_network,
    )
    new = structs.replace(old, metadata=metadata, spec=spec)
    if not injected:
        return without_sidecar(new)
    capture = old.metadata.annotations.get(SIDECAR) or _usual_capture(snapshot)
    return _with_application_ports(snapshot, name, _annotated(new, {SIDECAR: capture}))


def _is_of_controller(label: str) -> bool:
    return label in _OF_CONTROLLERS or label.partition("/")[0].endswith("kubernetes.io")


def _with_ports(container: Container, written: Container | None) -> Container:
    """Return a container of a pod with the ports of the template; its probes may be changed by injection."""
    return structs.replace(container, ports=written.ports) if written else container


def without_sidecar(pod: Pod) -> Pod:
    """Return a pod that gets no sidecar."""
    annotations = {key: text for key, text in pod.metadata.annotations.items() if key != SIDECAR}
    return structs.replace(pod, metadata=structs.replace(pod.metadata, annotations=annotations))


def _annotated(pod: Pod, annotations: Mapping[str, str]) -> Pod:
    merged = {**pod.metadata.annotations, **annotations}
    return structs.replace(pod, metadata=structs.replace(pod.metadata, annotations=merged))


def _usual_capture(snapshot: Snapshot) -> str:
    """Return the kind of sidecar that the pods of this host have."""
    return next((pod.metadata.annotations[SIDECAR] for pod in snapshot.pods.values() if has_sidecar(pod)), "explicit")


def _with_application_ports(snapshot: Snapshot, name: str, pod: Pod) -> Pod:
    """Return a pod whose explicit sidecar serves the ports that are known when it is created (D26)."""
    if pod.metadata.annotations[SIDECAR] != "explicit":
        return pod
    text = pod.metadata.annotations.get(APPLICATION_PORTS, "")
    pairs = [item for item in text.split(",") if item]
    served = {int(port) for port in (item.partition("=")[0] for item in pairs) if port.isdecimal()}
    taken = {item.partition("=")[2] for item in pairs}
    free = (number for number in range(_FIRST_APPLICATION_PORT, 2**16) if str(number) not in taken)
    new = sorted(_listening(snapshot, name, pod) - served)
    return _annotated(pod, {APPLICATION_PORTS: ",".join([*pairs, *(f"{port}={next(free)}" for port in new)])})


def _listening(snapshot: Snapshot, name: str, pod: Pod) -> set[int]:
    """Return the ports that a pod declares, and the numeric targetPorts of the Services that select it."""
    found = {port.container_port for item in pod.spec.containers for port in item.ports or ()}
    namespace, labels = name.partition("/")[0], pod.metadata.labels.items()
    for key, service in snapshot.services.values():
        if key.namespace == namespace and service.spec.selected and service.spec.selected.items() <= labels:
            targets = (port.target_port or port.port for port in service.spec.ports if port.protocol == "TCP")
            found.update(target for target in targets if isinstance(target, int))
    return found


def _by_decision(
    before: Snapshot, after: Snapshot, replaced: Mapping[Key, Pod], changed: Collection[Key], decide: Decide
) -> Iterator[tuple[Key, Pod]]:
    """Yield the pods that lose their sidecar when they are replaced, because their namespace or a TLSConfig changed."""
    spaces = {key.name if key.kind == NAMESPACE else key.namespace for key in changed if key.kind in _DECIDING}
    old, new = SnapshotView(before), SnapshotView(after)
    for name, pod in after.pods.items() if spaces else ():
        key = POD.key(*name.split("/"))
        if key.namespace not in spaces or key in replaced or not has_sidecar(pod):
            continue
        raw = msgspec.to_builtins(pod)
        decisions = [decide(raw, pod_namespace(view, raw)).injected for view in (old, new)]
        if decisions == [True, False]:
            yield key, without_sidecar(pod)
