"""Findings about the ports of Services that headgate does not route: those for UDP and SCTP.

Each cluster has such Services that do not concern the mesh, like that of its DNS: kube-proxy serves them, and they have no finding.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.compiler.snapshot import Snapshot, full_name
from headgate.compiler.workloads import has_sidecar
from headgate.resources.core.service import Service
from headgate.resources.meta import Key, service_name
from headgate.resources.registry import ROUTES, SERVICE
from headgate.settings import Settings

ROUTE_SHAPES = tuple(kind.shape for kind in ROUTES if kind.shape)


def referenced_services(snapshot: Snapshot, settings: Settings) -> frozenset[str]:
    """Return the Services (`namespace/name`) that a TrafficSplit or a route names as its root, parent or backend."""
    return frozenset((*_of_splits(snapshot, settings.domain), *_of_routes(snapshot)))


def _of_splits(snapshot: Snapshot, domain: str) -> Iterator[str]:
    for key, split in snapshot.splits:
        for name in (split.spec.service, *(backend.service for backend in split.spec.backends)):
            yield service_name(name, key.namespace, domain)


def _of_routes(snapshot: Snapshot) -> Iterator[str]:
    for shape in ROUTE_SHAPES:
        routes: Iterable[tuple[Key, Any]] = snapshot.of(shape)
        for key, route in routes:
            spec = route.spec
            for ref in (*spec.parent_refs, *(backend for rule in spec.rules for backend in rule.backend_refs)):
                if ref.kind == SERVICE.kind:
                    yield f"{ref.namespace or key.namespace}/{ref.name}"


def findings(snapshot: Snapshot, referenced: frozenset[str], settings: Settings) -> tuple[Finding, ...]:
    """Return a finding for each port that is not a TCP port.

    On a cluster, these are the ports of the `referenced` Services and of those that select a pod with a sidecar. On one
    machine nothing else serves the ports, so they are those of all Services.
    """
    return tuple(
        finding
        for key, service in snapshot.of(Service)
        if any(port.protocol != "TCP" for port in service.spec.ports)
        if not settings.gateway_pods or full_name(service) in referenced or _has_sidecars(snapshot, key, service)
        for finding in _of_ports(key, service)
    )


def _has_sidecars(snapshot: Snapshot, key: Key, service: Service) -> bool:
    labels = service.spec.selected
    return bool(labels) and any(has_sidecar(snapshot.pods[name]) for name in snapshot.selected(key.namespace, labels))


def _of_ports(key: Key, service: Service) -> Iterator[Finding]:
    for index, port in enumerate(service.spec.ports):
        if port.protocol != "TCP":
            message = f"port {port.port} is {port.protocol}; headgate routes TCP ports only"
            if port.protocol == "UDP":
                message += ", and UDP ports for clients of a Gateway with a UDPRoute"
            yield Finding(key, Reason.NOT_ROUTED, f"spec.ports[{index}].protocol", message)
