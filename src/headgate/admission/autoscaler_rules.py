"""The checks of HorizontalPodAutoscalers that their schema can't express, as in Kubernetes."""

from collections.abc import Iterator

from headgate.errors import Cause
from headgate.quantity import parse_quantity, thousandths
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

_FIELDS = {
    "Resource": "resource",
    "ContainerResource": "containerResource",
    "Pods": "pods",
    "Object": "object",
    "External": "external",
}
_TARGETS = {"averageUtilization": "Utilization", "averageValue": "AverageValue", "value": "Value"}
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
    name = spec.scale_target_ref.name
    if not name or "/" in name:
        yield Cause("spec.scaleTargetRef.name", "must be a name without /")
    for index, metric in enumerate(spec.metrics):
        yield from _metric_causes(metric, f"spec.metrics[{index}]")
    if spec.behavior:
        for name, rules in (("scaleUp", spec.behavior.scale_up), ("scaleDown", spec.behavior.scale_down)):
            if rules:
                yield from _rule_causes(rules, f"spec.behavior.{name}")


def _metric_causes(metric: ScalingMetric, where: str) -> Iterator[Cause]:
    if metric.type not in _FIELDS:
        yield Cause(f"{where}.type", f"must be one of {', '.join(_FIELDS)}, not {metric.type!r}")
        return
    sources = {
        "Resource": metric.resource,
        "ContainerResource": metric.container_resource,
        "Pods": metric.pods,
        "Object": metric.object,
        "External": metric.external,
    }
    for type, source in sources.items():
        field = f"{where}.{_FIELDS[type]}"
        if type != metric.type:
            if source:
                yield Cause(field, f"must not be set: the type of the metric is {metric.type}")
        elif source is None:
            yield Cause(field, f"is missing: the type of the metric is {metric.type}")
        else:
            yield from _target_causes(source.target, f"{field}.target", type)


def _target_causes(target: MetricTarget, where: str, type: str) -> Iterator[Cause]:
    amounts = {
        "averageUtilization": target.average_utilization,
        "averageValue": target.average_value,
        "value": target.value,
    }
    allowed = {
        "Pods": ("averageValue",),
        "Object": ("value", "averageValue"),
        "External": ("value", "averageValue"),
    }.get(type, ("averageUtilization", "averageValue"))
    given = {name: amount for name, amount in amounts.items() if amount is not None}
    if len(given) != 1 or not given.keys() <= set(allowed):
        fields = f"the field {allowed[0]}" if len(allowed) == 1 else f"exactly one of the fields {', '.join(allowed)}"
        yield Cause(where, f"must have {fields}, and no other amount")
        return
    ((name, amount),) = given.items()
    if target.type != _TARGETS[name]:
        yield Cause(f"{where}.type", f"must be {_TARGETS[name]}, because {name} is set, not {target.type!r}")
    if message := _amount_fault(amount):
        yield Cause(f"{where}.{name}", message)


def _amount_fault(amount: Amount) -> str:
    try:
        return "" if thousandths(amount) > 0 else "must be above 0"
    except ValueError as error:
        return str(error)


def _tolerance_fault(amount: Amount) -> str:
    try:
        return "" if parse_quantity(str(amount)) >= 0 else "must be 0 or more"
    except ValueError as error:
        return str(error)


def _rule_causes(rules: ScalingRules, where: str) -> Iterator[Cause]:
    window = rules.stabilization_window_seconds
    if window is not None and not 0 <= window <= _LONGEST_WINDOW_S:
        yield Cause(f"{where}.stabilizationWindowSeconds", f"must be from 0 to {_LONGEST_WINDOW_S}")
    if rules.select_policy not in (None, "Max", "Min", "Disabled"):
        yield Cause(f"{where}.selectPolicy", f"must be Max, Min or Disabled, not {rules.select_policy!r}")
    if rules.tolerance is not None and (message := _tolerance_fault(rules.tolerance)):
        yield Cause(f"{where}.tolerance", message)
    if rules.policies is not None and not rules.policies:
        yield Cause(f"{where}.policies", "must have at least one policy; leave it out for the default")
    for index, policy in enumerate(rules.policies or ()):
        field = f"{where}.policies[{index}]"
        if policy.type not in ("Pods", "Percent"):
            yield Cause(f"{field}.type", f"must be Pods or Percent, not {policy.type!r}")
        if policy.value < 1:
            yield Cause(f"{field}.value", "must be above 0")
        if not 1 <= policy.period_seconds <= _LONGEST_PERIOD_S:
            yield Cause(f"{field}.periodSeconds", f"must be from 1 to {_LONGEST_PERIOD_S}")
