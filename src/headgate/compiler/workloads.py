"""Compile pods with a sidecar to workloads: identity, and protocols by port (R61 to R67, R70).

A workload has the ports that EndpointSlices name for the pod, ready or not, and the ports that its containers declare. A
pod that is being deleted also has the ports of the Services that select it.
`workload_policy` adds authorization and mutual TLS.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import msgspec

from headgate.compiler.protocols import choice_at, protocol_of
from headgate.compiler.services import routed_ports
from headgate.compiler.snapshot import Snapshot, account_name
from headgate.compiler.trace_sources import trace_source
from headgate.model.identities import is_gateway, spiffe_id
from headgate.model.probes import HealthCheck, PortCheck
from headgate.model.routing import InboundPort, PortProtocol, PortRef, Protocol, Workload
from headgate.resources.core.pod import MeshContainer, MeshPod
from headgate.resources.core.pod_metadata import APPLICATION_PORTS, EXCLUDED_PORTS, PROBES, REVISION, SIDECAR, SIDECARS
from headgate.resources.core.pod_spec import ContainerPort
from headgate.resources.core.pod_spec import Probe as ContainerProbe
from headgate.resources.core.service import Service, ServicePort
from headgate.resources.discovery.endpoint_slice import EndpointSlice, SliceEndpoint
from headgate.resources.meta import is_dns_subdomain
from headgate.resources.schema.builders import LARGEST_PORT
from headgate.settings import Settings

Roots = Mapping[PortRef, Protocol]
"""The protocol of the root, for each Service port that is a backend of a split."""

_NUMBER = re.compile(r"\s*[0-9]{1,5}\s*")


class PodPort(NamedTuple):
    """A port of a pod that a Service port leads to, whether the pod is ready or not; `address` may be empty.

    `pod` is `namespace/name`, or `namespace@address` if the slice names no pod. It is empty for a pod outside the
    Service's namespace, because a Service must not choose the protocol of a foreign pod.
    """

    ref: PortRef
    pod: str
    address: str
    port: int


class LeadingService(NamedTuple):
    """A Service port that forwards to a pod's port.

    `rank` is the precedence among such Service ports: declared protocols first, then protocols of a root, then
    defaults; by age in each group.
    """

    rank: tuple[object, ...]
    ref: PortRef
    protocol: Protocol


ServicesByPort = Mapping[str, Mapping[int, list[LeadingService]]]
"""The Service ports by `PodPort.pod`, then by the pod's port."""


def pod_ports(name: str, service: Service, slices: tuple[EndpointSlice, ...]) -> tuple[PodPort, ...]:
    """Return the ports of pods that the TCP ports of a Service lead to, by the names in its EndpointSlices."""
    own = name.partition("/")[0]
    return tuple(
        PodPort(PortRef(name, port.port), _pod(own, endpoint), (*endpoint.addresses, "")[0], target.port)
        for port in routed_ports(service)
        for slice_ in slices
        for target in slice_.ports or ()
        if target.port and (target.name or "") == port.name and target.protocol == "TCP"
        for endpoint in slice_.endpoints or ()
    )


def _pod(own: str, endpoint: SliceEndpoint) -> str:
    named = endpoint.target_ref
    if named and named.kind == "Pod":
        return f"{own}/{named.name}" if named.namespace in {"", own} else ""
    return f"{own}@{endpoint.addresses[0]}" if endpoint.addresses else ""


def workloads(
    snapshot: Snapshot, listed: Iterable[Iterable[PodPort]], settings: Settings, root_protocols: Roots
) -> tuple[Workload, ...]:
    """Return every pod that has a sidecar and an address, sorted by name.

    `listed` has the pod ports of each Service.
    """
    names = sorted(_owners(snapshot).values())
    pod_names = {target for name in names for target in (name, _unnamed(name, snapshot.pods[name]))}
    in_slices = (pod_port for items in listed for pod_port in items if pod_port.pod in pod_names)
    leading = _leading_services(snapshot, chain(in_slices, _of_deleted_pods(snapshot, names)), root_protocols)
    return tuple(_workload(name, snapshot, leading, settings) for name in names)


def _of_deleted_pods(snapshot: Snapshot, names: Iterable[str]) -> Iterator[PodPort]:
    """Yield the ports that Services lead to on pods with a deletionTimestamp.

    Old API servers, such as 1.20, remove these pods from the EndpointSlices. Clients that don't know it yet still send
    requests.
    """
    for name in names:
        if (pod := snapshot.pods[name]).metadata.deletion_timestamp:
            declared = tuple(_container_ports(pod))
            for service in snapshot.services_of(name):
                for port in routed_ports(snapshot.services[service][1]):
                    if number := port.number_on(declared):
                        yield PodPort(PortRef(service, port.port), name, pod.status.pod_ip, number)


