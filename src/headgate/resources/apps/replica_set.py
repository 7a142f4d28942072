"""ReplicaSets, with the fields that the local runtime reads."""

from typing import Any

from msgspec import field

from headgate.kinds import names_of
from headgate.resources import cells
from headgate.resources.columns import AGE, IN_TEMPLATE, NAME, Column
from headgate.resources.core.pod_metadata import template_causes
from headgate.resources.kind import Kind
from headgate.resources.meta import Input, Resource
from headgate.resources.selectors import LabelSelector


class ReplicaSetSpec(Input, frozen=True, kw_only=True):
    """`spec` of a ReplicaSet; times are in seconds."""

    selector: LabelSelector = LabelSelector()
    template: dict[str, Any] = field(default_factory=dict)
    replicas: int = 1
    min_ready_seconds: int = 0


class ReplicaSetStatus(Input, frozen=True, kw_only=True):
    """`status` of a ReplicaSet: numbers of pods."""

    replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0


class ReplicaSet(Resource, frozen=True, kw_only=True):
    """A ReplicaSet: it keeps a number of identical pods running."""

    spec: ReplicaSetSpec = ReplicaSetSpec()
    status: ReplicaSetStatus = ReplicaSetStatus()


KIND = Kind(
    names_of("ReplicaSet", "apps"),
    status=True,
    checks=template_causes,
    columns=(
        NAME,
        Column("Desired", cell=cells.at("spec.replicas", 1), type="integer"),
        Column("Current", cell=cells.at("status.replicas", 0), type="integer"),
        Column("Ready", cell=cells.at("status.readyReplicas", 0), type="integer"),
        AGE,
        *IN_TEMPLATE,
    ),
    subresources=("scale",),
    categories=("all",),
    selectable=frozenset({"status.replicas"}),
    always_present=("spec.template.metadata", "spec.template.spec", "status"),
)
