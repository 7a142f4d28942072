"""Pods with a sidecar to workloads: who they are, and what is spoken on which of their ports (R61 to R67, R70).

A port is one that an EndpointSlice names for the pod, ready or not, or one that a container declares. Access and mutual
TLS come later (`secured`).
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from headgate.compiler.protocols import is_declared, protocol_of
from headgate.compiler.services import routed_ports
from headgate.compiler.snapshot import Snapshot, account_name
from headgate.model.identities import is_gateway, spiffe_id
from headgate.model.routing import InboundPort, PortRef, Probe, Protocol, Spoken, Workload
from headgate.resources import pods
from headgate.resources.core import Endpoint, EndpointSlice, ServicePort
from headgate.resources.names import is_dns_subdomain
from headgate.resources.pods import APPLICATION_PORTS, EXCLUDED_PORTS, SIDECAR, SIDECARS, Container, Pod
from headgate.settings import Settings

Roots = Mapping[PortRef, Protocol]
"""What undeclared Service ports take from the root of the split that they are a backend of."""

NO_ROOTS: Roots = MappingProxyType({})
LARGEST_PORT = 65535
_NUMBER = re.compile(r"\s*[0-9]{1,5}\s*")


class Lead(NamedTuple):
    """A Service port that leads to a pod. `rank` orders them: who says what is spoken, who takes it from a root, the others;
    each by age.
    """

    rank: tuple[object, ...]
    ref: PortRef
    protocol: Protocol


Leads = Mapping[str, Mapping[int, list[Lead]]]
"""By pod (`namespace/name`, or `namespace@address` where a slice names no pod), then by the pod's port."""


def workloads(snapshot: Snapshot, settings: Settings, taken: Roots = NO_ROOTS) -> tuple[Workload, ...]:
    """Return every pod that has a sidecar and an address, sorted by name."""
    placed = {name: snapshot.pods[name] for name in _owners(snapshot).values()}
    known = leads(snapshot, taken) if placed else {}
    return tuple(_workload(name, pod, known, settings) for name, pod in sorted(placed.items()))


def has_sidecar(pod: Pod) -> bool:
    """Say whether a proxy stands before the pod."""
    return pod.metadata.annotations.get(SIDECAR) in SIDECARS


def _owners(snapshot: Snapshot) -> Mapping[str, str]:
    """Return the pod that has each address: the youngest, for an older one with the same address is about to be gone."""
    found = [(name, pod) for name, pod in snapshot.pods.items() if has_sidecar(pod) and _is_placed(pod)]
    by_age = sorted(found, key=lambda entry: (entry[1].metadata.creation_timestamp, entry[0]))
    return {pod.status.pod_ip: name for name, pod in by_age}


def _is_placed(pod: Pod) -> bool:
    """Say whether the pod has an address, and an account that an identity can name; the gateway's is its own alone."""
    account = account_name(pod)
    return bool(pod.status.pod_ip) and is_dns_subdomain(account) and not is_gateway(pod.metadata.namespace, account)


def leads(snapshot: Snapshot, taken: Roots = NO_ROOTS) -> Leads:
    """Return which Service ports lead to which ports of pods of their own namespace, and with which protocol.

    A slice may name a pod of another namespace; nobody there shall decide what is spoken here, and so which rules hold.
    """
    found: dict[str, dict[int, list[Lead]]] = defaultdict(lambda: defaultdict(list))
    for name, (_, service) in snapshot.services.items():
        slices = snapshot.slices.get(name, ())
        for port in routed_ports(service) if slices else ():
            lead = _lead(PortRef(name, port.port), port, service.metadata.creation_timestamp, taken)
            for endpoint, number in behind(slices, port.name):
                if lead not in (known := found[_place(name.partition("/")[0], endpoint)][number]):
                    known.append(lead)
    return found


def expected(snapshot: Snapshot, pod: str) -> Iterator[InboundPort]:
    """Yield the ports of a pod that Services ask for: EndpointSlices will name them, one after the other."""
    for name in snapshot.services_of(pod):
        for port in routed_ports(snapshot.services[name][1]):
            number = port.target_port if isinstance(port.target_port, int) else port.port
            spoken = Spoken(protocol=protocol_of(port).protocol, services=(PortRef(name, port.port),))
            yield InboundPort(port=number, application=number, spoken=(spoken,))


def _lead(ref: PortRef, port: ServicePort, created: str, taken: Roots) -> Lead:
    declared, taking = is_declared(port), ref in taken
    protocol = taken[ref] if taking and not declared else protocol_of(port).protocol
    rank = (not declared, not taking, created, *ref.service.split("/"), ref.port)
    return Lead(rank, ref, protocol)


def behind(slices: Iterable[EndpointSlice], port_name: str) -> Iterator[tuple[Endpoint, int]]:
    """Yield the endpoints of a Service port, ready or not, with each TCP port that a slice has for the port's name."""
    for item in slices:
        ports = [port for port in item.ports or () if (port.name or "") == port_name and port.protocol == "TCP"]
        numbers = [port.port for port in ports if port.port]
        for endpoint in item.endpoints or () if numbers else ():
            yield from ((endpoint, number) for number in numbers)


