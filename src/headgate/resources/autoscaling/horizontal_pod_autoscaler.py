"""HorizontalPodAutoscalers, with the fields that the autoscaler reads. `further.kinds` has their names and schema."""

from typing import TypeAlias

from headgate.resources.core.pod_spec import Condition
from headgate.resources.meta import Input, Resource
from headgate.resources.selectors import LabelSelector

Amount: TypeAlias = str | int | float
"""A quantity, such as `500m`, as people write it."""


class CrossVersionReference(Input, frozen=True, kw_only=True):
    """A reference to an object of the autoscaler's namespace."""

    api_version: str = ""
    kind: str
    name: str


class MetricName(Input, frozen=True, kw_only=True):
    """A custom metric, with a selector of its labels."""

    name: str
    selector: LabelSelector | None = None


class MetricTarget(Input, frozen=True, kw_only=True):
    """The value that a metric shall have: in percent of the request, as the mean of the pods, or in total.

    The field that `type` names is set.
    """

    type: str = ""
    average_utilization: int | None = None
    average_value: Amount | None = None
    value: Amount | None = None


class ResourceMetric(Input, frozen=True, kw_only=True):
    """The usage of `cpu` or `memory`: that of a pod, or that of its `container`."""

    name: str
    container: str = ""
    target: MetricTarget


class PodsMetric(Input, frozen=True, kw_only=True):
    """A custom metric of each pod."""

    metric: MetricName
    target: MetricTarget


class ObjectMetric(Input, frozen=True, kw_only=True):
    """A custom metric of an object."""

    metric: MetricName
    described_object: CrossVersionReference
    target: MetricTarget


class ExternalMetric(Input, frozen=True, kw_only=True):
    """A metric of something outside the API server."""

    target: MetricTarget


class ScalingMetric(Input, frozen=True, kw_only=True):
    """A metric with its target. The field that `type` names is set."""

    type: str
    resource: ResourceMetric | None = None
    container_resource: ResourceMetric | None = None
    pods: PodsMetric | None = None
    object: ObjectMetric | None = None
    external: ExternalMetric | None = None


class ScalingPolicy(Input, frozen=True, kw_only=True):
    """The change that is allowed in `period_seconds`: a number of `Pods`, or a `Percent` of the replicas at its begin."""

    type: str
    value: int
    period_seconds: int


class ScalingRules(Input, frozen=True, kw_only=True):
    """Rules for one direction. `tolerance` is a share of the target; absent fields have defaults."""

    stabilization_window_seconds: int | None = None
    select_policy: str | None = None
    policies: tuple[ScalingPolicy, ...] | None = None
    tolerance: Amount | None = None


class Behavior(Input, frozen=True, kw_only=True):
    """Rules for both directions."""

    scale_up: ScalingRules | None = None
    scale_down: ScalingRules | None = None


class AutoscalerSpec(Input, frozen=True, kw_only=True):
    """`spec` of a HorizontalPodAutoscaler."""

    scale_target_ref: CrossVersionReference
    min_replicas: int = 1
    max_replicas: int
    metrics: tuple[ScalingMetric, ...] = ()
    behavior: Behavior | None = None


class AutoscalerStatus(Input, frozen=True, kw_only=True):
    """`status` of a HorizontalPodAutoscaler."""

    conditions: tuple[Condition, ...] = ()
    desired_replicas: int = 0
    last_scale_time: str = ""


class HorizontalPodAutoscaler(Resource, frozen=True, kw_only=True):
    """A HorizontalPodAutoscaler: it sets the replicas of a workload by metrics."""

    spec: AutoscalerSpec
    status: AutoscalerStatus = AutoscalerStatus()
