"""The EndpointSlice controller, as in Kubernetes: computes slices from selectors and pod readiness (R5, R37, R38).

It changes only slices with headgate's label. Users manage all other slices, and the slices of Services without a selector.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from headgate.compiler.snapshot import SERVICE_NAME_LABEL
from headgate.resources.core.pod_spec import Pod
from headgate.resources.core.service import Service, ServicePort
from headgate.resources.meta import Object, controller_reference, labels_of
from headgate.resources.registry import key_of
from headgate.standalone.controllers.actions import Action, Create, Delete, TypedObject, Update

MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
_HEADLESS = "service.kubernetes.io/headless"
_MANAGER = "headgate"
_MAX_ENDPOINTS = 100  # the most endpoints in a slice, as in Kubernetes

_Ports = tuple[tuple[str, int, str, str], ...]  # for each port: name, number, protocol, appProtocol


def managed_slices(slices: Iterable[Object]) -> dict[str, list[Object]]:
    """Return the slices with headgate's label, by the name of their Service."""
    by_service: dict[str, list[Object]] = {}
    for slice_ in slices:
        if _label(slice_, MANAGED_BY) == _MANAGER:
            by_service.setdefault(_label(slice_, SERVICE_NAME_LABEL), []).append(slice_)
    return by_service


def plan_slices(subject: TypedObject[Service], pods: Sequence[Pod], slices: Sequence[Object]) -> list[Action]:
    """Return the actions that create, update and delete the slices of a Service.

    `pods` has pods of its namespace, in any order. `slices` has its current slices with headgate's label.
    """
    service, typed = subject
    if not typed.spec.selected or typed.metadata.deletion_timestamp:
        return []
    existing = {slice_["metadata"]["name"]: slice_ for slice_ in slices}
    always = bool(service["spec"].get("publishNotReadyAddresses"))
    actions: list[Action] = []
    for ports, group in sorted(_groups(typed, pods).items()):
        own_name = typed.metadata.name
        for name, members in _spread(own_name, ports, group, existing):
            new_slice = _slice(service, name, ports, [_endpoint(pod, own_name, always=always) for pod in members])
            actions += _difference(new_slice, existing.pop(name, None))
    return [*actions, *(Delete(key_of(slice_), slice_["metadata"]["uid"]) for slice_ in existing.values())]


def _groups(service: Service, pods: Sequence[Pod]) -> Mapping[_Ports, list[Pod]]:
    """Return the pods of a Service, grouped by their resolved port numbers."""
    selector = service.spec.selected.items()
    groups: dict[_Ports, list[Pod]] = {}
    for pod in sorted(pods, key=lambda pod: pod.metadata.name):
        if (
            pod.status.pod_ip
            and pod.status.phase not in {"Succeeded", "Failed"}
            and selector <= pod.metadata.labels.items()
        ):
            ports = tuple(_resolved(service.spec.ports, pod))
            groups.setdefault(ports, []).append(pod)
    return groups


def _resolved(ports: Sequence[ServicePort], pod: Pod) -> Iterator[tuple[str, int, str, str]]:
    """Yield (name, number, protocol, appProtocol) of each port of a Service on a pod.

    A named targetPort is looked up in the pod's containers. A port that they do not declare is omitted.
    """
    declared = [port for container in pod.spec.containers for port in container.ports or ()]
    for port in ports:
        if number := port.number_on(declared):
            yield port.name, number, port.protocol, port.app_protocol


def _spread(
    service: str, ports: _Ports, pods: Sequence[Pod], existing: Mapping[str, Object]
) -> Iterator[tuple[str, list[Pod]]]:
    """Distribute pods with the same ports among slices; yield the name and the pods of each slice.

    A pod stays in its slice. A new pod joins the first slice that is not full.
    """
    prefix = f"{service}-{hashlib.sha256(json.dumps(ports).encode()).hexdigest()[:5]}"
    members_by_slice: dict[int, list[Pod]] = {}
    slice_of_pod = {
        uid: index
        for index in range(len(pods) + len(existing))
        for uid in _uids(existing.get(_numbered(prefix, index)))
    }
    for pod in pods:
        if pod.metadata.uid in slice_of_pod:
            members_by_slice.setdefault(slice_of_pod[pod.metadata.uid], []).append(pod)
    for pod in pods:
        if pod.metadata.uid not in slice_of_pod:
            room = next(
                index for index in range(len(pods) + 1) if len(members_by_slice.get(index, ())) < _MAX_ENDPOINTS
            )
            members_by_slice.setdefault(room, []).append(pod)
    for index, members in sorted(members_by_slice.items()):
        yield _numbered(prefix, index), sorted(members, key=lambda pod: pod.metadata.name)


def _numbered(prefix: str, index: int) -> str:
    return f"{prefix}-{index}" if index else prefix


def _uids(slice_: Object | None) -> list[str]:
    endpoints = (slice_ or {}).get("endpoints") or ()
    return [(endpoint.get("targetRef") or {}).get("uid", "") for endpoint in endpoints]


def _endpoint(pod: Pod, service: str, *, always: bool) -> dict[str, Any]:
    serving = pod.ready_since is not None
    terminating = bool(pod.metadata.deletion_timestamp)
    return {
        "addresses": [pod.status.pod_ip],
        "conditions": {
            "ready": always or (serving and not terminating),
            "serving": serving,
            "terminating": terminating,
        },
        **({"hostname": pod.spec.hostname} if pod.spec.hostname and pod.spec.subdomain == service else {}),
        "nodeName": pod.spec.node_name,
        "targetRef": {
            "kind": "Pod",
            "namespace": pod.metadata.namespace,
            "name": pod.metadata.name,
            "uid": pod.metadata.uid,
        },
    }


def _slice(service: Object, name: str, ports: _Ports, endpoints: list[dict[str, Any]]) -> Object:
    metadata = service["metadata"]
    labels = {**(metadata.get("labels") or {}), SERVICE_NAME_LABEL: metadata["name"], MANAGED_BY: _MANAGER}
    if service["spec"].get("clusterIP") == "None":
        labels[_HEADLESS] = ""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            "labels": labels,
            "ownerReferences": [controller_reference(service)],
        },
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [_port(*port) for port in ports],
    }


def _port(name: str, number: int, protocol: str, app_protocol: str) -> dict[str, Any]:
    port = {"name": name, "port": number, "protocol": protocol}
    return {**port, "appProtocol": app_protocol} if app_protocol else port


def _difference(new: Object, old: Object | None) -> list[Action]:
    if old is None:
        return [Create(new)]
    merged = {**new, "metadata": {**old["metadata"], **new["metadata"]}}
    return [] if merged == old else [Update(merged)]


def _label(obj: Object, name: str) -> str:
    return str(labels_of(obj).get(name, ""))
