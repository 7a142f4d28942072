"""Placeholders for the pods and EndpointSlices of manifests that are compiled offline.

A workload, such as a Deployment or a Job, becomes one pod with its name. Pods get an address and, as under `headgate up`, a sidecar. A
Service with a selector and no EndpointSlice is served by the pods that it selects, or by one anonymous pod when the
files have none. The result is the same on every machine.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from headgate.admission.injection import EXPLICIT, PodNamespace, decide
from headgate.admission.sidecar_merge import with_sidecars
from headgate.compiler.snapshot import SERVICE_NAME_LABEL
from headgate.errors import DecodeError
from headgate.options import InjectionMode
from headgate.plane.feed import snapshot_of
from headgate.resources.core.pod import ENDED
from headgate.resources.core.pod_metadata import APPLICATION_PORTS, SIDECAR
from headgate.resources.core.pod_spec import Pod
from headgate.resources.core.service import Service
from headgate.resources.decode import read
from headgate.resources.mesh.canary.types import Canary
from headgate.resources.meta import Key, Object, service_name
from headgate.resources.pod_templates import pod_template, template_path
from headgate.resources.registry import CANARY, POD, SERVICE, TLS_CONFIG, TRAFFIC_SPLIT
from headgate.resources.registry import SIDECAR as SIDECAR_KIND
from headgate.rollout.expected import expected_objects
from headgate.standalone.address_pool import AddressPool
from headgate.standalone.pods import application_ports
from headgate.standalone.pods.application_ports import ApplicationPorts

SLICE_GROUP = "discovery.k8s.io"
SLICE = "EndpointSlice"
EXTERNAL_NAME = "ExternalName"
FIRST_NUMBER, NUMBERS = 20_000, 10_000  # the first port and the number of ports that processes behind sidecars get


def pods(
    objects: Mapping[Key, Object], addresses: AddressPool, sidecars: InjectionMode = "all"
) -> Mapping[Key, Object]:
    """Return the pods of the files and of pod templates, with addresses and injected sidecars."""
    numbers = ApplicationPorts(range(FIRST_NUMBER, FIRST_NUMBER + NUMBERS), free=lambda _: True)
    all_pods = sorted(written_pods(objects).items())
    namespaces = {key.namespace for key, _ in all_pods}
    surroundings = {name: _surroundings(objects, name) for name in namespaces}
    services = {name: _services_of(objects, name) for name in namespaces}
    return {
        key: _with_address(
            _with_ports(_injected(pod, surroundings[key.namespace], sidecars), services[key.namespace], numbers),
            addresses,
        )
        for key, pod in all_pods
    }


def splits(objects: Mapping[Key, Object], domain: str) -> Mapping[Key, Object]:
    """Return the objects that each Canary owns in its first step, and its root Service if the files have none.

    `domain` is the DNS domain of Services. Leaves out Canaries of which the files have no backend.
    """
    kinds = {(kind.group, kind.kind) for kind in (CANARY, SERVICE)}
    snapshot = snapshot_of({key: obj for key, obj in objects.items() if (key.group, key.kind) in kinds})
    first_steps: dict[Key, Object] = {}
    for key, canary in snapshot.of(Canary):
        names = (service_name(backend.service, key.namespace, domain) for backend in canary.spec.backends)
        if any(name in snapshot.services for name in names):
            split = TRAFFIC_SPLIT.key(key.namespace, key.name)
            stored = {split: objects[split]} if split in objects else {}
            made = expected_objects(objects[key], stored, snapshot, domain)
            first_steps |= {name: obj for name, obj in made.items() if obj}
    return first_steps


def slices(
    objects: Mapping[Key, Object], service: Object, addresses: AddressPool, *, is_served: bool = True
) -> Mapping[Key, Object]:
    """Return EndpointSlices for a Service with a selector, from the pods in `objects`.

    Without any, a Service that `is_served` anyway has an anonymous pod.
    """
    metadata = service["metadata"]
    namespace, name, labels = metadata.get("namespace", ""), metadata["name"], selector(service)
    selected = [pod for key, pod in objects.items() if key.namespace == namespace and _is_selected(key, pod, labels)]
    made = [_slice(service, pod) for pod in selected if _address(pod)]
    if not made and is_served:
        address = addresses.allocate(str(Key(SLICE_GROUP, SLICE, namespace, name)), "pods")
        made = [_slice(service, {"metadata": {"name": ""}, "status": {"podIP": address}})]
    return {Key(SLICE_GROUP, SLICE, namespace, made_slice["metadata"]["name"]): made_slice for made_slice in made}


def with_pods(objects: Mapping[Key, Object]) -> frozenset[Key]:
    """Return the Services that select a pod of the files, or of a workload in them."""
    pods_in_files = written_pods(objects)
    services = (key for key in objects if (key.group, key.kind) == (SERVICE.group, SERVICE.kind))
    return frozenset(
        service
        for service in services
        if (labels := selector(objects[service]))
        and any(
            key.namespace == service.namespace and _is_selected(key, pod, labels) for key, pod in pods_in_files.items()
        )
    )


def selector(service: Object) -> Mapping[str, str]:
    """Return the selector of a Service; it is empty when pods do not provide its endpoints."""
    spec = service.get("spec") or {}
    return {} if spec.get("type") == EXTERNAL_NAME else spec.get("selector") or {}


def written_pods(objects: Mapping[Key, Object]) -> dict[Key, Object]:
    """Return the pods of the files, and a pod for each workload that has a template and needs a pod."""
    pods: dict[Key, Object] = {}
    for key, obj in objects.items():
        template = pod_template(obj) if template_path(obj) else None
        if template and (obj.get("spec") or {}).get("replicas", 1) != 0:
            owner = {
                "apiVersion": obj["apiVersion"],
                "kind": key.kind,
                "name": key.name,
                "uid": "placeholder",
                "controller": True,
            }
            template_metadata = {**(template.get("metadata") or {}), "name": key.name, "namespace": key.namespace}
            metadata = {**template_metadata, "ownerReferences": [owner]}
            pod = {"apiVersion": POD.hub, "kind": POD.kind, "metadata": metadata, "spec": template.get("spec") or {}}
            pods[POD.key(key.namespace, key.name)] = pod
    return pods | {key: obj for key, obj in objects.items() if (key.group, key.kind) == (POD.group, POD.kind)}


def _surroundings(objects: Mapping[Key, Object], namespace: str) -> PodNamespace:
    stored = objects.get(Key("", "Namespace", "", namespace))
    configs, sidecars = (
        [
            obj
            for key, obj in objects.items()
            if (key.group, key.kind, key.namespace) == (kind.group, kind.kind, namespace)
        ]
        for kind in (TLS_CONFIG, SIDECAR_KIND)
    )
    return PodNamespace(labels=_texts(stored, "labels") if stored else {}, configs=configs, sidecars=sidecars)


def _injected(pod: Object, surroundings: PodNamespace, sidecars: InjectionMode) -> Object:
    """Return the pod as injection changes it at its creation. A pod with an address exists already and is not changed."""
    annotations = _texts(pod, "annotations")
    if (pod.get("status") or {}).get("podIP") or not decide(pod, sidecars, surroundings).injected:
        return pod
    annotations |= {SIDECAR: annotations.get(SIDECAR) or EXPLICIT}
    return with_sidecars({**pod, "metadata": {**pod["metadata"], "annotations": annotations}}, surroundings.sidecars)


def _with_ports(pod: Object, services: Iterable[Service], numbers: ApplicationPorts) -> Object:
    """Return the pod with the application ports of its explicit sidecar, including the ports of Services (D26)."""
    metadata, annotations = pod["metadata"], _texts(pod, "annotations")
    if (pod.get("status") or {}).get("podIP") or annotations.get(SIDECAR) != EXPLICIT:
        return pod
    try:
        typed = read(pod, Pod)
        ports = application_ports.sidecar_ports(typed, application_ports.service_ports(typed, services))
    except DecodeError:  # the compiler reports the invalid pod
        return pod
    if ports:
        taken = numbers.assign(f"{metadata.get('namespace', '')}/{metadata['name']}", ports)
        annotations.setdefault(APPLICATION_PORTS, application_ports.to_annotation(taken))
    return {**pod, "metadata": {**metadata, "annotations": annotations}}


def _services_of(objects: Mapping[Key, Object], namespace: str) -> list[Service]:
    kind = (SERVICE.group, SERVICE.kind, namespace)
    services = (obj for key, obj in objects.items() if (key.group, key.kind, key.namespace) == kind)
    return list(application_ports.decode_services(services))


def _with_address(pod: Object, addresses: AddressPool) -> Object:
    metadata, status = pod["metadata"], pod.get("status") or {}
    if status.get("podIP") or status.get("phase") in ENDED:
        return pod
    address = addresses.allocate(f"Pod {metadata.get('namespace', '')}/{metadata['name']}", "pods")
    return {**pod, "status": {"phase": "Running", **status, "podIP": address}}


def _is_selected(key: Key, pod: Object, labels: Mapping[str, str]) -> bool:
    return (key.group, key.kind) == (POD.group, POD.kind) and labels.items() <= _texts(pod, "labels").items()


def _address(pod: Object) -> str:
    status = pod.get("status") or {}
    return "" if status.get("phase") in ENDED else str(status.get("podIP") or "")


def _slice(service: Object, pod: Object) -> Object:
    metadata, name = service["metadata"], pod["metadata"]["name"]
    named = {
        port["name"]: port["containerPort"]
        for port in _ports(pod)
        if isinstance(port, Mapping) and port.get("name") and port.get("containerPort")
    }
    ports = (service.get("spec") or {}).get("ports") or ()
    target = {"targetRef": {"kind": POD.kind, "name": name}} if name else {}
    return {
        "apiVersion": f"{SLICE_GROUP}/v1",
        "kind": SLICE,
        "metadata": {
            "name": "-".join(part for part in (metadata["name"], name) if part),
            "namespace": metadata.get("namespace", ""),
            "labels": {SERVICE_NAME_LABEL: metadata["name"]},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [_address(pod)], **target}],
        "ports": [{"name": port.get("name") or "", "port": _target(port, named)} for port in ports],
    }


def _ports(pod: Object) -> Iterator[Any]:
    containers: Iterable[Any] = (pod.get("spec") or {}).get("containers") or ()
    for container in containers:
        yield from (container.get("ports") or ()) if isinstance(container, Mapping) else ()


def _target(port: Mapping[str, Any], named: Mapping[str, int]) -> int:
    """Return the target port of a Service port; for a port name that the pod does not have, the Service port's number."""
    target = port.get("targetPort") or port["port"]
    return target if isinstance(target, int) else named.get(target, port["port"])


def _texts(obj: Object, part: str) -> dict[str, str]:
    texts = obj["metadata"].get(part)
    return dict(texts) if isinstance(texts, Mapping) else {}
