"""The metrics of HorizontalPodAutoscalers: headgate's custom metrics, and the usage that `kubectl top` shows."""

from typing import NamedTuple

from headgate.api.metrics.custom import ALL, RESOURCES, CustomMetricsApi, parse_path
from headgate.api.resource_usage import Measurement, UsageSource
from headgate.api.status import ApiError
from headgate.kinds import KindNames
from headgate.quantity import of_thousandths, parse_quantity, thousandths
from headgate.resources.autoscaling.horizontal_pod_autoscaler import (
    Amount,
    AutoscalerSpec,
    CrossVersionReference,
    MetricName,
    MetricTarget,
    ObjectMetric,
    PodsMetric,
    ResourceMetric,
    ScalingMetric,
)
from headgate.resources.core.pod_spec import Pod
from headgate.resources.kind import split_api_version
from headgate.resources.meta import Key, Object, parsed
from headgate.resources.selectors import LabelSelector, Requirement
from headgate.standalone.controllers.autoscalers import Measured, Outcome, Unmeasured
from headgate.standalone.controllers.replica_proposals import (
    CPU,
    NoProposal,
    PodSample,
    Proposal,
    Samples,
    Scaled,
    Tolerance,
    by_average,
    by_share,
    by_total,
    by_utilization,
    counted_containers,
    requests,
)
from headgate.standalone.controllers.scaling_behavior import rules

_CONTAINER = "ContainerResource"
_REASONS = {
    "Resource": "FailedGetResourceMetric",
    _CONTAINER: "FailedGetContainerResourceMetric",
    "Pods": "FailedGetPodsMetric",
    "Object": "FailedGetObjectMetric",
    "External": "FailedGetExternalMetric",
}
_MEASURED = (CPU, "memory")


class ScalingSubject(NamedTuple):
    """The workload to scale, in a namespace, at a time in seconds since the epoch."""

    namespace: str
    scaled: Scaled
    tolerance: Tolerance
    now: float


class AutoscalerMetrics:
    """Reads the metrics of autoscalers, and computes the replicas that each of them proposes."""

    def __init__(self, custom: CustomMetricsApi, usage: UsageSource | None) -> None:
        self._custom = custom
        self._usage = usage

    async def outcome(self, metric: ScalingMetric, subject: ScalingSubject) -> Outcome:
        """Return the outcome for one metric of an autoscaler."""
        reason = _REASONS.get(metric.type, "InvalidMetricSourceType")
        try:
            if metric.type == "Pods" and metric.pods:
                return await self._of_pods(metric.pods, subject)
            if metric.type == "Object" and metric.object:
                return await self._of_object(metric.object, subject)
            if self._usage and (resource := _resource_metric(metric)):
                return _of_resource(metric.type, resource, subject, await self._usage.measure())
        except (ApiError, NoProposal, ValueError) as error:
            return Unmeasured(reason, f"{_failure(metric)}: {error}")
        return Unmeasured(
            reason,
            f"this machine has no metrics of type {metric.type}; use Resource, ContainerResource, Pods or Object",
        )

    async def _of_pods(self, metric: PodsMetric, subject: ScalingSubject) -> Outcome:
        values = await self._values("pods", ALL, metric.metric, subject)
        samples = Samples({name: PodSample(value) for name, value in values.items()}, subject.now)
        proposal = by_average(
            subject.scaled, samples, _above_zero(metric.target.average_value, "averageValue"), subject.tolerance
        )
        current = {"metric": {"name": metric.metric.name}, "current": _average(proposal)}
        return Measured(f"pods metric {metric.metric.name}", proposal.replicas, {"type": "Pods", "pods": current})

    async def _of_object(self, metric: ObjectMetric, subject: ScalingSubject) -> Outcome:
        about, target = metric.described_object, metric.target
        if about.name == ALL:
            raise NoProposal(f"describedObject.name must be the name of an object, not {ALL}")
        values = await self._values(_resource(about), about.name, metric.metric, subject)
        value = values[about.name]
        if target.value is not None:
            limit = _above_zero(target.value, "value")
            proposal = by_total(subject.scaled, value, limit, subject.tolerance)
            now: Object = {"value": of_thousandths(proposal.average)}
        else:
            limit = _above_zero(target.average_value, "averageValue")
            proposal = by_share(subject.scaled, value, limit, subject.tolerance)
            now = _average(proposal)
        described = {"apiVersion": about.api_version, "kind": about.kind, "name": about.name}
        current = {"metric": {"name": metric.metric.name}, "current": now, "describedObject": described}
        name = f"{about.kind} metric {metric.metric.name}"
        return Measured(name, proposal.replicas, {"type": "Object", "object": current})

    async def _values(self, resource: str, name: str, metric: MetricName, subject: ScalingSubject) -> dict[str, int]:
        """Return a custom metric in thousandths, by the name of the object. Raises ApiError."""
        path = parse_path(["namespaces", subject.namespace, resource, name, metric.name])
        query = {"metricLabelSelector": _selector_text(metric.selector)} if metric.selector else {}
        _, values = await self._custom.values(path, query)
        return {ref.name: value for ref, value in values}