def _unnamed(name: str, pod: MeshPod) -> str:
    """Return the value of `PodPort.pod` for this pod if the slice names no pod."""
    return f"{name.partition('/')[0]}@{pod.status.pod_ip}"


def has_sidecar(pod: MeshPod) -> bool:
    """Return whether the pod has a sidecar, by its annotation."""
    return pod.metadata.annotations.get(SIDECAR) in SIDECARS


def names_with_sidecar(snapshot: Snapshot) -> frozenset[str]:
    """Return the names of the pods that have a sidecar (`namespace/name`)."""
    return frozenset(name for name, pod in snapshot.pods.items() if has_sidecar(pod))


def _owners(snapshot: Snapshot) -> Mapping[str, str]:
    """Return the pod of each address.

    Of several pods with the same address it is the youngest: the older ones are terminating.
    """
    named = [(name, pod) for name, pod in snapshot.pods.items() if has_sidecar(pod) and _is_placed(pod)]
    by_age = sorted(named, key=lambda entry: (entry[1].metadata.creation_timestamp, entry[0]))
    return {pod.status.pod_ip: name for name, pod in by_age}


def _is_placed(pod: MeshPod) -> bool:
    """Return whether the pod has an address and a usable ServiceAccount; the gateway's account is reserved."""
    account = account_name(pod)
    return bool(pod.status.pod_ip) and is_dns_subdomain(account) and not is_gateway(pod.metadata.namespace, account)


def _leading_services(snapshot: Snapshot, listed: Iterable[PodPort], root_protocols: Roots) -> ServicesByPort:
    """Return the Service ports that lead to each port of each pod."""
    by_pod: dict[str, dict[int, list[LeadingService]]] = defaultdict(lambda: defaultdict(list))
    made: dict[PortRef, LeadingService] = {}
    for pod_port in listed:
        lead = made.get(pod_port.ref) or made.setdefault(
            pod_port.ref, _leading_service(snapshot, pod_port.ref, root_protocols)
        )
        if lead not in (at_port := by_pod[pod_port.pod][pod_port.port]):
            at_port.append(lead)
    return by_pod


def expected(snapshot: Snapshot, pod: str) -> Iterator[InboundPort]:
    """Yield the ports of the Services that select a pod, even if no EndpointSlice contains the pod yet."""
    for name in snapshot.services_of(pod):
        for port in routed_ports(snapshot.services[name][1]):
            number = port.target_port if isinstance(port.target_port, int) else port.port
            protocols = PortProtocol(protocol=protocol_of(port).protocol, services=(PortRef(name, port.port),))
            yield InboundPort(port=number, application=number, protocols=(protocols,))


def _leading_service(snapshot: Snapshot, ref: PortRef, root_protocols: Roots) -> LeadingService:
    protocol, _, declared = choice_at(snapshot, ref)
    taking, created = ref in root_protocols, snapshot.services[ref.service][1].metadata.creation_timestamp
    protocol = root_protocols[ref] if taking and not declared else protocol
    rank = (not declared, not taking, created, *ref.service.split("/"), ref.port)
    return LeadingService(rank, ref, protocol)


def excluded_ports(pod: MeshPod) -> frozenset[int]:
    """Return the ports that the pod's annotation excludes from its sidecar; invalid words are ignored."""
    return frozenset(
        int(word) for word in pod.metadata.annotations.get(EXCLUDED_PORTS, "").split(",") if _is_port(word)
    )


def _workload(name: str, snapshot: Snapshot, leading: ServicesByPort, settings: Settings) -> Workload:
    pod = snapshot.pods[name]
    by_port = _merged(leading.get(name, {}), leading.get(_unnamed(name, pod), {}))
    return Workload(
        name=name,
        address=pod.status.pod_ip,
        identity=spiffe_id(settings.trust_domain, name.partition("/")[0], account_name(pod)),
        uid=pod.metadata.uid,
        capture="explicit" if pod.metadata.annotations[SIDECAR] == "explicit" else "transparent",
        ports=tuple(_ports(pod, by_port)),
        probes=tuple(_http_probes(pod)),
        port_checks=tuple(_port_checks(pod)),
        traces=trace_source(snapshot, name, pod, settings),
        revision=pod.metadata.annotations.get(REVISION, ""),
    )


def _merged(*parts: Mapping[int, list[LeadingService]]) -> Mapping[int, list[LeadingService]]:
    filled = [part for part in parts if part]
    if len(filled) < 2:
        return filled[0] if filled else {}
    return {number: [lead for part in filled for lead in part.get(number, ())] for part in filled for number in part}


