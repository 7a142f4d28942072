"""The Gateway API's TCPRoutes. SMI's TCPRoute is another kind."""

from collections.abc import Iterator

from headgate.errors import Cause
from headgate.kinds import GATEWAY, names_of
from headgate.resources.columns import AGE, NAME
from headgate.resources.gateway_api.route_checks import MOST_MATCHES, backend_port_causes, items, parent_causes
from headgate.resources.gateway_api.routes import PARENTS, STATE, BackendReference, ParentReference
from headgate.resources.kind import Kind, ReadyBy
from headgate.resources.meta import Input, Object, Resource, part, rows


class ConnectionBackend(BackendReference, frozen=True, kw_only=True):
    """A backend of TCP connections and its relative weight."""

    weight: int = 1


class TCPRouteRule(Input, frozen=True, kw_only=True):
    """The backends of TCP connections."""

    name: str = ""
    backend_refs: tuple[ConnectionBackend, ...] = ()


class TCPRouteSpec(Input, frozen=True, kw_only=True):
    """`spec` of a TCPRoute: its parents and its rule."""

    parent_refs: tuple[ParentReference, ...] = ()
    use_default_gateways: str = ""
    rules: tuple[TCPRouteRule, ...] = ()


class GatewayTCPRoute(Resource, frozen=True, kw_only=True):
    """The Gateway API's TCPRoute: it sends TCP connections to backends. SMI's TCPRoute is another kind."""

    spec: TCPRouteSpec = TCPRouteSpec()


def tcp_route_causes(obj: Object) -> Iterator[Cause]:
    """Yield the mistakes in the fields that all kinds of routes have. A TCPRoute has no other fields to check."""
    spec = part(obj, "spec")
    yield from parent_causes(spec.get("parentRefs"))
    names: dict[str, str] = {}
    total = 0
    for where, rule in items(spec, "rules", "spec"):
        name = rule.get("name")
        if isinstance(name, str) and name and names.setdefault(name, where) != where:
            yield Cause(f"{where}.name", f"{name!r} is the name of {names[name]} too; names must differ")
        for place, backend in items(rule, "backendRefs", where):
            yield from backend_port_causes(backend, place)
        total += sum(1 for _ in rows(rule.get("matches")))
    if total > MOST_MATCHES:
        yield Cause("spec.rules", f"have {total} matches together; at most {MOST_MATCHES} are allowed")


KIND = Kind(
    names_of("TCPRoute", GATEWAY),
    versions=("v1", "v1alpha2"),
    status=True,
    shape=GatewayTCPRoute,
    checks=tcp_route_causes,
    columns=(NAME, *STATE, AGE, PARENTS),
    recorded=True,
    listeners=("TCP",),
    ready_by=ReadyBy.PARENTS,
)
