"""DaemonSets, with the fields that the local runtime reads. `further.kinds` has their names and schema."""

from typing import Any

from msgspec import field

from headgate.resources.apps.deployment import Strategy
from headgate.resources.meta import Input, Resource
from headgate.resources.selectors import LabelSelector


class DaemonSetSpec(Input, frozen=True, kw_only=True):
    """`spec` of a DaemonSet; times are in seconds."""

    selector: LabelSelector = LabelSelector()
    template: dict[str, Any] = field(default_factory=dict)
    update_strategy: Strategy = Strategy()
    min_ready_seconds: int = 0
    revision_history_limit: int = 10


class DaemonSet(Resource, frozen=True, kw_only=True):
    """A DaemonSet: it runs one pod on each node."""

    spec: DaemonSetSpec = DaemonSetSpec()
