"""Deployments, with the fields that the local runtime reads."""

from typing import Any

from msgspec import field

from headgate.kinds import names_of
from headgate.resources import cells
from headgate.resources.columns import AGE, IN_TEMPLATE, NAME, Column
from headgate.resources.core.pod_metadata import template_causes
from headgate.resources.core.pod_spec import Condition
from headgate.resources.kind import Kind, ReadyBy
from headgate.resources.meta import Input, Resource
from headgate.resources.selectors import LabelSelector


class RollingUpdate(Input, frozen=True, kw_only=True):
    """The numbers of pods by which a rollout may go above or below `replicas`: integers or percentages (`25%`)."""

    max_surge: int | str = "25%"
    max_unavailable: int | str = "25%"


class Strategy(Input, frozen=True, kw_only=True):
    """The way in which a rollout replaces old pods with new pods."""

    type: str = "RollingUpdate"
    rolling_update: RollingUpdate | None = None


class DeploymentSpec(Input, frozen=True, kw_only=True):
    """`spec` of a Deployment; times are in seconds."""

    selector: LabelSelector = LabelSelector()
    template: dict[str, Any] = field(default_factory=dict)
    replicas: int = 1
    strategy: Strategy = Strategy()
    min_ready_seconds: int = 0
    revision_history_limit: int = 10
    progress_deadline_seconds: int = 600
    paused: bool = False


class DeploymentStatus(Input, frozen=True, kw_only=True):
    """`status` of a Deployment: numbers of pods, and conditions."""

    conditions: tuple[Condition, ...] = ()
    updated_replicas: int = 0
    replicas: int = 0
    available_replicas: int = 0


class Deployment(Resource, frozen=True, kw_only=True):
    """A Deployment: it runs a ReplicaSet, and replaces it step by step when the template changes."""

    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()


KIND = Kind(
    names_of("Deployment", "apps"),
    status=True,
    checks=template_causes,
    columns=(
        NAME,
        Column(
            "Ready",
            "",
            "The ready pods, out of the wanted replicas.",
            cell=cells.ratio("status.readyReplicas", "spec.replicas", 1),
        ),
        Column("Up-to-date", cell=cells.at("status.updatedReplicas", 0)),
        Column("Available", cell=cells.at("status.availableReplicas", 0)),
        AGE,
        *IN_TEMPLATE,
    ),
    subresources=("scale",),
    categories=("all",),
    always_present=("spec.strategy", "spec.template.metadata", "spec.template.spec", "status"),
    ready_by=ReadyBy.REPLICAS,
)
