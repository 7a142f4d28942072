"""Reads requests to the metrics API: path, window and selectors."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from headgate.api.attributes import Attributes
from headgate.api.metrics.groups import EDGES, SPLITS, MetricsGroup, is_cluster_scoped
from headgate.api.status import ApiError, no_such_path
from headgate.durations import seconds
from headgate.resources.pod_owners import Ref
from headgate.telemetry.answers.answers import Grouping

DEFAULT_WINDOW_S = 30.0
_SHORTEST_WINDOW_S, _LONGEST_WINDOW_S = 1.0, 24 * 3600.0  # no window is exact to less than a second


class Question(NamedTuple):
    """What a request asks for: a resource, all of a kind if `ref` has no name, or the edges of the resource."""

    group: MetricsGroup
    plural: str
    ref: Ref
    edges: bool = False

    @property
    def attributes(self) -> Attributes:
        """The attributes for RBAC (R99, R100). A Namespace is in itself, as everywhere in Kubernetes."""
        return Attributes(
            group=self.group.name,
            version=self.group.version,
            resource=self.plural,
            subresource=EDGES if self.edges else "",
            verb="get" if self.ref.name else "list",
            namespace=self.ref.name if self.plural == "namespaces" else self.ref.namespace,
            name=self.ref.name,
        )


def question(group: MetricsGroup, parts: Sequence[str]) -> Question:
    """Read what follows the version: `[namespaces/NS/]RESOURCE[/NAME[/edges]]`. Raises ApiError 404.

    There is no path of a single edge (R92).
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
        raise ApiError(404, f"{group.api_version} has no metrics of {plural!r}; it has those of {served}")
    return Question(group, plural, Ref(kind, namespace, rest[0] if rest else ""), edges=len(rest) == 2)


def window(query: Mapping[str, str]) -> float:
    """Return the wanted window in seconds, one at least: `?t=1m30s`; 30 when it is absent or none (R85)."""
    try:
        length = seconds(query.get("t", ""))
    except ValueError:
        return DEFAULT_WINDOW_S
    return max(min(length, _LONGEST_WINDOW_S), _SHORTEST_WINDOW_S) if length else DEFAULT_WINDOW_S


def grouping(query: Mapping[str, str]) -> Grouping:
    """Read `?by=namespace` and `?by=kind`: edges whose other end has only that (R88). Raises ApiError 400."""
    by = query.get("by", "")
    try:
        found: Grouping = msgspec.convert(by, Grouping)
    except msgspec.ValidationError:
        raise ApiError(
            400, f"edges are grouped by=namespace or by=kind, not by={by}; leave it out for each edge"
        ) from None
    return found
