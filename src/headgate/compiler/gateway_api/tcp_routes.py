"""TCPRoutes to a route for connections."""

from headgate.compiler.gateway_api.destinations import Destinations
from headgate.compiler.gateway_api.rules import CompiledRoute
from headgate.compiler.gateway_api.shares import Backend, findings, place, split
from headgate.model.routing import PortRef, Route
from headgate.resources.meta import Key
from headgate.resources.routes import TCPRoute


def compile_tcp_route(places: Destinations, key: Key, item: TCPRoute) -> CompiledRoute:
    """Compile a TCPRoute: its first rule decides, for every connection looks alike."""
    field = "spec.rules[0].backendRefs"
    refs = item.spec.rules[0].backend_refs if item.spec.rules else ()
    backends = [Backend(field=f"{field}[{n}]", ref=ref, weight=ref.weight) for n, ref in enumerate(refs)]
    placed = place(places, key, backends, http=False)
    chosen = {where: places.choices(where)[-1] for _, where in placed if isinstance(where, PortRef)}
    guarded = (places.taken_for_http(key, item.ref, item.field) for item in backends)
    return CompiledRoute(
        key=key,
        created=item.metadata.creation_timestamp,
        parents=item.spec.parent_refs,
        connections=Route(split=split(places, key, placed, chosen), name="0", origin=key),
        findings=(*findings(places, key, field, placed=placed), *(found for found in guarded if found)),
    )
