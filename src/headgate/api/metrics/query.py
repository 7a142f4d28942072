"""Reads requests to the metrics API: path, window and selectors."""

from collections.abc import Mapping
from typing import NamedTuple

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


def question(group: MetricsGroup, parts: list[str]) -> Question:
    """Read what follows the version. There is no path of a single edge (R92). Raises ApiError 404."""
    if not all(parts):
        raise no_such_path()
    match parts:
        case ["namespaces", name, "edges"]:
            return _asked(group, "namespaces", Ref("", "", name), edges=True)
        case ["namespaces", namespace, plural, *rest] if not is_cluster_scoped(plural):
            return _named(group, plural, namespace, rest)
        case [plural, *rest] if is_cluster_scoped(plural) or not rest:
            return _named(group, plural, "", rest)
        case _:
            raise no_such_path()


def _named(group: MetricsGroup, plural: str, namespace: str, rest: list[str]) -> Question:
    match rest:
        case []:
            return _asked(group, plural, Ref("", namespace))
        case [name]:
            return _asked(group, plural, Ref("", namespace, name))
        case [name, "edges"] if plural != SPLITS:
            return _asked(group, plural, Ref("", namespace, name), edges=True)
        case _:
            raise no_such_path()


def _asked(group: MetricsGroup, plural: str, ref: Ref, *, edges: bool = False) -> Question:
    kind = group.kinds.get(plural)
    if kind is None:
        served = ", ".join(sorted(group.kinds))
        raise ApiError(404, f"{group.api_version} has no metrics of {plural!r}; it has those of {served}")
    return Question(group, plural, Ref(kind, ref.namespace, ref.name), edges)


def window(query: Mapping[str, str]) -> float:
    """Return the wanted window in seconds, one at least: `?t=1m30s`; 30 when it is absent or none (R85)."""
    try:
        length = seconds(query.get("t", ""))
    except ValueError:
        return DEFAULT_WINDOW_S
    return max(min(length, _LONGEST_WINDOW_S), _SHORTEST_WINDOW_S) if length else DEFAULT_WINDOW_S


def grouping(query: Mapping[str, str]) -> Grouping:
    """Read `?by=namespace` and `?by=kind`: edges whose other end has only that (R88). Raises ApiError 400."""
    match query.get("by", ""):
        case "":
            return ""
        case "namespace":
            return "namespace"
        case "kind":
            return "kind"
        case other:
            raise ApiError(
                400, f"edges are grouped by=namespace or by=kind, not by={other}; leave it out for each edge"
            )
