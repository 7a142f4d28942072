"""StatefulSets, with the fields that the local runtime reads. `further.kinds` has their names and schema."""

from typing import Any

from msgspec import field

from headgate.resources.meta import Input, Resource
from headgate.resources.selectors import LabelSelector

POD_NAME = "statefulset.kubernetes.io/pod-name"
POD_INDEX = "apps.kubernetes.io/pod-index"


class Partition(Input, frozen=True, kw_only=True):
    """The ordinal from which on pods get a new template."""

    partition: int = 0


class UpdateStrategy(Input, frozen=True, kw_only=True):
    """The way in which pods get a new template: `RollingUpdate`, or `OnDelete` when a user deletes them."""

    type: str = "RollingUpdate"
    rolling_update: Partition = Partition()


class Ordinals(Input, frozen=True, kw_only=True):
    """The ordinal of the first pod."""

    start: int = 0


class ClaimRetention(Input, frozen=True, kw_only=True):
    """Whether claims outlive the StatefulSet, and pods that it no longer needs: `Retain` or `Delete`."""

    when_deleted: str = "Retain"
    when_scaled: str = "Retain"


class StatefulSetSpec(Input, frozen=True, kw_only=True):
    """`spec` of a StatefulSet; times are in seconds."""

    selector: LabelSelector = LabelSelector()
    template: dict[str, Any] = field(default_factory=dict)
    replicas: int = 1
    service_name: str = ""
    pod_management_policy: str = "OrderedReady"
    update_strategy: UpdateStrategy = UpdateStrategy()
    volume_claim_templates: tuple[dict[str, Any], ...] = ()
    min_ready_seconds: int = 0
    revision_history_limit: int = 10
    ordinals: Ordinals = Ordinals()
    persistent_volume_claim_retention_policy: ClaimRetention = ClaimRetention()


class StatefulSetStatus(Input, frozen=True, kw_only=True):
    """`status` of a StatefulSet: numbers of pods, and the names of the revisions."""

    replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    current_revision: str = ""
    update_revision: str = ""


class StatefulSet(Resource, frozen=True, kw_only=True):
    """A StatefulSet: it runs pods with stable names, one after the other."""

    spec: StatefulSetSpec = StatefulSetSpec()
    status: StatefulSetStatus = StatefulSetStatus()

    @property
    def ordinals(self) -> range:
        """The ordinals of the pods that it needs."""
        start = self.spec.ordinals.start
        return range(start, start + self.spec.replicas)
