"""The kinds that have metrics (R82)."""

from collections.abc import Mapping

import msgspec

from headgate.cli.output import WrongUsage
from headgate.kinds import METRICS_KINDS, KindNames, names_of

METRICS = "traffic.metrics.k8s.io/v1beta1"
RELEASED_METRICS = "metrics.smi-spec.io/v1alpha1"
OUTSIDE = "Outside"
"""The kind of a peer outside of the mesh: a gateway, or an address."""


class MetricsKind(KindNames, frozen=True, kw_only=True):
    """A kind with metrics. `api` is the group and version of the metrics resource, and `plural` is its name."""

    api: str = METRICS


def _kind(kind: str, api: str = METRICS) -> MetricsKind:
    return MetricsKind(**msgspec.structs.asdict(names_of(kind)), api=api)


SPLITS = _kind("TrafficSplit", RELEASED_METRICS)
KINDS = (*(_kind(names.kind) for names in METRICS_KINDS), SPLITS)
SERVICES = next(kind for kind in KINDS if kind.kind == "Service")
_BY_NAME: Mapping[str, MetricsKind] = {name: kind for kind in KINDS for name in kind.words}


def kind_named(name: str) -> MetricsKind:
    """Return a kind by its plural, singular or short name, case-insensitively. Raises WrongUsage."""
    kind = _BY_NAME.get(name.lower())
    if kind is None:
        names = ", ".join(sorted(chosen.plural for chosen in KINDS))
        raise WrongUsage(f"unknown kind {name!r}; write one of {names}")
    return kind
