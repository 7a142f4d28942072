"""Check the invariants of a mesh. They hold for every input, so a violation is a bug in the compiler."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from headgate.model.access import Access
from headgate.model.hash_slots import TOTAL
from headgate.model.identities import parse_id
from headgate.model.mutual_tls import TlsMode
from headgate.model.routing import GatewayPort, Mesh, PortRef, Protocol, Route, Split, Workload


def check(mesh: Mesh) -> tuple[str, ...]:
    """Return the violated invariants of a mesh, one sentence each."""
    with_entry = {entry.ref for entry in mesh.endpoints}
    dead = {entry.ref for entry in mesh.endpoints if not entry.ready}
    offered = {PortRef(frontend.service, port) for frontend in mesh.frontends for port in frontend.ports}
    wrong = [f"{table.ref} has routes, but no frontend" for table in mesh.all_tables if table.ref not in offered]
    tables = [(str(table.ref), table.all_routes) for table in mesh.all_tables]
    tables += [(f"{port.gateway}:{port.port}", tuple(_gateway_routes(port))) for port in mesh.gateways]
    for where, routes in tables:
        targets = [
            target
            for route in routes
            for target in route.split.targets
            if target.weight or not (route.session or target.session)
        ]
        targets += [target for route in routes for mirror in route.mirrors for target in mirror.targets]
        refs = [ref for route in routes for ref in route.callees]
        wrong += [
            f"{where} sends to {ref}, which has no entry in the endpoints" for ref in refs if ref not in with_entry
        ]
        wrong += [f"{where} has the weight {t.weight} for {t.ref}" for t in targets if t.weight < 1]
        wrong += [f"{where} {fault}" for route in routes for fault in _slot_faults(route.split)]
        wrong += [f"{where} {fault}" for fault in _group_faults(routes)]
        shared = [target.ref for route in routes for target in route.split.targets if route.split.targets[1:]]
        wrong += [f"{where} gives a share to {ref}, which has no endpoint" for ref in shared if ref in dead]
    wrong += [f"{where} has two listeners" for where, count in Counter(_bound(mesh)).items() if count > 1]
    return (*wrong, *_workload_faults(mesh))


def _workload_faults(mesh: Mesh) -> Iterator[str]:
    """Yield the violations in workloads, which could route calls to the wrong workload or allow too many calls."""
    for what in ("name", "address"):
        seen = Counter(getattr(workload, what) for workload in mesh.workloads)
        yield from (f"two workloads have the {what} {value}" for value, count in seen.items() if count > 1)
    for workload in mesh.workloads:
        faults = (
            *_identity_faults(workload, mesh.trust_domain),
            *_port_faults(workload),
            *_access_faults(workload.access),
        )
        yield from (f"workload {workload.name} {fault}" for fault in faults)
    called = {workload.identity for workload in mesh.workloads if workload.tls_mode.clients_use_tls}
    required = {
        endpoint.identity: entry.ref for entry in mesh.endpoints for endpoint in entry.ready if endpoint.identity
    }
    yield from (
        f"{ref} requires {identity}, which no workload has"
        for identity, ref in required.items()
        if identity not in called
    )


def _identity_faults(workload: Workload, trust_domain: str) -> Iterator[str]:
    account = parse_id(workload.identity)
    if account is None or account.domain != trust_domain:
        yield f"has the identity {workload.identity!r}, which is not in the trust domain {trust_domain}"
    if workload.target_tls_mode is TlsMode.READY:
        yield "has the target TLS mode READY, which is a transition"
    if workload.access.grants and not workload.target_tls_mode.accepts_tls:
        yield "has grants, but its target TLS mode accepts no mutual TLS"


def _port_faults(workload: Workload) -> Iterator[str]:
    numbers, applications = [port.port for port in workload.ports], [port.application for port in workload.ports]
    if len(set(numbers)) < len(numbers):
        yield "has a port twice"
    if workload.capture == "transparent" and numbers != applications:
        yield "is transparent, but its process listens on another port"
    if workload.capture == "explicit" and (
        len(set(applications)) < len(applications) or not set(applications).isdisjoint(numbers)
    ):
        yield "has two listeners on one port"
    for port in workload.ports:
        protocols = [port_protocol.protocol for port_protocol in port.protocols]
        if not protocols or len(set(protocols)) < len(protocols):
            yield f"has no protocol, or a repeated one, on port {port.port}"


def _access_faults(access: Access) -> Iterator[str]:
    if access.grants and not (access.closed or access.audited):
        yield "is open, but has grants"
    if access.closed and access.audited:
        yield "is closed, but audited"
    for grant in access.grants:
        if not grant.sources:
            yield f"has a grant without sources, by {grant.origin}"
        if not (grant.requests or grant.connections):
            yield f"has a grant without rules, by {grant.origin}"


def _gateway_routes(port: GatewayPort) -> Iterator[Route]:
    """Yield every route of a port, for requests and for connections."""
    for host in port.hosts.values():
        yield from host.routes
    yield from port.connection_routes


def _group_faults(routes: Sequence[Route]) -> Iterator[str]:
    """Yield a violation for each route with several path conditions, unless the next route belongs to the same rule.

    A proxy can match such a route only after the next route has written the path to the filter state.
    """
    for route, after in zip_longest(routes, routes[1:]):
        if route.match.other_paths and (after is None or (route.origin, route.name) != (after.origin, after.name)):
            yield f"has several conditions on the path, but no fallback route of {route.origin} ({route.name}) after it"


def _slot_faults(split: Split) -> Iterator[str]:
    """Yield the violations in a sticky split whose hash slots differ from its weights; Envoy would reject it."""
    sides = split.sticky.slot_ranges if split.sticky else ()
    if not sides:
        return
    slots: Counter[PortRef | None] = Counter()
    for side in sides:
        slots[side.ref] += side.slots
    failing = slots.pop(None, 0)
    if sum(side.slots for side in sides) != TOTAL:
        yield f"has {sum(side.slots for side in sides)} slots, not {TOTAL}"
    if slots != {target.ref: target.weight for target in split.targets}:
        yield "has slots that differ from the weights of its targets"
    if failing != sum(share.weight for share in split.broken):
        yield "has slots that differ from the weights of its broken shares"


def _bound(mesh: Mesh) -> Iterator[str]:
    """Yield every address and port with a listener."""
    for front in mesh.frontends:
        if front.address:
            yield from (f"{front.address}:{port}" for port in front.ports)
    yield from (
        f"{port.address}:{port.port}{'/UDP' if port.protocol is Protocol.UDP else ''}" for port in mesh.gateways
    )
