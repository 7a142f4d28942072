"""Predict a pod that is created: its sidecar, what Sidecars add to it, its ports and an address."""

from collections.abc import Mapping
from ipaddress import IPv4Address

from msgspec import structs

from headgate.admission.injection import Sidecars, pod_namespace
from headgate.admission.sidecar_merge import with_sidecars
from headgate.compiler.snapshot import Snapshot
from headgate.errors import DecodeError
from headgate.plane.snapshot_view import SnapshotView
from headgate.resources.core.pod import MeshPod
from headgate.resources.core.pod_metadata import APPLICATION_PORTS, EXCLUDED_PORTS, SIDECAR
from headgate.resources.decode import read
from headgate.resources.meta import Object, part

_FIRST_APPLICATION_PORT = 20_000
_FIRST_ADDRESS = int(IPv4Address("192.0.2.1"))  # for documentation (RFC 5737), so no pod has it


def created_pod(snapshot: Snapshot, obj: Object, sidecars: Sidecars, number: int) -> MeshPod | None:
    """Return a new pod as it runs: with its sidecar and the address of a `number`; None if it is invalid.

    A plan does not compare addresses.
    """
    around = pod_namespace(SnapshotView(snapshot), obj)
    annotations: Mapping[str, str] = part(obj["metadata"], "annotations")
    status = {"phase": "Running", "podIP": str(IPv4Address(_FIRST_ADDRESS + number))}
    obj = {**obj, "status": status}
    if annotations.get(SIDECAR) or sidecars.decide(obj, around).injected:
        annotations = {SIDECAR: sidecars.capture, **annotations}
        obj = with_sidecars({**obj, "metadata": {**obj["metadata"], "annotations": annotations}}, around.sidecars)
    try:
        return with_application_ports(snapshot, read(obj, MeshPod))
    except DecodeError:  # the check of the object reports the mistakes
        return None


def with_application_ports(snapshot: Snapshot, pod: MeshPod) -> MeshPod:
    """Return a pod whose explicit sidecar serves the ports that are known when it is created (D26)."""
    annotations = pod.metadata.annotations
    if annotations.get(SIDECAR) != "explicit":
        return pod
    pairs = [entry.partition("=") for entry in annotations.get(APPLICATION_PORTS, "").split(",") if entry]
    numbers = {int(port): number for port, _, number in pairs if port.isdecimal()}
    free = (str(number) for number in range(_FIRST_APPLICATION_PORT, 2**16) if str(number) not in numbers.values())
    served = ",".join(f"{port}={numbers.get(port) or next(free)}" for port in sorted(_listening(snapshot, pod)))
    return structs.replace(
        pod, metadata=structs.replace(pod.metadata, annotations={**annotations, APPLICATION_PORTS: served})
    )


def _listening(snapshot: Snapshot, pod: MeshPod) -> set[int]:
    """Return the ports that a pod declares, and the numeric targetPorts of the Services that select it, without excluded ones."""
    ports = {
        port.container_port
        for container in pod.spec.containers
        for port in container.ports or ()
        if port.protocol == "TCP"
    }
    namespace, labels = pod.metadata.namespace, pod.metadata.labels.items()
    for key, service in snapshot.services.values():
        if key.namespace == namespace and service.spec.selected and service.spec.selected.items() <= labels:
            targets = (port.target_port or port.port for port in service.spec.ports if port.protocol == "TCP")
            ports.update(target for target in targets if isinstance(target, int))
    excluded = pod.metadata.annotations.get(EXCLUDED_PORTS, "").split(",")
    return ports - {int(word) for word in excluded if word.strip().isdecimal()}
