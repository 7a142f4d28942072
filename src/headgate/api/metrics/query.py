"""The parser of paths and query parameters of requests to the metrics API."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from headgate.api.metrics.groups import EDGES, SPLITS, MetricsGroup, is_cluster_scoped
from headgate.api.resource_attributes import ResourceAttributes
from headgate.api.responses import query_flag
from headgate.api.status import ApiError, no_such_path
from headgate.durations import seconds
from headgate.resources.meta import parsed
from headgate.resources.pod_owners import Ref
from headgate.telemetry.answers.peer_groups import Grouping

DEFAULT_WINDOW_S = 30.0
_SHORTEST_WINDOW_S, _LONGEST_WINDOW_S = 1.0, 24 * 3600.0  # windows are accurate to about one second
_END_OF_TIMES = 253402300800.0  # the year 10000 in UTC, which RFC 3339 can't write


class MetricsPath(NamedTuple):
    """A parsed path: one resource, all resources of a kind when `ref` has no name, or the edges of one resource."""

    group: MetricsGroup
    plural: str
    ref: Ref
    edges: bool = False

    @property
    def attributes(self) -> ResourceAttributes:
        """The attributes for RBAC (R99, R100). As in Kubernetes, a Namespace belongs to the namespace of the same name."""
        return ResourceAttributes(
            group=self.group.name,
            version=self.group.version,
            resource=self.plural,
            subresource=EDGES if self.edges else "",
            verb="get" if self.ref.name else "list",
            namespace=self.ref.name if self.plural == "namespaces" else self.ref.namespace,
            name=self.ref.name,
        )


def parse_path(group: MetricsGroup, parts: Sequence[str]) -> MetricsPath:
    """Parse the path after the version: `[namespaces/NS/]RESOURCE[/NAME[/edges]]`. Raises ApiError 404.

    A single edge has no path (R92).
    """
    inside = len(parts) > 2 and parts[0] == "namespaces" and parts[2] != EDGES
    namespace, (plural, *rest) = (parts[1], parts[2:]) if inside else ("", parts)
    cluster_scoped = is_cluster_scoped(plural)
    if not all(parts) or (cluster_scoped if inside else rest and not cluster_scoped):
        raise no_such_path()
    if len(rest) > 2 or (len(rest) == 2 and (rest[1] != EDGES or plural == SPLITS)):
        raise no_such_path()
    kind = group.kinds.get(plural)
    if kind is None:
        served = ", ".join(sorted(group.kinds))
        raise ApiError(404, f"{group.api_version} has no metrics of {plural!r}; it serves {served}")
    return MetricsPath(group, plural, Ref(kind, namespace, rest[0] if rest else ""), edges=len(rest) == 2)


def window(query: Mapping[str, str]) -> float:
    """Return the window of `?t=1m30s` in seconds, from 1 second to 1 day; 30 when `t` is absent or not a duration (R85)."""
    try:
        length = seconds(query.get("t", ""))
    except ValueError:
        return DEFAULT_WINDOW_S
    return max(min(length, _LONGEST_WINDOW_S), _SHORTEST_WINDOW_S) if length else DEFAULT_WINDOW_S


def window_end(query: Mapping[str, str]) -> float | None:
    """Return the end of the window from `?end=2026-11-23T05:10:00Z`, in seconds since the epoch; None for now. Raises ApiError 400."""
    return time_in(query, "end")


def time_in(query: Mapping[str, str], field: str) -> float | None:
    """Return a time of a query in seconds since the epoch, of the years 1970 to 9999; None if it is absent. Raises ApiError 400."""
    if not (text := query.get(field, "")):
        return None
    moment = parsed(text.replace(" ", "+"), datetime.fromisoformat)  # a query has the + of +01:00 as a blank
    if moment is None or moment.tzinfo is None or not 0 <= moment.timestamp() < _END_OF_TIMES:
        raise ApiError(
            400,
            f"{field}: Invalid value: {text[:100]!r}: must be a time as in RFC 3339 since 1970, such as 2026-11-23T05:10:00Z",
        )
    return moment.timestamp()


def has_uncertainty(query: Mapping[str, str]) -> bool:
    """Return whether the query requests standard deviations and confidence intervals: `?uncertainty=true`."""
    return query_flag(query, "uncertainty")


def grouping(query: Mapping[str, str]) -> Grouping:
    """Return the grouping of edges by peer from `?by=namespace` or `?by=kind` (R88). Raises ApiError 400."""
    by = query.get("by", "")
    try:
        chosen: Grouping = msgspec.convert(by, Grouping)
    except msgspec.ValidationError:
        raise ApiError(
            400, f'by: Unsupported value: "{by}": supported values: "namespace", "kind"; omit it to get every edge'
        ) from None
    return chosen
