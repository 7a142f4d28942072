"""What a plan must say about requests and calls, by the model: `evaluate` and `authorization` in both worlds."""

from tests.differential.access_expectation import sent as sent_by
from tests.differential.routing_expectation import place_of, request_of
from tests.differential.sidecar_lab import POD

from headgate.compiler.compile import compile_mesh
from headgate.model.authorization import authorize, port_of, protocol_at
from headgate.model.evaluate import RequestParts, decide
from headgate.model.routing import PortRef
from headgate.model.sanitizing import Downstream, sanitize
from headgate.plan.access import ANY_IDENTITY, PLAINTEXT
from headgate.plan.requests import fits
from headgate.plan.treatment import treatment_of
from headgate.plane.feed import snapshot_of
from headgate.settings import Settings

REFUSED = "refused"
STRANGER = "spiffe://cluster.local/ns/none/sa/none"


def placed(value):
    """Return a value of a random world with numbers and addresses in place of placeholders."""
    if isinstance(value, dict):
        return {name: placed(item) for name, item in value.items()}
    if isinstance(value, list):
        return [placed(item) for item in value]
    if not isinstance(value, str):
        return value
    kind, _, number = value.rpartition("-")
    if kind == "member":
        return 20_000 + int(number)
    if value in {"chain", "key"}:
        return "eA=="
    return f"127.9.9.{number}" if kind == "address" else value.replace("=member-", "=2000")


def mesh_of(world, settings=None):
    return compile_mesh(snapshot_of(placed(world)), settings or Settings()).mesh


def route_of(mesh, sent):
    """Return the route of a request in a mesh; None for no route or no port, REFUSED if the proxy refuses the request."""
    place = place_of(mesh, sent)
    if place is None:
        return None
    decision = decide(mesh, place, request_of(sent))
    if decision.is_refused or (decision.sanitized and decision.sanitized.refused_upgrade):
        return REFUSED
    return decision.route


def treatments(meshes, sent):
    """Return the treatments of a request in some meshes; an empty list if a proxy refuses the request."""
    found = []
    for mesh in meshes:
        route, place = route_of(mesh, sent), place_of(mesh, sent)
        if route == REFUSED:
            return []
        ready = {entry.ref: entry.ready for entry in mesh.endpoints}
        if route:
            found.append(treatment_of(route, ready, decide(mesh, place, request_of(sent)).protocol))
        else:
            answers = decide(mesh, place, request_of(sent)).shares if place else ()
            found.append([item.status for item in answers])
    return found


def is_usual(sent):
    """Say whether plans are about a request: they assume that the SNI is the host of the request."""
    return not sent.server_name or sent.server_name == sent.authority.partition(":")[0].lower()


def includes(item, sent, meshes):
    """Say whether a class of requests includes a request."""
    entry = item.entry
    kind, name = ("Gateway", "default/edge") if sent.via == "gateway" else ("Service", sent.service)
    if (entry.kind, entry.name, entry.port) != (kind, name, sent.port):
        return False
    return (item.old_route, item.new_route) == tuple(route_of(mesh, sent) for mesh in meshes)


def example_routes(item, meshes):
    """Return the routes that the example of a class takes in both meshes."""
    found = []
    for mesh in meshes:
        entry = item.entry
        place = next(
            (port for port in mesh.gateways if (port.gateway, port.port) == (entry.name, entry.port)),
            PortRef(entry.name, entry.port) if entry.kind == "Service" else None,
        )
        found.append(decide(mesh, place, item.example).route if place else None)
    return tuple(found)


def workload_of(mesh):
    return next((item for item in mesh.workloads if item.name == POD), None)


def is_allowed(mesh, port, *, called, identity, request):
    """Say whether the pod allows a request; None if its sidecar refuses the malformed request."""
    workload = workload_of(mesh)
    place = port_of(workload, port) if workload else None
    if place is None:
        return False
    known = bool(identity) and workload.target_tls_mode.clients_use_tls
    protocol = protocol_at(place, called or PortRef("none/none", 0), known=known)
    found = authorize(workload, port, protocol=protocol, identity=identity if known else "", request=request)
    return None if found.status else found.allowed


def allowed_in(meshes, call, identity):
    """Return whether each mesh allows a call; an empty list for calls about which plans say nothing."""
    called = PortRef(f"default/{call.service[0]}", call.service[1]) if call.service else None
    ports = [port_of(workload, call.port) for mesh in meshes if (workload := workload_of(mesh))]
    refs = {ref for port in ports if port for item in port.protocols for ref in item.services}
    if identity and called not in refs:
        return []
    request = sent_by(call)
    found = [is_allowed(mesh, call.port, called=called, identity=identity, request=request) for mesh in meshes]
    return [] if None in found else found


def names_call(change, call, identity, meshes):
    """Say whether a change of access includes a call."""
    if change.port != call.port:
        return False
    named = {
        name
        for mesh in meshes
        if (found := workload_of(mesh))
        for grant in found.access.grants
        for name in grant.sources
    }
    caller = identity or PLAINTEXT
    if caller not in change.sources and (not identity or identity in named or ANY_IDENTITY not in change.sources):
        return False
    certificate = f"By={change.destination};Hash={'0' * 64};URI={identity}" if identity else ""
    seen = sanitize(sent_by(call), Downstream(secure=bool(identity), certificate=certificate))
    return not change.is_http or fits(change.match, RequestParts(seen.request))


def example_outcomes(change, meshes):
    """Yield for each caller of a change whether the meshes allow the example."""
    for source in change.sources:
        identity = STRANGER if source == ANY_IDENTITY else source
        asked = {"called": change.called, "identity": identity, "request": change.example}
        yield [is_allowed(mesh, change.port, **asked) for mesh in meshes]
