"""Manifests compiled without a cluster: what would be filled in there is filled in here, the same on every machine.

A Service without clusterIP and a Gateway without address get a loopback address, and a Service with a selector and no
EndpointSlice gets one endpoint that stands for its pods, because files can't say which pods are ready.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headgate.compiler.compile import compile_mesh
from headgate.compiler.report import Compiled
from headgate.compiler.snapshot import SERVICE_NAME_LABEL
from headgate.control.feed import snapshot_of
from headgate.errors import HeadgateError, Invalid
from headgate.local.addresses import FIRST_RANGE, Addresses
from headgate.local.services import complete_service, service_user
from headgate.resources.gateway import GROUP as GATEWAY_GROUP
from headgate.resources.meta import Key, Object
from headgate.resources.registry import SERVICE
from headgate.settings import Settings
from headgate.store.files import Manifests, read

SLICE_GROUP = "discovery.k8s.io"
SLICE = "EndpointSlice"
EXTERNAL_NAME = "ExternalName"


class Offline(NamedTuple):
    """A reading of files, and what became of it."""

    manifests: Manifests
    compiled: Compiled


def compile_files(paths: Sequence[Path]) -> Offline:
    """Read and compile files. Raises HeadgateError when there is no object and no mistake in them."""
    manifests = read(paths)
    if not manifests.objects and not manifests.problems:
        named = ", ".join(map(str, paths))
        raise HeadgateError(f"there are no objects in {named}; manifests are files that end in .yaml, .yml or .json")
    objects = {manifest.key: manifest.object for manifest in manifests.objects}
    return Offline(manifests, compile_mesh(snapshot_of(completed(objects)), Settings()))


def completed(objects: Mapping[Key, Object]) -> Mapping[Key, Object]:
    """Return the objects with addresses and endpoints for the Services that have none."""
    addresses = Addresses(FIRST_RANGE)
    found = dict(objects)
    sliced = set(_sliced(objects))
    for key in sorted(key for key in objects if (key.group, key.kind) == (SERVICE.group, SERVICE.kind)):
        service = _with_address(objects[key], addresses)
        found[key] = service
        if _selector(service) and (key.namespace, key.name) not in sliced:
            stand_in = Key(SLICE_GROUP, SLICE, key.namespace, key.name)
            found.setdefault(
                stand_in, _stand_in(service, objects.values(), address=addresses.take(str(stand_in), "pods"))
            )
    for key in sorted(key for key in objects if (key.group, key.kind) == (GATEWAY_GROUP, "Gateway")):
        found[key] = _with_gateway_address(objects[key], addresses.take(str(key), "services"))
    return found


def _with_gateway_address(gateway: Object, address: str) -> Object:
    status = gateway.get("status") or {}
    return {**gateway, "status": {"addresses": [{"type": "IPAddress", "value": address}], **status}}


def _sliced(objects: Mapping[Key, Object]) -> Iterator[tuple[str, str]]:
    """Yield namespace and name of the Services that the files have endpoints for."""
    for key, obj in objects.items():
        if key.kind == SLICE:
            yield key.namespace, (obj["metadata"].get("labels") or {}).get(SERVICE_NAME_LABEL, "")


def _with_address(service: Object, addresses: Addresses) -> Object:
    try:
        return complete_service(
            service, None, choose=lambda wanted: wanted or addresses.take(service_user(service), "services")
        )
    except Invalid:  # the compiler has its own say on it
        return service


def _selector(service: Object) -> Mapping[str, str]:
    spec = service.get("spec") or {}
    return {} if spec.get("type") == EXTERNAL_NAME else spec.get("selector") or {}


def _stand_in(service: Object, objects: Any, *, address: str) -> Object:
    metadata = service["metadata"]
    named = {
        port["name"]: port["containerPort"]
        for labels, container in _containers(objects, metadata.get("namespace", ""))
        if _selector(service).items() <= labels.items()
        for port in container.get("ports") or ()
        if port.get("name") and port.get("containerPort")
    }
    ports = (service.get("spec") or {}).get("ports") or ()
    return {
        "apiVersion": f"{SLICE_GROUP}/v1",
        "kind": SLICE,
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata.get("namespace", ""),
            "labels": {SERVICE_NAME_LABEL: metadata["name"]},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address]}],
        "ports": [{"name": port.get("name") or "", "port": _target(port, named)} for port in ports],
    }


def _target(port: Mapping[str, Any], named: Mapping[str, int]) -> int:
    """Return where a Service port leads; a name that no pod of the files has leads to the port's own number."""
    target = port.get("targetPort") or port["port"]
    return target if isinstance(target, int) else named.get(target, port["port"])


def _containers(objects: Any, namespace: str) -> Iterator[tuple[Mapping[str, str], Mapping[str, Any]]]:
    """Yield each container of the pods and pod templates in a namespace, with its pod's labels."""
    for obj in objects:
        if obj["metadata"].get("namespace") != namespace:
            continue
        spec = obj.get("spec") or {}
        pod = (
            obj
            if obj["kind"] == "Pod"
            else spec.get("template")
            if obj["kind"] in ("Deployment", "ReplicaSet")
            else None
        )
        if isinstance(pod, Mapping):
            labels = (pod.get("metadata") or {}).get("labels") or {}
            for container in (pod.get("spec") or {}).get("containers") or ():
                yield labels, container
