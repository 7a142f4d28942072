"""Predict the pods that follow from a change: those of new and deleted workloads, those that replace running ones after a
change to their template, and those that get another sidecar when they are created again.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import msgspec
from msgspec import structs

from headgate.admission.injection import InjectionDecision, PodNamespace, Sidecars, pod_namespace
from headgate.admission.sidecar_merge import selecting
from headgate.compiler.snapshot import Snapshot
from headgate.compiler.workloads import has_sidecar
from headgate.errors import DecodeError
from headgate.plane.new_pods import created_pod, with_application_ports
from headgate.plane.snapshot_view import SnapshotView
from headgate.resources.core.pod import MeshContainer, MeshPod
from headgate.resources.core.pod_metadata import EXCLUDED_PORTS, INJECT, SIDECAR
from headgate.resources.decode import read
from headgate.resources.meta import Key, Object, part
from headgate.resources.pod_owners import Ref, is_controller_label, workloads_of
from headgate.resources.pod_templates import REPLACING_KINDS, pod_of_template
from headgate.resources.registry import POD, TLS_CONFIG, find_written
from headgate.resources.registry import SIDECAR as SIDECAR_KIND

NAMESPACE = "Namespace"
_DECIDING = (NAMESPACE, TLS_CONFIG.kind, SIDECAR_KIND.kind)
"""Kinds of objects that decide what injection adds to pods."""


class Workloads(NamedTuple):
    """Workloads with pod templates that are written, and the keys of those that are deleted."""

    written: Sequence[Object] = ()
    deleted: Collection[Key] = ()


class Predicted(NamedTuple):
    """A snapshot with predicted pods, and the object that each of them follows from.

    `on_creation` has those that differ only once they are created again.
    """

    snapshot: Snapshot
    makers: Mapping[Key, Key] = MappingProxyType({})
    on_creation: tuple[str, ...] = ()


def with_predicted_pods(
    before: Snapshot, after: Snapshot, workloads: Workloads, changed: Collection[Key], sidecars: Sidecars
) -> Predicted:
    """Return `after` with the pods that follow from a change to workloads and other objects (`changed`).

    Without any such pod the snapshot is `after` itself.
    """
    pods: dict[Key, MeshPod | None] = {}
    makers: dict[Key, Key] = {}
    for obj in workloads.written:
        new_pods = _of_template(after, obj, sidecars, len(pods))
        pods |= new_pods
        makers |= dict.fromkeys(new_pods, key_of_workload(obj))
    for key in workloads.deleted:
        gone = [POD.key(*name.split("/")) for name in _pods_of(after, key)]
        pods |= dict.fromkeys(gone)
        makers |= dict.fromkeys(gone, key)
    for key in changed:
        pod = after.objects.get(key)
        if isinstance(pod, MeshPod) and key not in before.objects and not pod.status.pod_ip:
            pods[key] = created_pod(after, msgspec.to_builtins(pod), sidecars, len(pods))
    again = dict(_created_again(before, after, pods.keys() | changed, changed, sidecars))
    for key in again:
        deciding = (decider for decider in sorted(changed) if decider.kind in _DECIDING)
        makers[key] = next(decider for decider in deciding if key.namespace in (decider.namespace, decider.name))
    edits = pods | again
    if not edits:
        return Predicted(after)
    removed = [key for key, pod in edits.items() if pod is None]
    edited = after.objects.edited({key: pod for key, pod in edits.items() if pod}, removed)
    snapshot = Snapshot(after.revision, edited, after.mistakes, fail_closed=after.fail_closed)
    return Predicted(snapshot, makers, tuple(sorted(f"{key.namespace}/{key.name}" for key in again)))


def key_of_workload(obj: Object) -> Key:
    """Return the key of a workload in any version."""
    metadata, kind = part(obj, "metadata"), str(obj["kind"])
    registered = find_written(str(obj["apiVersion"]), kind)
    group = registered.group if registered else str(obj["apiVersion"]).rpartition("/")[0]
    return Key(group, kind, str(metadata.get("namespace", "")), str(metadata.get("name", "")))


def _pods_of(snapshot: Snapshot, workload: Key) -> Iterator[str]:
    for name in snapshot.pods_of_namespace.get(workload.namespace, ()):
        if Ref(workload.kind, workload.namespace, workload.name) in workloads_of(snapshot.pods[name].metadata):
            yield name


def _of_template(snapshot: Snapshot, obj: Object, sidecars: Sidecars, number: int) -> Mapping[Key, MeshPod | None]:
    """Return the pods of a written workload: none without replicas, a new one if it has none, else those that replace them.

    `number` is the number of new pods so far.
    """
    workload, spec = key_of_workload(obj), part(obj, "spec")
    names = list(_pods_of(snapshot, workload))
    if spec.get("replicas") == 0:
        return dict.fromkeys((POD.key(*name.split("/")) for name in names), None)
    if not names:
        pod = created_pod(snapshot, _pod_named_after(obj, workload), sidecars, number)
        return {POD.key(workload.namespace, workload.name): pod} if pod else {}
    if (workload.group, workload.kind) not in REPLACING_KINDS or spec.get("paused"):
        return {}
    return _from_template(snapshot, obj, names, sidecars)


def _pod_named_after(obj: Object, workload: Key) -> Object:
    raw = pod_of_template(obj)
    owner = {
        "apiVersion": obj["apiVersion"],
        "kind": workload.kind,
        "name": workload.name,
        "uid": "",
        "controller": True,
    }
    metadata = {**raw["metadata"], "name": workload.name, "namespace": workload.namespace, "ownerReferences": [owner]}
    return {**raw, "metadata": metadata}


def _from_template(snapshot: Snapshot, obj: Object, names: Iterable[str], sidecars: Sidecars) -> Mapping[Key, MeshPod]:
    raw = pod_of_template(obj)
    try:
        template = read({**raw, "metadata": {**raw["metadata"], "name": "template"}}, MeshPod)
    except DecodeError:  # the check of the object reports the invalid template
        return {}
    injected = bool(template.metadata.annotations.get(SIDECAR)) or (
        sidecars.decide(raw, pod_namespace(SnapshotView(snapshot), raw)).injected
    )
    successors: dict[Key, MeshPod] = {}
    for name in names:
        old = snapshot.pods[name]
        new = _successor(snapshot, name, template, sidecars, injected=injected)
        if _facts(new) != _facts(old):
            successors[POD.key(*name.split("/"))] = new
    return successors


def _facts(pod: MeshPod) -> object:
    """Return what decides the access to a pod, and that of the pod."""
    annotations = {key: pod.metadata.annotations.get(key) for key in (INJECT, EXCLUDED_PORTS)}
    spec = pod.spec
    ports = [(container.name, container.ports or ()) for container in spec.containers]
    return pod.metadata.labels, annotations, spec.service_account_name or "default", spec.host_network, ports


def _successor(snapshot: Snapshot, name: str, template: MeshPod, sidecars: Sidecars, *, injected: bool) -> MeshPod:
    """Return the pod that replaces one: with its name, its address and the containers that injection added."""
    old = snapshot.pods[name]
    labels = {key: text for key, text in old.metadata.labels.items() if _is_of_controller(key)}
    kept = {key: text for key, text in old.metadata.annotations.items() if key not in {INJECT, EXCLUDED_PORTS}}
    metadata = structs.replace(
        old.metadata, labels=labels | template.metadata.labels, annotations=kept | template.metadata.annotations
    )
    written = {container.name: container for container in template.spec.containers}
    containers = [_with_ports(container, written.pop(container.name, None)) for container in old.spec.containers]
    spec = structs.replace(
        old.spec,
        containers=(*containers, *written.values()),
        service_account_name=template.spec.service_account_name,
        host_network=template.spec.host_network,
    )
    new = structs.replace(old, metadata=metadata, spec=spec)
    if not injected:
        return without_sidecar(new)
    return _guarded(snapshot, new, sidecars)


def _is_of_controller(label: str) -> bool:
    return is_controller_label(label) or label.partition("/")[0].endswith("kubernetes.io")


def _with_ports(container: MeshContainer, written: MeshContainer | None) -> MeshContainer:
    """Return a container of a pod with the ports of the template; its probes may be changed by sidecars."""
    return structs.replace(container, ports=written.ports) if written else container


def without_sidecar(pod: MeshPod) -> MeshPod:
    """Return a pod that gets no sidecar."""
    annotations = {key: text for key, text in pod.metadata.annotations.items() if key != SIDECAR}
    return structs.replace(pod, metadata=structs.replace(pod.metadata, annotations=annotations))


def _guarded(snapshot: Snapshot, pod: MeshPod, sidecars: Sidecars) -> MeshPod:
    """Return a pod that gets a sidecar."""
    annotations = {SIDECAR: sidecars.capture, **pod.metadata.annotations}
    return with_application_ports(
        snapshot, structs.replace(pod, metadata=structs.replace(pod.metadata, annotations=annotations))
    )


def _created_again(
    before: Snapshot, after: Snapshot, handled: Collection[Key], changed: Collection[Key], sidecars: Sidecars
) -> Iterator[tuple[Key, MeshPod]]:
    """Yield the pods to which injection would add something else, because their namespace, a TLSConfig or a Sidecar changed."""
    spaces = {key.name if key.kind == NAMESPACE else key.namespace for key in changed if key.kind in _DECIDING}
    views = SnapshotView(before), SnapshotView(after)
    for name, pod in after.pods.items() if spaces else ():
        key = POD.key(*name.split("/"))
        if key.namespace not in spaces or key in handled:
            continue
        raw = msgspec.to_builtins(pod)
        old, new = (_Added.of(raw, pod_namespace(view, raw), sidecars.decide) for view in views)
        if old != new and old.injected == has_sidecar(pod):
            kept = tuple(container for container in pod.spec.containers if container not in old.containers)
            names = {container.name for container in kept}
            added = tuple(container for container in new.containers if container.name not in names)
            bare = structs.replace(pod, spec=structs.replace(pod.spec, containers=(*kept, *added)))
            yield key, _guarded(after, bare, sidecars) if new.injected else without_sidecar(bare)


class _Added(NamedTuple):
    """What injection adds to a pod: a sidecar, and the containers of Sidecars."""

    injected: bool
    containers: tuple[MeshContainer, ...]

    @classmethod
    def of(
        cls, raw: Object, around: PodNamespace, decide: Callable[[Object, PodNamespace], InjectionDecision]
    ) -> "_Added":
        """Return what injection adds to a pod in a namespace."""
        injected = decide(raw, around).injected
        sidecars = (
            sorted(selecting(raw, around.sidecars), key=lambda sidecar: sidecar.metadata.name) if injected else []
        )
        containers = [
            msgspec.convert(container, MeshContainer) for sidecar in sidecars for container in sidecar.spec.containers
        ]
        return cls(injected, tuple(containers))