def _place(own: str, endpoint: Endpoint) -> str:
    """Return the pod that an endpoint stands for, as in `Leads`; empty for one of another namespace."""
    named = endpoint.target_ref
    if named and named.kind == "Pod":
        return f"{own}/{named.name}" if named.namespace in {"", own} else ""
    return f"{own}@{endpoint.addresses[0]}" if endpoint.addresses else ""


def excluded_ports(pod: Pod) -> frozenset[int]:
    """Return the ports that a pod's sidecar leaves alone by its annotation; words that are no ports count for nothing."""
    return frozenset(
        int(word) for word in pod.metadata.annotations.get(EXCLUDED_PORTS, "").split(",") if _is_port(word)
    )


def _workload(name: str, pod: Pod, known: Leads, settings: Settings) -> Workload:
    namespace = name.partition("/")[0]
    found = _merged(known.get(name, {}), known.get(f"{namespace}@{pod.status.pod_ip}", {}))
    return Workload(
        name=name,
        address=pod.status.pod_ip,
        identity=spiffe_id(settings.trust_domain, namespace, account_name(pod)),
        uid=pod.metadata.uid,
        capture="explicit" if pod.metadata.annotations[SIDECAR] == "explicit" else "transparent",
        ports=tuple(_ports(pod, found)),
        probes=tuple(_probes(pod)),
    )


def _merged(*found: Mapping[int, list[Lead]]) -> Mapping[int, list[Lead]]:
    filled = [part for part in found if part]
    if len(filled) < 2:
        return filled[0] if filled else {}
    return {number: [lead for part in filled for lead in part.get(number, ())] for part in filled for number in part}


def _ports(pod: Pod, known: Mapping[int, list[Lead]]) -> Iterator[InboundPort]:
    """Yield what the sidecar takes calls on; of an explicit one, only where it knows the process to listen."""
    declared = {port.container_port: port.name for port in _container_ports(pod)}
    numbers = sorted({*known, *declared} - excluded_ports(pod))
    explicit = pod.metadata.annotations[SIDECAR] == "explicit"
    behind = _behind(pod, numbers) if explicit else {number: number for number in numbers}
    for number in (number for number in numbers if number in behind):
        spoken = _spoken(known[number]) if number in known else (Spoken(protocol=_by_name(declared[number])),)
        yield InboundPort(port=number, application=behind[number], spoken=spoken)


def _container_ports(pod: Pod) -> Iterator[pods.ContainerPort]:
    for container in pod.spec.containers:
        for port in container.ports or ():
            if port.protocol == "TCP" and 0 < port.container_port <= LARGEST_PORT:
                yield port


def _is_port(word: str) -> bool:
    return bool(_NUMBER.fullmatch(word)) and 0 < int(word) <= LARGEST_PORT


def _behind(pod: Pod, numbers: Iterable[int]) -> Mapping[int, int]:
    """Return where the process listens for each port; no two at one place, nor where the sidecar itself listens."""
    own, found = set(numbers), dict[int, int]()
    for entry in pod.metadata.annotations.get(APPLICATION_PORTS, "").split(","):
        port, _, place = entry.partition("=")
        if _is_port(port) and _is_port(place) and int(place) not in own | set(found.values()):
            found.setdefault(int(port), int(place))
    return found


def _spoken(found: Sequence[Lead]) -> tuple[Spoken, ...]:
    """Return the protocols of a port, that of the oldest Service first (D15)."""
    if len(found) == 1:
        return (Spoken(protocol=found[0].protocol, services=(found[0].ref,)),)
    services: dict[Protocol, set[PortRef]] = {}
    for lead in sorted(found, key=lambda lead: lead.rank):
        services.setdefault(lead.protocol, set()).add(lead.ref)
    return tuple(Spoken(protocol=protocol, services=tuple(sorted(refs))) for protocol, refs in services.items())


def _by_name(name: str) -> Protocol:
    """Return what is spoken on a port that no Service names: what its own name says, else nobody knows."""
    port = ServicePort(port=1, name=name)
    return protocol_of(port).protocol if is_declared(port) else Protocol.TCP


def _probes(pod: Pod) -> Iterator[Probe]:
    for container in pod.spec.containers:
        kinds = (
            ("startup", container.startup_probe),
            ("readiness", container.readiness_probe),
            ("liveness", container.liveness_probe),
        )
        for kind, probe in kinds:
            get = probe.http_get if probe else None
            if get and (port := _number(get.port, container)):
                https = get.scheme.upper() == "HTTPS"
                yield Probe(name=f"{container.name}/{kind}", port=port, path=get.path or "/", https=https)


def _number(port: int | str, container: Container) -> int:
    """Return the number of a probe's port; 0 when its container has no port of that name."""
    if isinstance(port, int):
        return port if 0 < port <= LARGEST_PORT else 0
    named = (item.container_port for item in container.ports or () if item.name == port)
    return next(named, int(port) if _is_port(port) else 0)
