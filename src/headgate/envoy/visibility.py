"""Visibility: which Services a workload may call (D21)."""

from collections.abc import Iterable, Iterator, Mapping

from headgate.model.access import ANY_CALLER
from headgate.model.routing import Endpoint, Mesh, PortRef, RouteTable, Workload

AllowedSources = frozenset[str] | None
"""The sources (`identities.`) that may call a Service; None if all identities may."""


def allowed_sources(mesh: Mesh) -> Mapping[str, AllowedSources]:
    """Return the sources that may send at least one request or connection to each Service (`namespace/name`).

    A split may be called by the allowed sources of any backend. A Service without endpoints may be called by all, so
    that callers get 503.
    """
    closed = dict(_closed(mesh.workloads))
    ready = {entry.ref: entry.ready for entry in mesh.endpoints}
    sources: dict[str, AllowedSources] = {}
    for table in mesh.tables:
        more = _union(_of_route(endpoints, closed) for endpoints in _routes(table, ready))
        name = table.ref.service
        sources[name] = _union((sources[name], more)) if name in sources else more
    return sources


def _closed(workloads: Iterable[Workload]) -> Iterator[tuple[tuple[str, int], AllowedSources]]:
    """Yield the sources that each port of a closed workload allows, twice: by workload name and by address."""
    for workload in workloads:
        if workload.access.closed:
            allowed = frozenset(source for grant in workload.access.grants for source in grant.sources)
            sources = None if ANY_CALLER in allowed else allowed
            yield from (
                ((place, port.port), sources) for port in workload.ports for place in (workload.name, workload.address)
            )


def _routes(table: RouteTable, ready: Mapping[PortRef, tuple[Endpoint, ...]]) -> Iterator[list[Endpoint]]:
    """Yield the endpoints of each route; one empty list if there are no routes."""
    if not table.all_routes:
        yield []
    for route in table.all_routes:
        yield [endpoint for target in route.split.targets for endpoint in ready.get(target.ref, ())]


def _of_route(endpoints: list[Endpoint], closed: Mapping[tuple[str, int], AllowedSources]) -> AllowedSources:
    if not endpoints:
        return None
    return _union(
        closed.get((endpoint.workload, endpoint.port), closed.get((endpoint.address, endpoint.port)))
        for endpoint in endpoints
    )


def _union(several: Iterable[AllowedSources]) -> AllowedSources:
    allowed: set[str] = set()
    for sources in several:
        if sources is None:
            return None
        allowed |= sources
    return frozenset(allowed)
