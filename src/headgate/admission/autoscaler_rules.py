"""The checks of HorizontalPodAutoscalers that their schema can't express, as in Kubernetes."""

from collections.abc import Iterator

from headgate.errors import Cause
from headgate.quantity import thousandths
from headgate.resources.autoscaling.horizontal_pod_autoscaler import (
    Amount,
    HorizontalPodAutoscaler,
    MetricTarget,
    ScalingMetric,
    ScalingRules,
)
from headgate.resources.decode import read
from headgate.resources.further.autoscalers import text_causes
from headgate.resources.meta import Object

_FIELDS = {"Resource": "resource", "ContainerResource": "containerResource", "Pods": "pods", "Object": "object"}
_LONGEST_WINDOW_S, _LONGEST_PERIOD_S = 3600, 1800


def autoscaler_causes(obj: Object) -> Iterator[Cause]:
    """Yield the mistakes in a HorizontalPodAutoscaler. Raises DecodeError."""
    yield from text_causes(obj)  # in version 1, annotations have most texts, which only the conversion reads
    spec = read(obj, HorizontalPodAutoscaler).spec
    if spec.max_replicas < 1:
        yield Cause("spec.maxReplicas", "must be 1 or more")
    if spec.min_replicas < 1:
        yield Cause("spec.minReplicas", "must be 1 or more")
    elif 1 <= spec.max_replicas < spec.min_replicas:
        yield Cause("spec.maxReplicas", f"must be at least spec.minReplicas ({spec.min_replicas})")
    for index, metric in enumerate(spec.metrics):
        yield from _metric_causes(metric, f"spec.metrics[{index}]")
    if spec.behavior:
        for name, rules in (("scaleUp", spec.behavior.scale_up), ("scaleDown", spec.behavior.scale_down)):
            if rules:
                yield from _rule_causes(rules, f"spec.behavior.{name}")


def _metric_causes(metric: ScalingMetric, where: str) -> Iterator[Cause]:
    if metric.type not in (*_FIELDS, "External"):
        yield Cause(f"{where}.type", f"must be {', '.join(_FIELDS)} or External, not {metric.type!r}")
        return
    sources = {
        "Resource": metric.resource,
        "ContainerResource": metric.container_resource,
        "Pods": metric.pods,
        "Object": metric.object,
    }
    if field := _FIELDS.get(metric.type):
        source = sources[metric.type]
        if source is None:
            yield Cause(f"{where}.{field}", f"is missing: the type of the metric is {metric.type}")
        else:
            yield from _target_causes(source.target, f"{where}.{field}.target", metric.type)


def _target_causes(target: MetricTarget, where: str, type: str) -> Iterator[Cause]:
    utilization, average, value = target.average_utilization, target.average_value, target.value
    allowed = {
        "Pods": {"averageValue": average},
        "Object": {"value": value, "averageValue": average},
    }.get(type, {"averageUtilization": utilization, "averageValue": average})
    given = {name: amount for name, amount in allowed.items() if amount is not None}
    if len(given) != 1:
        yield Cause(where, f"must have exactly one of the fields {', '.join(allowed)}")
    for name, amount in given.items():
        if message := _amount_fault(amount):
            yield Cause(f"{where}.{name}", message)


def _amount_fault(amount: Amount) -> str:
    try:
        return "" if thousandths(amount) > 0 else "must be above 0"
    except ValueError as error:
        return str(error)


def _rule_causes(rules: ScalingRules, where: str) -> Iterator[Cause]:
    window = rules.stabilization_window_seconds
    if window is not None and not 0 <= window <= _LONGEST_WINDOW_S:
        yield Cause(f"{where}.stabilizationWindowSeconds", f"must be from 0 to {_LONGEST_WINDOW_S}")
    if rules.select_policy not in (None, "Max", "Min", "Disabled"):
        yield Cause(f"{where}.selectPolicy", f"must be Max, Min or Disabled, not {rules.select_policy!r}")
    for index, policy in enumerate(rules.policies or ()):
        field = f"{where}.policies[{index}]"
        if policy.type not in ("Pods", "Percent"):
            yield Cause(f"{field}.type", f"must be Pods or Percent, not {policy.type!r}")
        if policy.value < 1:
            yield Cause(f"{field}.value", "must be above 0")
        if not 1 <= policy.period_seconds <= _LONGEST_PERIOD_S:
            yield Cause(f"{field}.periodSeconds", f"must be from 1 to {_LONGEST_PERIOD_S}")
