"""What must hold in every mesh, whatever the input was. A violation is a bug of the compiler, never of the user."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from headgate.model.hash_slots import TOTAL
from headgate.model.identities import parse_id
from headgate.model.routing import Access, GatewayPort, Mesh, PortRef, Route, Split, TlsMode, Workload


def check(mesh: Mesh) -> tuple[str, ...]:
    """Return what is wrong with the mesh, one sentence each; nothing when all is well."""
    known = {entry.ref for entry in mesh.endpoints}
    dead = {entry.ref for entry in mesh.endpoints if not entry.ready}
    offered = {(frontend.service, port) for frontend in mesh.frontends for port in frontend.ports}
    wrong = [f"{table.ref} has routes and no frontend" for table in mesh.tables if table.ref not in offered]
    places = [(str(table.ref), table.routes) for table in mesh.tables]
    places += [(f"{port.gateway}:{port.port}", tuple(_gateway_routes(port))) for port in mesh.gateways]
    for place, routes in places:
        targets = [target for route in routes for target in route.split.targets]
        targets += [target for route in routes for mirror in route.mirrors for target in mirror.targets]
        refs = [target.ref for target in targets]
        wrong += [f"{place} sends to {ref}, whose endpoints are not listed" for ref in refs if ref not in known]
        wrong += [f"{place} has the weight {t.weight} for {t.ref}" for t in targets if t.weight < 1]
        wrong += [f"{place} {fault}" for route in routes for fault in _slot_faults(route.split)]
        wrong += [f"{place} {fault}" for fault in _group_faults(routes)]
        shared = [target.ref for route in routes for target in route.split.targets if route.split.targets[1:]]
        wrong += [
            f"{place} gives a share to {ref}, which has no endpoint: others would get it"
            for ref in shared
            if ref in dead
        ]
    wrong += [f"{place} is listened on twice" for place, count in Counter(_bound(mesh)).items() if count > 1]
    return (*wrong, *_workload_faults(mesh))


def _workload_faults(mesh: Mesh) -> Iterator[str]:
    """Yield what is wrong with workloads, one by one and together; callers could reach the wrong one, or too many."""
    for what in ("name", "address"):
        seen = Counter(getattr(item, what) for item in mesh.workloads)
        yield from (f"two workloads have the {what} {value}" for value, count in seen.items() if count > 1)
    for item in mesh.workloads:
        faults = (*_who(item, mesh.trust_domain), *_port_faults(item), *_access_faults(item.access))
        yield from (f"workload {item.name} {fault}" for fault in faults)
    called = {item.identity for item in mesh.workloads if item.tls_mode.clients_use_tls}
    asked = {place.identity: entry.ref for entry in mesh.endpoints for place in entry.ready if place.identity}
    yield from (
        f"{ref} is to prove {who}, and no workload there can" for who, ref in asked.items() if who not in called
    )


def _who(item: Workload, trust_domain: str) -> Iterator[str]:
    account = parse_id(item.identity)
    if account is None or account.domain != trust_domain:
        yield f"has the identity {item.identity!r}, which is none of {trust_domain}"
    if item.target_tls_mode is TlsMode.READY:
        yield "is to stay between plaintext and TLS"
    if item.access.grants and not item.target_tls_mode.accepts_tls:
        yield "is to know its callers, and takes no TLS"


def _port_faults(item: Workload) -> Iterator[str]:
    numbers, behind = [port.port for port in item.ports], [port.application for port in item.ports]
    if len(set(numbers)) < len(numbers):
        yield "has a port twice"
    if item.capture == "transparent" and numbers != behind:
        yield "is transparent, and its process listens elsewhere"
    if item.capture == "explicit" and (len(set(behind)) < len(behind) or not set(behind).isdisjoint(numbers)):
        yield "has a process that listens where something else does"
    for port in item.ports:
        protocols = [spoken.protocol for spoken in port.protocols]
        if not protocols or len(set(protocols)) < len(protocols):
            yield f"has no protocol, or one twice, on port {port.port}"


def _access_faults(access: Access) -> Iterator[str]:
    if access.grants and not access.closed:
        yield "is open, and has grants all the same"
    for grant in access.grants:
        if not grant.sources:
            yield f"has a grant without sources, by {grant.origin}"
        if not (grant.requests or grant.connections):
            yield f"lets callers do nothing, by {grant.origin}"


def _gateway_routes(port: GatewayPort) -> Iterator[Route]:
    """Yield every route of a port, for requests and for connections."""
    for host in port.hosts:
        yield from host.routes
    if port.connections:
        yield port.connections


def _group_faults(routes: Sequence[Route]) -> Iterator[str]:
    """Yield routes whose requests a proxy could not tell apart: it looks at the path once more on the rule's next route."""
    for route, after in zip_longest(routes, routes[1:]):
        if route.match.other_paths and (after is None or (route.origin, route.name) != (after.origin, after.name)):
            yield f"has several conditions on the path, and no other route of {route.origin} ({route.name}) after it"


def _slot_faults(split: Split) -> Iterator[str]:
    """Yield how the slots of users differ from the shares of a split; a proxy would refuse, or break, them."""
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
        yield "has slots that are not the weights of its targets"
    if failing != sum(share.weight for share in split.broken):
        yield "has slots that are not the weight of what fails"


def _bound(mesh: Mesh) -> Iterator[str]:
    """Yield every address and port that is listened on."""
    for front in mesh.frontends:
        if front.address:
            yield from (f"{front.address}:{port}" for port in front.ports)
    yield from (f"{port.address}:{port.port}" for port in mesh.gateways)
