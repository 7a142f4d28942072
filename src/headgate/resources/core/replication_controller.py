"""ReplicationControllers, with the fields that the local runtime reads. `further.kinds` has their names and schema."""

from typing import Any

from msgspec import field

from headgate.resources.apps.replica_set import ReplicaSet, ReplicaSetSpec, ReplicaSetStatus
from headgate.resources.meta import Input, Object, Resource, part
from headgate.resources.selectors import LabelSelector


class ReplicationControllerSpec(Input, frozen=True, kw_only=True):
    """`spec` of a ReplicationController; times are in seconds."""

    selector: dict[str, str] = field(default_factory=dict)
    template: dict[str, Any] = field(default_factory=dict)
    replicas: int = 1
    min_ready_seconds: int = 0


class ReplicationController(Resource, frozen=True, kw_only=True):
    """A ReplicationController: it keeps a number of identical pods running, as a ReplicaSet does."""

    spec: ReplicationControllerSpec = ReplicationControllerSpec()
    status: ReplicaSetStatus = ReplicaSetStatus()

    @property
    def as_replica_set(self) -> ReplicaSet:
        """The ReplicaSet with the same effect."""
        spec = ReplicaSetSpec(
            selector=LabelSelector(match_labels=self.spec.selector),
            template=self.spec.template,
            replicas=self.spec.replicas,
            min_ready_seconds=self.spec.min_ready_seconds,
        )
        return ReplicaSet(metadata=self.metadata, spec=spec, status=self.status)


def completed_spec(spec: Object) -> Object:
    """Return a spec with its default values. A missing selector becomes the labels of the template."""
    labels = part(part(spec.get("template"), "metadata"), "labels")
    return {
        "replicas": 1,
        "selector": dict(labels),
        **{name: value for name, value in spec.items() if value is not None},
    }
