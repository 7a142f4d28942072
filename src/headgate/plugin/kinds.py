"""The kinds that traffic can be asked about, and every name that kubectl's users have for them (R82)."""

from collections.abc import Mapping

import msgspec

from headgate.plugin.errors import WrongUsage

METRICS = "traffic.metrics.k8s.io/v1beta1"
RELEASED_METRICS = "metrics.smi-spec.io/v1alpha1"
OUTSIDE = "Outside"
"""The kind of an edge's other end that is no resource: a gateway, or an address."""


class Kind(msgspec.Struct, frozen=True):
    """A kind: its plural is the resource of the API. `api` is the group and version that has it."""

    kind: str
    plural: str
    short: tuple[str, ...] = ()
    namespaced: bool = True
    api: str = METRICS

    @property
    def singular(self) -> str:
        """The name that stands before a slash: `deployment/foo`."""
        return self.kind.lower()


PODS = Kind("Pod", "pods", ("po",))
SERVICES = Kind("Service", "services", ("svc",))
SPLITS = Kind("TrafficSplit", "trafficsplits", ("ts",), api=RELEASED_METRICS)
KINDS = (
    PODS,
    Kind("Deployment", "deployments", ("deploy",)),
    SERVICES,
    Kind("Namespace", "namespaces", ("ns",), namespaced=False),
    Kind("Node", "nodes", ("no",), namespaced=False),
    Kind("ReplicaSet", "replicasets", ("rs",)),
    Kind("StatefulSet", "statefulsets", ("sts",)),
    Kind("DaemonSet", "daemonsets", ("ds",)),
    Kind("Job", "jobs"),
    Kind("ReplicationController", "replicationcontrollers", ("rc",)),
    SPLITS,
)
_BY_NAME: Mapping[str, Kind] = {name: kind for kind in KINDS for name in (kind.plural, kind.singular, *kind.short)}


def kind_named(name: str) -> Kind:
    """Return a kind by its plural, singular or short name, in any case. Raises WrongUsage."""
    found = _BY_NAME.get(name.lower())
    if found is None:
        known = ", ".join(kind.plural for kind in KINDS)
        raise WrongUsage(f"there are no metrics of {name!r}; write one of {known}")
    return found
