"""Visibility: which Services a workload may call (D21)."""

from collections.abc import Iterable, Iterator, Mapping

from headgate.model.routing import Endpoint, Mesh, PortRef, RouteTable, Workload

AllowedSources = frozenset[str] | None
"""The identities that may call a Service; None if all identities may."""


def allowed_sources(mesh: Mesh) -> Mapping[str, AllowedSources]:
    """Return the identities that may send at least one request or connection to each Service (`namespace/name`).

    A split may be called by the allowed sources of any backend. A Service without endpoints may be called by all, so
    that callers get 503.
    """
    closed = dict(_closed(mesh.workloads))
    ready = {entry.ref: entry.ready for entry in mesh.endpoints}
    found: dict[str, AllowedSources] = {}
    for table in mesh.tables:
        more = _union(_of_route(endpoints, closed) for endpoints in _routes(table, ready))
        name = table.ref.service
        found[name] = _union((found[name], more)) if name in found else more
    return found


def _closed(workloads: Iterable[Workload]) -> Iterator[tuple[tuple[str, int], frozenset[str]]]:
    """Yield the allowed identities of each port of closed workloads, twice: by workload name and by address."""
    for item in workloads:
        if item.access.closed:
            known = frozenset(source for grant in item.access.grants for source in grant.sources)
            yield from (((place, port.port), known) for port in item.ports for place in (item.name, item.address))


def _routes(table: RouteTable, ready: Mapping[PortRef, tuple[Endpoint, ...]]) -> Iterator[list[Endpoint]]:
    """Yield the endpoints of each route; one empty list if there are no routes."""
    if not table.routes:
        yield []
    for route in table.routes:
        yield [endpoint for target in route.split.targets for endpoint in ready.get(target.ref, ())]


def _of_route(endpoints: list[Endpoint], closed: Mapping[tuple[str, int], frozenset[str]]) -> AllowedSources:
    if not endpoints:
        return None
    return _union(closed.get((item.workload, item.port), closed.get((item.address, item.port))) for item in endpoints)


def _union(several: Iterable[AllowedSources]) -> AllowedSources:
    found: set[str] = set()
    for item in several:
        if item is None:
            return None
        found |= item
    return frozenset(found)