def tolerance(spec: AutoscalerSpec) -> Tolerance:
    """Return the tolerance of an autoscaler in both directions. An amount that is no quantity has the default."""
    default = Tolerance()
    up, down = (parsed(str(direction.tolerance), parse_quantity) for direction in rules(spec))
    return Tolerance(down=default.down if down is None else down, up=default.up if up is None else up)


def _of_resource(type: str, metric: ResourceMetric, subject: ScalingSubject, measurement: Measurement) -> Outcome:
    """Return the outcome of a usage. Raises NoProposal, ValueError."""
    scaled, target, resource = subject.scaled, metric.target, metric.name
    if resource not in _MEASURED:
        raise NoProposal(f"this machine measures cpu and memory, not {resource}")
    by_pod = {
        pod.metadata.name: PodSample(value, measurement.time, measurement.window_s)
        for pod in scaled.pods
        if (value := _usage(pod, metric, measurement)) is not None
    }
    samples = Samples(by_pod, subject.now, is_cpu=resource == CPU)
    what = f"{resource} container resource" if type == _CONTAINER else f"{resource} resource"
    if target.average_utilization is None:
        proposal = by_average(scaled, samples, _above_zero(target.average_value, "averageValue"), subject.tolerance)
    else:
        what += " utilization (percentage of request)"
        proposal = by_utilization(
            scaled,
            samples,
            _percentage(target),
            subject.tolerance,
            requests=requests(scaled.pods, resource, metric.container),
        )
    named = {"container": metric.container} if type == _CONTAINER else {}
    field = "containerResource" if type == _CONTAINER else "resource"
    current = {"type": type, field: {"name": resource, **named, "current": _average(proposal)}}
    return Measured(what, proposal.replicas, current)


def _usage(pod: Pod, metric: ResourceMetric, measurement: Measurement) -> int | None:
    """Return the usage of a pod in thousandths; None if one of its containers was not measured."""
    measured = measurement.containers.get(Key("", "Pod", pod.metadata.namespace, pod.metadata.name), {})
    names = [container.name for container in counted_containers(pod, metric.container)]
    if not names or not measured.keys() >= set(names):
        return None
    usages = [measured[name] for name in names]
    total = sum(usage.cores if metric.name == CPU else usage.memory_bytes for usage in usages)
    return round(total * 1000)


def _average(proposal: Proposal) -> Object:
    shown = {} if proposal.utilization is None else {"averageUtilization": proposal.utilization}
    return {**shown, "averageValue": of_thousandths(proposal.average)}


def _percentage(target: MetricTarget) -> int:
    if not target.average_utilization or target.average_utilization < 0:
        raise NoProposal("target.averageUtilization must be above 0")
    return target.average_utilization


def _above_zero(amount: Amount | None, field: str) -> int:
    if amount is None:
        raise NoProposal(f"target.{field} is missing")
    limit = thousandths(amount)
    if limit <= 0:
        raise NoProposal(f"target.{field} must be above 0")
    return limit


def _failure(metric: ScalingMetric) -> str:
    if metric.type == "Pods" and metric.pods:
        return f"failed to get pods metric {metric.pods.metric.name}"
    if metric.type == "Object" and metric.object:
        return f"failed to get object metric {metric.object.metric.name}"
    resource = _resource_metric(metric)
    return f"failed to get {resource.name if resource else metric.type} usage"


def _resource_metric(metric: ScalingMetric) -> ResourceMetric | None:
    if metric.type == _CONTAINER:
        return metric.container_resource
    return metric.resource if metric.type == "Resource" else None


def _resource(about: CrossVersionReference) -> str:
    """Return the resource of an object in paths of custom metrics: `deployments.apps`. Raises NoProposal."""
    group, _ = split_api_version(about.api_version)

    def is_named(names: KindNames) -> bool:
        return names.kind == about.kind and names.group == group

    if (resource := next((name for name, names in RESOURCES.items() if is_named(names)), None)) is None:
        raise NoProposal(
            f"there are no metrics of {about.kind} ({about.api_version}); name one of {', '.join(RESOURCES)}"
        )
    return resource


def _selector_text(selector: LabelSelector) -> str:
    equal = [f"{name}={value}" for name, value in selector.match_labels.items()]
    return ",".join([*equal, *map(_requirement_text, selector.match_expressions)])


def _requirement_text(requirement: Requirement) -> str:
    values = ",".join(requirement.values)
    match requirement.operator:
        case "In":
            return f"{requirement.key} in ({values})"
        case "NotIn":
            return f"{requirement.key} notin ({values})"
        case "Exists":
            return requirement.key
        case _:
            return f"!{requirement.key}"