def _ports(pod: MeshPod, by_port: Mapping[int, list[LeadingService]]) -> Iterator[InboundPort]:
    """Yield the inbound ports; an explicit sidecar has only those whose application port is known."""
    declared = {port.container_port: port.name for port in _container_ports(pod)}
    numbers = sorted({*by_port, *declared} - excluded_ports(pod))
    explicit = pod.metadata.annotations[SIDECAR] == "explicit"
    application_ports = _application_ports(pod, numbers) if explicit else {number: number for number in numbers}
    for number in (number for number in numbers if number in application_ports):
        protocols = (
            _port_protocols(by_port[number])
            if number in by_port
            else (PortProtocol(protocol=_by_name(declared[number])),)
        )
        yield InboundPort(port=number, application=application_ports[number], protocols=protocols)


def _container_ports(pod: MeshPod) -> Iterator[ContainerPort]:
    for container in pod.spec.containers:
        for port in container.ports or ():
            if port.protocol == "TCP" and 0 < port.container_port <= LARGEST_PORT:
                yield port


def _is_port(word: str) -> bool:
    return bool(_NUMBER.fullmatch(word)) and 0 < int(word) <= LARGEST_PORT


def _application_ports(pod: MeshPod, numbers: Iterable[int]) -> Mapping[int, int]:
    """Return the port on which the process listens, for each inbound port.

    No two processes share a port, and none uses a port of the sidecar.
    """
    own, ports = set(numbers), dict[int, int]()
    for entry in pod.metadata.annotations.get(APPLICATION_PORTS, "").split(","):
        port, _, target = entry.partition("=")
        if _is_port(port) and _is_port(target) and int(target) not in own | set(ports.values()):
            ports.setdefault(int(port), int(target))
    return ports


def _port_protocols(leading: Sequence[LeadingService]) -> tuple[PortProtocol, ...]:
    """Return the protocols of a port, that of the oldest Service first (D15)."""
    if len(leading) == 1:
        return (PortProtocol(protocol=leading[0].protocol, services=(leading[0].ref,)),)
    services: dict[Protocol, set[PortRef]] = {}
    for lead in sorted(leading, key=lambda lead: lead.rank):
        services.setdefault(lead.protocol, set()).add(lead.ref)
    return tuple(PortProtocol(protocol=protocol, services=tuple(sorted(refs))) for protocol, refs in services.items())


def _by_name(name: str) -> Protocol:
    """Return the protocol of a port without a Service: by the port's name, TCP by default."""
    protocol, _, declared = protocol_of(ServicePort(port=1, name=name))
    return protocol if declared else Protocol.TCP


def _http_probes(pod: MeshPod) -> Iterator[HealthCheck]:
    """Yield the HTTP probes of the application, which the sidecar forwards for the kubelet."""
    for name, probe, container in _probes(pod):
        get = probe.http_get
        if get and (port := _number(get.port, container)):
            yield HealthCheck(name=name, port=port, path=get.path or "/", https=get.scheme.upper() == "HTTPS")


def _port_checks(pod: MeshPod) -> Iterator[PortCheck]:
    """Yield the TCP and gRPC probes of the application, which the sidecar makes itself.

    The kubelet requests them from the sidecar only if injection has moved them.
    """
    if PROBES not in pod.metadata.annotations:
        return
    for name, probe, container in _probes(pod):
        check = probe.tcp_socket or probe.grpc
        if check and (port := _number(check.port, container)):
            yield PortCheck(
                name=name,
                port=port,
                grpc=probe.grpc is not None,
                service=(probe.grpc and probe.grpc.service) or "",
                period=max(probe.period_seconds, 1),
                timeout=max(probe.timeout_seconds, 1),
            )


def _probes(pod: MeshPod) -> Iterator[tuple[str, ContainerProbe, MeshContainer]]:
    """Yield the probes of the application, each with the name `container/kind` and its container."""
    moved = _moved_probes(pod)
    for container in (*pod.spec.containers, *(pod.spec.init_containers or ())):
        kinds = (
            ("startup", container.startup_probe),
            ("readiness", container.readiness_probe),
            ("liveness", container.liveness_probe),
        )
        for kind, own in kinds:
            probe = own if moved is None else moved.get(f"{container.name}/{kind}Probe")
            if probe:
                yield f"{container.name}/{kind}", probe, container


def _moved_probes(pod: MeshPod) -> Mapping[str, ContainerProbe] | None:
    """Return the probes that injection has moved to an annotation; None if they are in the pod's spec."""
    text = pod.metadata.annotations.get(PROBES)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=dict[str, ContainerProbe])
    except (msgspec.DecodeError, RecursionError):  # a user may write anything into an annotation
        return {}


def _number(port: int | str, container: MeshContainer) -> int:
    """Return the number of a probe's port; 0 when its container has no port of that name."""
    if isinstance(port, int):
        return port if 0 < port <= LARGEST_PORT else 0
    named = (declared.container_port for declared in container.ports or () if declared.name == port)
    return next(named, int(port) if _is_port(port) else 0)
