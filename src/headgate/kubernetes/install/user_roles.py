"""ClusterRoles for users. Kubernetes adds their rules to its own roles `view`, `edit` and `admin`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from headgate.api.inspect.traffic_series import TRAFFIC_SERIES
from headgate.api.metrics.groups import EDGES, METRICS_GROUPS, SPLITS, MetricsGroup, is_cluster_scoped
from headgate.kubernetes.install.custom_resources import mesh_kinds
from headgate.kubernetes.install.roles import by_group
from headgate.kubernetes.names import NAME
from headgate.resources.inspect import GROUP

_READ = ("get", "list", "watch")
_WRITE = ("create", "update", "patch", "delete", "deletecollection")
_READ_METRICS = ("get", "list")


class UserRole(NamedTuple):
    """A ClusterRole for users. `extends` are Kubernetes' roles that its rules extend, `rules` has those of the object."""

    name: str
    extends: tuple[str, ...]
    rules: Sequence[Mapping[str, Any]]

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels by which Kubernetes' roles select the ClusterRole."""
        return {f"rbac.authorization.k8s.io/aggregate-to-{role}": "true" for role in self.extends}


def user_roles() -> tuple[UserRole, ...]:
    """Return the ClusterRoles for users: of the objects and metrics that belong to a namespace.

    The inspect API shows more than the objects of a namespace, so these roles give no right to it, except to series, which have
    the same counts as metrics.
    """
    objects = list(by_group((kind.group, kind.plural) for kind in mesh_kinds() if kind.namespaced))
    read, write = ([_rule(*resources, verbs) for resources in objects] for verbs in (_READ, _WRITE))
    metrics = [_rule(group.name, list(_metrics(group)), _READ_METRICS) for group in METRICS_GROUPS.values()]
    series = _rule(GROUP, [TRAFFIC_SERIES.plural], TRAFFIC_SERIES.verbs)
    return (
        UserRole(f"{NAME}-view", ("view", "edit", "admin"), (*read, *metrics, series)),
        UserRole(f"{NAME}-edit", ("edit", "admin"), write),
    )


def _metrics(group: MetricsGroup) -> Iterator[str]:
    """Yield the resources of a metrics group that have a namespace, with their edges. TrafficSplits have no edges."""
    for plural in group.kinds:
        if not is_cluster_scoped(plural):
            yield plural
            if plural != SPLITS:
                yield f"{plural}/{EDGES}"


def _rule(group: str, resources: Sequence[str], verbs: Sequence[str]) -> Mapping[str, Any]:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
