"""What must hold in every mesh, whatever the input was. A violation is a bug of the compiler, never of the user."""

from collections import Counter
from collections.abc import Iterator

from headgate.model.refs import PortRef
from headgate.model.routing import GatewayPort, Mesh, Route, Split
from headgate.model.slots import TOTAL


def check(mesh: Mesh) -> tuple[str, ...]:
    """Return what is wrong with the mesh, one sentence each; nothing when all is well."""
    known = {entry.ref for entry in mesh.endpoints}
    offered = {(frontend.service, port) for frontend in mesh.frontends for port in frontend.ports}
    wrong = [f"{table.ref} has routes and no frontend" for table in mesh.tables if table.ref not in offered]
    places = [(str(table.ref), table.routes) for table in mesh.tables]
    places += [(f"{port.gateway}:{port.port}", tuple(_gateway_routes(port))) for port in mesh.gateways]
    for place, routes in places:
        targets = [target for route in routes for target in route.split.targets]
        refs = [*(target.ref for target in targets), *(mirror.ref for route in routes for mirror in route.mirrors)]
        wrong += [f"{place} sends to {ref}, whose endpoints are not listed" for ref in refs if ref not in known]
        wrong += [f"{place} has the weight {t.weight} for {t.ref}" for t in targets if t.weight < 1]
        wrong += [f"{place} {fault}" for route in routes for fault in _slot_faults(route.split)]
    wrong += [f"{place} is listened on twice" for place, count in Counter(_bound(mesh)).items() if count > 1]
    return tuple(wrong)


def _gateway_routes(port: GatewayPort) -> Iterator[Route]:
    """Yield every route of a port, for requests and for connections."""
    for host in port.hosts:
        yield from host.routes
    if port.connections:
        yield port.connections


def _slot_faults(split: Split) -> Iterator[str]:
    """Yield how the slots of users differ from the shares of a split; a proxy would refuse, or break, them."""
    sides = split.sticky.sides if split.sticky else ()
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
