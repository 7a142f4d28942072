"""What a plan must say about requests and calls, by the model: `evaluate` and `authorization` in both worlds."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Literal, TypeAlias

from tests.differential.access_expectation import sent as sent_by
from tests.differential.access_worlds import Call
from tests.differential.lab import Objects
from tests.differential.routing_expectation import place_of, ready_in, request_of
from tests.differential.sidecar_lab import workload_of
from tests.differential.worlds import Sent

from headgate.compiler.compile import compile_mesh
from headgate.matching.requests import fits
from headgate.model.access import ANY_CALLER, source_includes
from headgate.model.authorization import authorize, port_of, protocol_at
from headgate.model.evaluate import Decision, RequestParts, decide
from headgate.model.requests import Request
from headgate.model.routing import GatewayPort, Mesh, PortRef, Route
from headgate.model.sanitizing import Downstream, sanitize
from headgate.plan.access import ANY_IDENTITY, AccessChange
from headgate.plan.traffic import RequestClass
from headgate.plan.treatment import Treatment, treatment_of
from headgate.plane.feed import snapshot_of
from headgate.settings import Settings

REFUSED: Literal["refused"] = "refused"
RouteTaken: TypeAlias = Route | Literal["refused"] | None
STRANGER = "spiffe://cluster.local/ns/none/sa/none"


def placed(value: Any) -> Any:
    """Return a value of a random world with numbers and addresses in place of placeholders."""
    if isinstance(value, dict):
        return {name: placed(part) for name, part in value.items()}
    if isinstance(value, list):
        return [placed(part) for part in value]
    if not isinstance(value, str):
        return value
    kind, _, number = value.rpartition("-")
    if kind == "member":
        return 20_000 + int(number)
    if value in {"chain", "key"}:
        return "eA=="
    return f"127.9.9.{number}" if kind == "address" else value.replace("=member-", "=2000")


def mesh_of(world: Objects, settings: Settings | None = None) -> Mesh:
    """Compile a random world."""
    return compile_mesh(snapshot_of(placed(world)), settings or Settings()).mesh


def route_of(mesh: Mesh, sent: Sent) -> RouteTaken:
    """Return the route of a request in a mesh; None for no route or no port, REFUSED if the proxy refuses the request."""
    place = place_of(mesh, sent)
    if place is None:
        return None
    decision = decide(mesh, place, request_of(sent))
    if decision.is_refused:
        return REFUSED
    return decision.route


def treatments(meshes: Sequence[Mesh], sent: Sent) -> list[Treatment | list[int]]:
    """Return the treatments of a request in some meshes; an empty list if a proxy refuses the request."""
    result: list[Treatment | list[int]] = []
    for mesh in meshes:
        route, place = route_of(mesh, sent), place_of(mesh, sent)
        if route == REFUSED:
            return []
        decision = decide(mesh, place, request_of(sent)) if place else Decision()
        if route:
            result.append(treatment_of(route, ready_in(mesh), decision.protocol))
        else:
            result.append([portion.status for portion in decision.shares])
    return result


def is_usual(sent: Sent) -> bool:
    """Return whether plans are about a request: its SNI is its host, and its headers are ASCII (docs/tasks/plan.md)."""
    is_host = not sent.server_name or sent.server_name == sent.authority.partition(":")[0].lower()
    return is_host and all(value.isascii() for _, value in sent.headers)


def consumers_of(sent: Sent, meshes: Sequence[Mesh]) -> list[str]:
    """Return the namespaces with routes of their own for the Service port of a request; "" is all other clients."""
    ref = PortRef(sent.service, sent.port)
    consumers = [consumer for mesh in meshes for consumer in mesh.consumers if sent.via != "gateway"]
    return ["", *dict.fromkeys(consumer.namespace for consumer in consumers if consumer.table.ref == ref)]


def includes(item: RequestClass, sent: Sent, meshes: Sequence[Mesh], consumer: str = "") -> bool:
    """Return whether a class of requests includes a request; `meshes` is what clients of the namespace `consumer` see."""
    entry = item.entry
    kind, name = ("Gateway", "default/edge") if sent.via == "gateway" else ("Service", sent.service)
    if (entry.kind, entry.name, entry.port, entry.consumer) != (kind, name, sent.port, consumer):
        return False
    return (item.old_route, item.new_route) == tuple(route_of(mesh, sent) for mesh in meshes)


def example_routes(item: RequestClass, meshes: Sequence[Mesh]) -> tuple[Route | None, ...]:
    """Return the routes that the example of a class takes in both meshes, sent by the clients of its entry."""
    assert item.example
    routes = []
    entry = item.entry
    for mesh in (mesh.seen_from(entry.consumer) for mesh in meshes):
        place: GatewayPort | PortRef | None = next(
            (port for port in mesh.gateways if (port.gateway, port.port) == (entry.name, entry.port)),
            PortRef(entry.name, entry.port) if entry.kind == "Service" else None,
        )
        routes.append(decide(mesh, place, item.example).route if place else None)
    return tuple(routes)


def is_allowed(mesh: Mesh, port: int, *, called: PortRef | None, identity: str, request: Request) -> bool | None:
    """Return whether the pod allows a request; None if its sidecar refuses the malformed request."""
    workload = workload_of(mesh)
    place = port_of(workload, port) if workload else None
    if workload is None or place is None:
        return False
    known = bool(identity) and workload.target_tls_mode.clients_use_tls
    protocol = protocol_at(place, called or PortRef("none/none", 0), has_identity=known)
    decision = authorize(workload, port, protocol=protocol, identity=identity if known else "", request=request)
    return None if decision.status else decision.allowed


def allowed_in(meshes: Sequence[Mesh], call: Call, identity: str) -> list[bool]:
    """Return whether each mesh allows a call; an empty list for calls about which plans say nothing."""
    called = PortRef(f"default/{call.service[0]}", call.service[1]) if call.service else None
    ports = [port_of(workload, call.port) for mesh in meshes if (workload := workload_of(mesh))]
    refs = {ref for port in ports if port for protocol in port.protocols for ref in protocol.services}
    if identity and called not in refs:
        return []
    request = sent_by(call)
    outcomes = [is_allowed(mesh, call.port, called=called, identity=identity, request=request) for mesh in meshes]
    allowed = [outcome for outcome in outcomes if outcome is not None]
    return allowed if len(allowed) == len(outcomes) else []


def names_call(change: AccessChange, call: Call, identity: str, meshes: Sequence[Mesh]) -> bool:
    """Return whether a change of access includes a call."""
    if change.port != call.port:
        return False
    named = {
        name
        for mesh in meshes
        if (workload := workload_of(mesh))
        for grant in workload.access.grants
        for name in grant.sources
    }
    if caller_class(identity, named) not in change.sources:
        return False
    certificate = f"By={change.destination};Hash={'0' * 64};URI={identity}" if identity else ""
    seen = sanitize(sent_by(call), Downstream(inbound=True, secure=bool(identity), certificate=certificate))
    return not change.is_http or fits(change.match, RequestParts(seen.request))


def caller_class(identity: str, named: Collection[str]) -> str:
    """Return how a change of access names a caller: by its identity, its namespace, or as a caller that no rule names."""
    if not identity or identity in named:
        return identity
    beginnings = (name for name in named if name != ANY_CALLER and source_includes(name, identity))
    return next(beginnings, ANY_IDENTITY)


def example_outcomes(change: AccessChange, meshes: Sequence[Mesh]) -> Iterator[list[bool | None]]:
    """Yield for each caller of a change whether the meshes allow the example."""
    assert change.example
    for source in change.sources:
        identity = STRANGER if source == ANY_IDENTITY else source.replace("*", "unnamed")
        yield [
            is_allowed(mesh, change.port, called=change.called, identity=identity, request=change.example)
            for mesh in meshes
        ]
