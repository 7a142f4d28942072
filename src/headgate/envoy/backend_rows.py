"""Rows of a route table for backends with a path rewrite or a redirect of their own, which Envoy has for a whole route only.

Each backend has a row. All rows of a request see the same random number, and a row takes the numbers below the sum of the
shares up to its own. So each request gets one backend, and shares are exact to a millionth.
"""

from collections.abc import Iterator

from msgspec import structs

from headgate.envoy.planned_routes import FINEST, ClusterWeight, PlannedRoute
from headgate.envoy.route_filters import merge


def rows(planned: PlannedRoute) -> Iterator[PlannedRoute]:
    """Yield a row for each backend if one rewrites the path or redirects requests, else the planned route."""
    if not any(share.redirect or share.rewrites_path for share in planned.clusters):
        yield planned
        return
    total, passed = sum(share.weight for share in planned.clusters), 0
    for share in planned.clusters:
        passed += share.weight
        below = (2 * passed * FINEST + total) // (2 * total)
        yield structs.replace(_row(planned, share), below=below)


def _row(planned: PlannedRoute, share: ClusterWeight) -> PlannedRoute:
    if share.redirect is None:
        return structs.replace(planned, clusters=(share,))
    filters = merge(planned.filters, share.filters)
    return structs.replace(planned, clusters=(), redirect=share.redirect, filters=filters, mirrors=(), retry=None)
