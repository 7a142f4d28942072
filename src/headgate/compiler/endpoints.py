"""EndpointSlices to the ready endpoints of each Service port (R37, R38: by the port's name, so targetPort is resolved)."""

from collections.abc import Iterable, Mapping

from msgspec import structs

from headgate.compiler.external_names import endpoint, is_external
from headgate.compiler.services import routed_ports
from headgate.model.routing import Endpoint, Endpoints, PortRef, Workload
from headgate.resources import core


def endpoints(
    slices: tuple[core.EndpointSlice, ...], name: str, service: core.Service, domain: str
) -> tuple[Endpoints, ...]:
    """Return one entry for each routed port of a Service, with or without endpoints; `domain` is the mesh's."""
    if is_external(service):
        return tuple(
            Endpoints(ref=PortRef(name, port.port), ready=endpoint(service, port, domain))
            for port in routed_ports(service)
        )
    return tuple(
        Endpoints(ref=PortRef(name, port.port), ready=_ready(slices, port.name)) for port in routed_ports(service)
    )


def identified(places: Iterable[Endpoints], workloads: Iterable[Workload]) -> tuple[Endpoints, ...]:
    """Return the endpoints with the identity of those whose sidecar is called with mutual TLS.

    A slice that names no pod is for whoever has the address.
    """
    known = {
        (place, port.port): item.identity
        for item in workloads
        if item.stage.is_sent_tls
        for port in item.ports
        for place in (item.address, item.name)
    }
    if not known:
        return tuple(places)
    return tuple(
        structs.replace(entry, ready=tuple(_identified(endpoint, known) for endpoint in entry.ready))
        for entry in places
    )


def _identified(endpoint: Endpoint, known: Mapping[tuple[str, int], str]) -> Endpoint:
    identity = known.get((endpoint.workload, endpoint.port)) or known.get((endpoint.address, endpoint.port))
    return structs.replace(endpoint, identity=identity) if identity else endpoint


def _ready(slices: tuple[core.EndpointSlice, ...], port_name: str) -> tuple[Endpoint, ...]:
    found = {
        (endpoint.addresses[0], number): _workload(item, endpoint)
        for item in slices
        if item.address_type != "FQDN"
        for number in _numbers(item, port_name)
        for endpoint in item.endpoints or ()
        if endpoint.addresses and _is_ready(endpoint)
    }
    return tuple(
        Endpoint(address=address, port=port, workload=workload) for (address, port), workload in sorted(found.items())
    )


def _numbers(item: core.EndpointSlice, port_name: str) -> list[int]:
    return [port.port for port in item.ports or () if (port.name or "") == port_name and port.port]


def _is_ready(endpoint: core.Endpoint) -> bool:
    return endpoint.conditions.ready is not False


def _workload(item: core.EndpointSlice, endpoint: core.Endpoint) -> str:
    if endpoint.target_ref is None or endpoint.target_ref.kind != "Pod":
        return ""
    return f"{endpoint.target_ref.namespace or item.metadata.namespace}/{endpoint.target_ref.name}"
