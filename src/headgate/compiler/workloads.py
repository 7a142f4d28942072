"""Pods with a sidecar to workloads: who they are, and what is spoken on which of their ports (R61 to R67, R70).

A port is one that an EndpointSlice names for the pod, ready or not, or one that a container declares. Access and mutual
TLS come later (`workload_policy`).
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from headgate.compiler.protocols import choice_at, protocol_of
from headgate.compiler.services import routed_ports
from headgate.compiler.snapshot import Snapshot, account_name
from headgate.model.identities import is_gateway, spiffe_id
from headgate.model.routing import InboundPort, PortProtocol, PortRef, Probe, Protocol, Workload
from headgate.resources.core import Endpoint, EndpointSlice, Service, ServicePort
from headgate.resources.meta import is_dns_subdomain
from headgate.resources.pods import APPLICATION_PORTS, EXCLUDED_PORTS, SIDECAR, SIDECARS, Container, Pod
from headgate.resources.workloads import ContainerPort
from headgate.settings import Settings

Roots = Mapping[PortRef, Protocol]
"""What undeclared Service ports take from the root of the split that they are a backend of."""

LARGEST_PORT = 65535
_NUMBER = re.compile(r"\s*[0-9]{1,5}\s*")


class PodPort(NamedTuple):
    """A port of a pod that a Service port leads to, whether the pod is ready or not; `address` is empty without one.

    `pod` is `namespace/name`, or `namespace@address` where a slice names no pod. It is empty for a pod of another namespace
    than the Service's, which must not decide what is spoken there, and so which rules hold.
    """

    ref: PortRef
    pod: str
    address: str
    port: int


class Lead(NamedTuple):
    """A Service port that leads to a pod. `rank` orders them: who says what is spoken, who takes it from a root, the others;
    each by age.
    """

    rank: tuple[object, ...]
    ref: PortRef
    protocol: Protocol


Leads = Mapping[str, Mapping[int, list[Lead]]]
"""By `PodPort.pod`, then by the pod's port."""


def pod_ports(name: str, service: Service, slices: tuple[EndpointSlice, ...]) -> tuple[PodPort, ...]:
    """Return what a Service leads to: each endpoint, with each TCP port that its slice has for the name of a Service port."""
    own = name.partition("/")[0]
    return tuple(
        PodPort(PortRef(name, port.port), _pod(own, endpoint), (*endpoint.addresses, "")[0], target.port)
        for port in routed_ports(service)
        for item in slices
        for target in item.ports or ()
        if target.port and (target.name or "") == port.name and target.protocol == "TCP"
        for endpoint in item.endpoints or ()
    )


def _pod(own: str, endpoint: Endpoint) -> str:
    named = endpoint.target_ref
    if named and named.kind == "Pod":
        return f"{own}/{named.name}" if named.namespace in {"", own} else ""
    return f"{own}@{endpoint.addresses[0]}" if endpoint.addresses else ""


def workloads(
    snapshot: Snapshot, led: Iterable[Iterable[PodPort]], settings: Settings, taken: Roots
) -> tuple[Workload, ...]:
    """Return every pod that has a sidecar and an address, sorted by name; `led` is what each Service leads to."""
    placed = sorted(_owners(snapshot).values())
    wanted = {place for name in placed for place in (name, _unnamed(name, snapshot.pods[name]))}
    known = _leads(snapshot, (item for items in led for item in items if item.pod in wanted), taken)
    return tuple(_workload(name, snapshot.pods[name], known, settings) for name in placed)


def _unnamed(name: str, pod: Pod) -> str:
    """Return the `PodPort.pod` of a pod that a slice does not name."""
    return f"{name.partition('/')[0]}@{pod.status.pod_ip}"


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


def _leads(snapshot: Snapshot, led: Iterable[PodPort], taken: Roots) -> Leads:
    """Return which Service ports lead to which ports of pods, and with which protocol."""
    found: dict[str, dict[int, list[Lead]]] = defaultdict(lambda: defaultdict(list))
    made: dict[PortRef, Lead] = {}
    for item in led:
        lead = made.get(item.ref) or made.setdefault(item.ref, _lead(snapshot, item.ref, taken))
        if lead not in (known := found[item.pod][item.port]):
            known.append(lead)
    return found


def expected(snapshot: Snapshot, pod: str) -> Iterator[InboundPort]:
    """Yield the ports of a pod that Services ask for: EndpointSlices will name them, one after the other."""
    for name in snapshot.services_of(pod):
        for port in routed_ports(snapshot.services[name][1]):
            number = port.target_port if isinstance(port.target_port, int) else port.port
            spoken = PortProtocol(protocol=protocol_of(port).protocol, services=(PortRef(name, port.port),))
            yield InboundPort(port=number, application=number, protocols=(spoken,))


def _lead(snapshot: Snapshot, ref: PortRef, taken: Roots) -> Lead:
    protocol, _, declared = choice_at(snapshot, ref)
    taking, created = ref in taken, snapshot.services[ref.service][1].metadata.creation_timestamp
    protocol = taken[ref] if taking and not declared else protocol
    rank = (not declared, not taking, created, *ref.service.split("/"), ref.port)
    return Lead(rank, ref, protocol)


def excluded_ports(pod: Pod) -> frozenset[int]:
    """Return the ports that a pod's sidecar leaves alone by its annotation; words that are no ports count for nothing."""
    return frozenset(
        int(word) for word in pod.metadata.annotations.get(EXCLUDED_PORTS, "").split(",") if _is_port(word)
    )


def _workload(name: str, pod: Pod, known: Leads, settings: Settings) -> Workload:
    found = _merged(known.get(name, {}), known.get(_unnamed(name, pod), {}))
    return Workload(
        name=name,
        address=pod.status.pod_ip,
        identity=spiffe_id(settings.trust_domain, name.partition("/")[0], account_name(pod)),
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
        spoken = _spoken(known[number]) if number in known else (PortProtocol(protocol=_by_name(declared[number])),)
        yield InboundPort(port=number, application=behind[number], protocols=spoken)


def _container_ports(pod: Pod) -> Iterator[ContainerPort]:
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


def _spoken(found: Sequence[Lead]) -> tuple[PortProtocol, ...]:
    """Return the protocols of a port, that of the oldest Service first (D15)."""
    if len(found) == 1:
        return (PortProtocol(protocol=found[0].protocol, services=(found[0].ref,)),)
    services: dict[Protocol, set[PortRef]] = {}
    for lead in sorted(found, key=lambda lead: lead.rank):
        services.setdefault(lead.protocol, set()).add(lead.ref)
    return tuple(PortProtocol(protocol=protocol, services=tuple(sorted(refs))) for protocol, refs in services.items())


def _by_name(name: str) -> Protocol:
    """Return what is spoken on a port that no Service names: what its own name says, else nobody knows."""
    protocol, _, declared = protocol_of(ServicePort(port=1, name=name))
    return protocol if declared else Protocol.TCP


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
