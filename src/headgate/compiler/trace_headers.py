"""Find matches and edits of headers that proxies themselves write while traces are on (docs/tasks/traces.md)."""

from collections.abc import Iterator
from itertools import chain

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.compiler.snapshot import Snapshot
from headgate.compiler.unreachable_routes import route_field
from headgate.model.requests import HeaderEdit
from headgate.model.routing import Mesh, Route

_MATCHED = {
    "x-request-id": "routes see an ID that the proxy has chosen, not the client's",
    "x-client-trace-id": "routes do not see the client's value",
    "traceparent": "each proxy writes its own span, also for requests that the client sent without it",
}
_EDITED = dict.fromkeys(("traceparent", "tracestate"), "the proxy writes it after all filters")


def findings(snapshot: Snapshot, mesh: Mesh) -> tuple[Finding, ...]:
    """Return a finding for each match and edit of such a header in users' routes and splits, each once."""
    if not mesh.tracing:
        return ()
    hosts = (host.routes for port in mesh.gateways for host in port.hosts.values())
    routes = chain.from_iterable(chain((table.routes for table in mesh.all_tables), hosts))
    return tuple(dict.fromkeys(chain.from_iterable(_of_route(snapshot, route) for route in routes if route.origin)))


def _of_route(snapshot: Snapshot, route: Route) -> Iterator[Finding]:
    assert route.origin is not None  # noqa: S101  # findings() skips routes without an object
    matched = (
        (header.name, "matches", _MATCHED[header.name]) for header in route.match.headers if header.name in _MATCHED
    )
    edited = ((name, "changes", _EDITED[name]) for name in _edited(route) if name in _EDITED)
    for name, verb, effect in (*matched, *edited):
        message = f"the rule {verb} the header {name}, but while traces are on, {effect}; use another header"
        yield Finding(route.origin, Reason.TRACE_HEADER, route_field(snapshot, route), message)


def _edited(route: Route) -> Iterator[str]:
    """Yield the names of the request headers that filters of a route and of its backends change."""
    for filters in (route.filters, *(target.filters for target in route.split.targets)):
        edit = filters.request or HeaderEdit()
        yield from (name.lower() for name, _ in (*edit.set, *edit.add))
        yield from (name.lower() for name in edit.remove)
