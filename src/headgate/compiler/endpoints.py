"""Find the endpoints of each Service port in EndpointSlices, by the port's name (R37, R38).

The ready ones get the requests. While there is none, those get them that still serve although they terminate (D31). Of a
Service with addresses of both families, only endpoints of the first family are used, so that no pod counts twice.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

from msgspec import structs

from headgate.compiler.services import HEADLESS, external_name, fault, is_external, routed_ports
from headgate.compiler.snapshot import Snapshot
from headgate.model.host_names import by_host
from headgate.model.requests import Filters, Rewrite
from headgate.model.routing import (
    Endpoint,
    Endpoints,
    HostRoutes,
    Mesh,
    PortRef,
    Route,
    RouteTable,
    Target,
    Workload,
)
from headgate.resources.core.service import Service
from headgate.resources.discovery import endpoint_slice

R = TypeVar("R", HostRoutes, RouteTable)
_DEFAULT_PORT = 80
_FAMILIES = ("IPv4", "IPv6")


def endpoints(
    name: str, service: Service, slices: tuple[endpoint_slice.EndpointSlice, ...], domain: str
) -> tuple[Endpoints, ...]:
    """Return the endpoints of each TCP and UDP port of a Service; a port without endpoints has an empty entry.

    `domain` is the DNS suffix of the mesh, such as `cluster.local`.
    """
    ports = [
        (PortRef(name, port.port, is_udp), port)
        for is_udp in (False, True)
        for port in routed_ports(service, "UDP" if is_udp else "TCP")
    ]
    if not is_external(service):
        called = _of_family(slices, service.spec.ip_family)
        named = service.spec.cluster_ip == HEADLESS  # other Services have no names of pods
        places = ((ref, _used(called, port.name)) for ref, port in ports)
        return tuple(Endpoints(ref=ref, ready=ready if named else tuple(map(_unnamed, ready))) for ref, ready in places)
    external = "" if fault(service, domain) else external_name(service)
    return tuple(
        Endpoints(ref=ref, ready=(Endpoint(address=external, port=ref.port, resolved=True),) if external else ())
        for ref, _ in ports
    )


class KnownPods(NamedTuple):
    """What endpoints do not say about the pods behind them.

    `identities` has the SPIFFE ID for each (pod, port) and (address, port) whose clients use mutual TLS. `named` has the
    pod (`namespace/name`) of each address.
    """

    identities: Mapping[tuple[str, int], str]
    named: Mapping[str, str]


def known_pods(workloads: Iterable[Workload], snapshot: Snapshot) -> KnownPods:
    """Return the identities of the workloads, and the pods by address, without those in the network of their node.

    The addresses identify endpoints of EndpointSlices that do not name a pod, as hand-written ones: traffic counts for
    the pod. Of several pods with the same address it is the youngest: the older ones are terminating.
    """
    identities = {
        (place, port.port): workload.identity
        for workload in workloads
        if workload.tls_mode.clients_use_tls
        for port in workload.ports
        for place in (workload.address, workload.name)
    }
    by_age = sorted(snapshot.pods.items(), key=lambda named: (named[1].metadata.creation_timestamp, named[0]))
    named = {pod.status.pod_ip: name for name, pod in by_age if pod.status.pod_ip and not pod.spec.host_network}
    return KnownPods(identities, named)


def identified(entry: Endpoints, pods: KnownPods) -> Endpoints:
    """Return an entry of endpoints with the pod and the SPIFFE ID of each endpoint filled in; UDP has no mutual TLS."""
    pods = pods._replace(identities={}) if entry.ref.is_udp else pods
    return structs.replace(entry, ready=tuple(_identified(endpoint, pods) for endpoint in entry.ready))


def _identified(endpoint: Endpoint, pods: KnownPods) -> Endpoint:
    place, port = endpoint.address, endpoint.port
    workload = endpoint.workload or pods.named.get(place, "")
    identity = pods.identities.get((workload, port)) or pods.identities.get((place, port), "")
    if (workload, identity) == (endpoint.workload, endpoint.identity):
        return endpoint
    return structs.replace(endpoint, workload=workload, identity=identity)


def _of_family(
    slices: tuple[endpoint_slice.EndpointSlice, ...], family: str
) -> tuple[endpoint_slice.EndpointSlice, ...]:
    """Return the slices with addresses of a family, or of the other one if there is none."""
    addressed = tuple(slice_ for slice_ in slices if slice_.address_type in _FAMILIES)
    return tuple(slice_ for slice_ in addressed if slice_.address_type == family) or addressed


def _used(slices: tuple[endpoint_slice.EndpointSlice, ...], port_name: str) -> tuple[Endpoint, ...]:
    """Return the ready endpoints of a port, or else those that serve while they terminate."""
    ready: dict[tuple[str, int], Endpoint] = {}
    terminating: dict[tuple[str, int], Endpoint] = {}
    for slice_ in slices:
        numbers = [port.port for port in slice_.ports or () if (port.name or "") == port_name and port.port]
        for endpoint in slice_.endpoints or ():
            conditions = endpoint.conditions
            if conditions.ready is not False:
                places, ends = ready, False
            elif conditions.terminating and conditions.serving is not False:
                places, ends = terminating, True
            else:
                continue
            workload = _workload(slice_, endpoint)
            for address in endpoint.addresses[:1]:
                for number in numbers:
                    places[address, number] = Endpoint(
                        address=address, port=number, workload=workload, terminating=ends, hostname=endpoint.hostname
                    )
    return tuple(endpoint for _, endpoint in sorted((ready or terminating).items()))


def _unnamed(endpoint: Endpoint) -> Endpoint:
    return structs.replace(endpoint, hostname="") if endpoint.hostname else endpoint


def _workload(slice_: endpoint_slice.EndpointSlice, endpoint: endpoint_slice.SliceEndpoint) -> str:
    if endpoint.target_ref is None or endpoint.target_ref.kind != "Pod":
        return ""
    return f"{endpoint.target_ref.namespace or slice_.metadata.namespace}/{endpoint.target_ref.name}"


def external_hosts(endpoints: Iterable[Endpoints]) -> Mapping[PortRef, str]:
    """Return the Host header for requests to each Service port that leads to a DNS name outside the mesh."""
    resolved = ((entry.ref, endpoint) for entry in endpoints for endpoint in entry.ready if endpoint.resolved)
    return {
        ref: endpoint.address if endpoint.port == _DEFAULT_PORT else f"{endpoint.address}:{endpoint.port}"
        for ref, endpoint in resolved
    }


def with_hosts(mesh: Mesh, hosts: Mapping[PortRef, str]) -> Mesh:
    """Return the mesh with host rewrites for external names, where no filter sets another host."""
    if not hosts:
        return mesh
    return structs.replace(
        mesh,
        tables=tuple(_table_with_hosts(table, hosts) for table in mesh.tables),
        consumers=tuple(
            structs.replace(consumer, table=_table_with_hosts(consumer.table, hosts)) for consumer in mesh.consumers
        ),
        gateways=tuple(
            structs.replace(port, hosts=by_host(*(_with_routes(host, hosts) for host in port.hosts.values())))
            for port in mesh.gateways
        ),
    )


def _table_with_hosts(table: RouteTable, hosts: Mapping[PortRef, str]) -> RouteTable:
    return _with_routes(table, hosts) if table.protocol.is_http else table


def _with_routes(routed: R, hosts: Mapping[PortRef, str]) -> R:
    return structs.replace(routed, routes=_routes(routed.routes, hosts))


def _routes(routes: Iterable[Route], hosts: Mapping[PortRef, str]) -> tuple[Route, ...]:
    return tuple(_route(route, hosts) for route in routes)


def _route(route: Route, hosts: Mapping[PortRef, str]) -> Route:
    mirrors = tuple(structs.replace(mirror, targets=_targets(mirror.targets, hosts)) for mirror in route.mirrors)
    own = route.filters.rewrite
    targets = route.split.targets if own and own.hostname else _targets(route.split.targets, hosts)
    if (targets, mirrors) == (route.split.targets, route.mirrors):
        return route
    return structs.replace(route, split=structs.replace(route.split, targets=targets), mirrors=mirrors)


def _targets(targets: Iterable[Target], hosts: Mapping[PortRef, str]) -> tuple[Target, ...]:
    return tuple(_target(target, hosts.get(target.ref, "")) for target in targets)


def _target(target: Target, host: str) -> Target:
    rewrite = target.filters.rewrite or Rewrite()
    if not host or rewrite.hostname:
        return target
    filters: Filters = structs.replace(target.filters, rewrite=structs.replace(rewrite, hostname=host))
    return structs.replace(target, filters=filters)
