"""Which Services a workload may call, as far as that is known before the call: enough to leave out the others (D21).

It is not what protects them: that is done by the proxies of the pods that are called, request by request.
"""

from collections.abc import Iterable, Iterator, Mapping

from headgate.model.routing import Endpoint, Mesh, PortRef, RouteTable, Workload

Callers = frozenset[str] | None
"""Identities; none are all."""


def callers(mesh: Mesh) -> Mapping[str, Callers]:
    """Return the identities that may call each Service (`namespace/name`) for one request or connection at least.

    A split may be called by the callers of any of its backends. A Service without endpoints may be called by all, so that
    callers see the 503.
    """
    closed = dict(_closed(mesh.workloads))
    ready = {entry.ref: entry.ready for entry in mesh.endpoints}
    found: dict[str, Callers] = {}
    for table in mesh.tables:
        more = _union(_of_route(endpoints, closed) for endpoints in _routes(table, ready))
        name = table.ref.service
        found[name] = _union((found[name], more)) if name in found else more
    return found


def _closed(workloads: Iterable[Workload]) -> Iterator[tuple[tuple[str, int], frozenset[str]]]:
    """Yield the identities that a port of a closed workload lets in, by the workload's name and by its address."""
    for item in workloads:
        if item.access.closed:
            known = frozenset(source for grant in item.access.grants for source in grant.sources)
            yield from (((place, port.port), known) for port in item.ports for place in (item.name, item.address))


def _routes(table: RouteTable, ready: Mapping[PortRef, tuple[Endpoint, ...]]) -> Iterator[list[Endpoint]]:
    """Yield the endpoints that each route leads to; without routes there are none."""
    if not table.routes:
        yield []
    for route in table.routes:
        yield [endpoint for target in route.split.targets for endpoint in ready.get(target.ref, ())]


def _of_route(endpoints: list[Endpoint], closed: Mapping[tuple[str, int], frozenset[str]]) -> Callers:
    if not endpoints:
        return None
    return _union(closed.get((item.workload, item.port), closed.get((item.address, item.port))) for item in endpoints)


def _union(several: Iterable[Callers]) -> Callers:
    found: set[str] = set()
    for item in several:
        if item is None:
            return None
        found |= item
    return frozenset(found)
