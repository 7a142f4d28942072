"""The EndpointSlices that a controller would write for Services after a change to them or to their pods: for plans. Pure."""

from collections.abc import Iterable, Iterator, Mapping

from headgate.compiler.snapshot import SELECTING_MANAGERS, SERVICE_NAME_LABEL, SLICE_MANAGER_LABEL, Snapshot
from headgate.resources.core.pod import MeshPod
from headgate.resources.core.service import Service
from headgate.resources.discovery.endpoint_slice import (
    EndpointConditions,
    EndpointPort,
    EndpointSlice,
    ObjectReference,
    SliceEndpoint,
)
from headgate.resources.meta import Key, Metadata, Resource
from headgate.resources.registry import ENDPOINT_SLICE, POD, SERVICE


def with_expected_slices(
    before: Snapshot, after: Snapshot, changed: Iterable[Key]
) -> tuple[Snapshot, Mapping[Key, Key]]:
    """Return `after` with the slices of the Services that a change to objects (`changed`) concerns.

    Also return the changed object that each other slice follows from. Slices of other managers stay, and so do those of a Service without a selector. A pod stays ready or not ready as it is;
    a pod that is in no slice yet counts as ready.
    """
    causes = {name: key for key in sorted(changed, reverse=True) for name in _concerned(before, after, key)}
    chosen = {name: after.services[name][1] for name in causes.keys() & after.services.keys()}
    chosen = {name: service for name, service in chosen.items() if service.spec.selected}
    if not chosen:
        return after, {}
    gone = [key for key, slice_ in after.of(EndpointSlice) if is_managed(slice_) and _service(key, slice_) in chosen]
    ready = _readiness(before)
    new = {key: slice_ for name, service in chosen.items() for key, slice_ in _expected(after, name, service, ready)}
    edited = after.objects.edited(new, [key for key in gone if key not in new])
    services = {key: _service(key, new.get(key) or after.objects[key]) for key in (*gone, *new)}
    makers = {key: causes[name] for key, name in services.items()}
    return Snapshot(after.revision, edited, after.mistakes, fail_closed=after.fail_closed), makers


def is_managed(slice_: EndpointSlice) -> bool:
    """Return whether a controller computes a slice from a selector."""
    return slice_.metadata.labels.get(SLICE_MANAGER_LABEL) in SELECTING_MANAGERS


def _concerned(before: Snapshot, after: Snapshot, key: Key) -> Iterator[str]:
    """Yield the Services whose slices a changed object concerns: it is the Service, a pod of it, or a slice."""
    kind, name = (key.group, key.kind), f"{key.namespace}/{key.name}"
    if kind == (SERVICE.group, SERVICE.kind):
        yield name
    for side in (before, after):
        if kind == (POD.group, POD.kind) and name in side.pods:
            yield from side.services_of(name)
        resource = side.objects.get(key)
        if isinstance(resource, EndpointSlice) and is_managed(resource):
            yield _service(key, resource)


def _service(key: Key, resource: Resource) -> str:
    return f"{key.namespace}/{resource.metadata.labels.get(SERVICE_NAME_LABEL, '')}"


def _readiness(snapshot: Snapshot) -> Mapping[str, bool]:
    """Return whether each pod that is in a slice is ready."""
    return {
        f"{endpoint.target_ref.namespace or key.namespace}/{endpoint.target_ref.name}": endpoint.conditions.ready
        is not False
        for key, slice_ in snapshot.of(EndpointSlice)
        for endpoint in slice_.endpoints or ()
        if endpoint.target_ref and endpoint.target_ref.kind == POD.kind
    }


def _expected(
    after: Snapshot, name: str, service: Service, ready: Mapping[str, bool]
) -> Iterator[tuple[Key, EndpointSlice]]:
    """Yield a slice for each pod that a Service selects."""
    namespace, _, short = name.partition("/")
    for pod in after.selected(namespace, service.spec.selected):
        value = after.pods[pod]
        if value.status.pod_ip and not value.metadata.deletion_timestamp:
            own = pod.partition("/")[2]
            metadata = Metadata(
                name=f"{short}-{own}",
                namespace=namespace,
                labels={SERVICE_NAME_LABEL: short, SLICE_MANAGER_LABEL: SELECTING_MANAGERS[0]},
            )
            yield (
                ENDPOINT_SLICE.key(namespace, metadata.name),
                EndpointSlice(
                    metadata=metadata,
                    address_type="IPv6" if ":" in value.status.pod_ip else "IPv4",
                    endpoints=(_endpoint(value, namespace, own, is_ready=ready.get(pod, True)),),
                    ports=tuple(_ports(service, value)),
                ),
            )


def _endpoint(pod: MeshPod, namespace: str, name: str, *, is_ready: bool) -> SliceEndpoint:
    return SliceEndpoint(
        addresses=(pod.status.pod_ip,),
        conditions=EndpointConditions(ready=is_ready),
        target_ref=ObjectReference(kind=POD.kind, namespace=namespace, name=name),
    )


def _ports(service: Service, pod: MeshPod) -> Iterator[EndpointPort]:
    declared = [port for container in pod.spec.containers for port in container.ports or ()]
    for port in service.spec.ports:
        if number := port.number_on(declared):
            yield EndpointPort(name=port.name, port=number, protocol=port.protocol)
