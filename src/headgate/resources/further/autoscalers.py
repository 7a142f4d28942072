"""Conversion of HorizontalPodAutoscalers between autoscaling/v2, which the store holds, and autoscaling/v1.

In v1, the target for processor time and its current value have fields of their own; annotations have the remaining metrics, the
behavior and the conditions, as in Kubernetes.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from headgate.errors import Cause
from headgate.resources.kind import Conversion
from headgate.resources.meta import Object, deeper_than, part, rows

_PERCENTAGE = "targetCPUUtilizationPercentage"
_CURRENT_PERCENTAGE = "currentCPUUtilizationPercentage"
_PREFIX = "autoscaling.alpha.kubernetes.io"
_METRICS, _BEHAVIOR = f"{_PREFIX}/metrics", f"{_PREFIX}/behavior"
_CURRENT_METRICS, _CONDITIONS = f"{_PREFIX}/current-metrics", f"{_PREFIX}/conditions"
_DEEPEST = 100  # levels of an annotation's value


def _to_hub(obj: Object, version: str) -> Object:
    if version != "v1":
        return obj
    spec, status, texts = dict(part(obj, "spec")), dict(part(obj, "status")), part(part(obj, "metadata"), "annotations")
    target, current = spec.pop(_PERCENTAGE, None), status.pop(_CURRENT_PERCENTAGE, None)
    fields: dict[str, Any] = {}
    odd = set()
    for name in (_METRICS, _BEHAVIOR, _CURRENT_METRICS, _CONDITIONS):
        try:
            fields[name] = _value(name, texts[name]) if texts.get(name) else None
        except (ValueError, TypeError, RecursionError):
            odd.add(name)
    metrics = [*([_cpu(target)] if target is not None else []), *(fields.get(_METRICS) or ())]
    spec |= _given(metrics=metrics, behavior=fields.get(_BEHAVIOR))
    measured = [*([_cpu_status(current)] if current is not None else []), *(fields.get(_CURRENT_METRICS) or ())]
    status |= _given(currentMetrics=measured, conditions=fields.get(_CONDITIONS))
    return {**_annotated(obj, {name: texts[name] for name in odd}), "spec": spec, **_given(status=status)}


def _value(name: str, text: str) -> Any:
    """Return the value of an annotation. Raises ValueError, TypeError or RecursionError if no field can have it."""
    value = json.loads(text)
    listed = [value] if name == _BEHAVIOR else value
    if value is None:
        return None
    if not isinstance(listed, list) or not all(isinstance(row, dict) for row in listed) or deeper_than(value, _DEEPEST):
        raise ValueError(f"{name} has a value of the wrong type, or is nested too deeply")
    return value


def _from_hub(obj: Object, version: str) -> Object:
    if version != "v1":
        return obj
    spec, status = dict(part(obj, "spec")), dict(part(obj, "status"))
    target, metrics = _without_cpu(spec.pop("metrics", ()), _target_percentage)
    current, measured = _without_cpu(status.pop("currentMetrics", ()), _current_percentage)
    fields = {
        _METRICS: metrics,
        _BEHAVIOR: spec.pop("behavior", None),
        _CURRENT_METRICS: measured,
        _CONDITIONS: status.pop("conditions", None),
    }
    kept = part(part(obj, "metadata"), "annotations")
    texts = {name: kept[name] for name in fields if name in kept}
    texts |= {name: json.dumps(value, separators=(",", ":")) for name, value in fields.items() if value}
    if target is not None:
        spec[_PERCENTAGE] = target
    if current is not None:
        status[_CURRENT_PERCENTAGE] = current
    return {**_annotated(obj, texts), "spec": spec, **_given(status=status)}


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


def _annotated(obj: Object, texts: Mapping[str, str]) -> Object:
    """Return the object with these annotations for the fields that v1 does not have, and without those of other fields."""
    metadata = dict(part(obj, "metadata"))
    names = (_METRICS, _BEHAVIOR, _CURRENT_METRICS, _CONDITIONS)
    annotations = {name: value for name, value in part(metadata, "annotations").items() if name not in names}
    annotations |= texts
    metadata.pop("annotations", None)
    return {**obj, "metadata": {**metadata, **({"annotations": annotations} if annotations else {})}}


def _without_cpu(
    metrics: object, percentage: Callable[[Mapping[str, Any]], Any]
) -> tuple[Any, list[Mapping[str, Any]]]:
    """Return the first percentage of processor time (None without one), and the metrics without one."""
    by_row = [(percentage(metric), metric) for _, metric in rows(metrics)]
    first = next((value for value, _ in by_row if value is not None), None)
    return first, [metric for value, metric in by_row if value is None]


def _cpu(percentage: Any) -> Mapping[str, Any]:
    target = {"type": "Utilization", "averageUtilization": percentage}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def _cpu_status(percentage: Any) -> Mapping[str, Any]:
    return {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": percentage}}}


def _target_percentage(metric: Mapping[str, Any]) -> Any:
    return _percentage(metric, "target")


def _current_percentage(metric: Mapping[str, Any]) -> Any:
    return _percentage(metric, "current")


def _percentage(metric: Mapping[str, Any], field: str) -> Any:
    resource = part(metric, "resource")
    is_cpu = metric.get("type") == "Resource" and resource.get("name") == "cpu"
    return part(resource, field).get("averageUtilization") if is_cpu else None


def text_causes(obj: Object) -> Iterator[Cause]:
    """Yield the texts in the spec of an autoscaler that terminals can't show: its Events and conditions contain them."""
    yield from _unprintable(part(obj, "spec"), "spec")


def _unprintable(value: object, where: str) -> Iterator[Cause]:
    if isinstance(value, str) and not value.isprintable():
        yield Cause(where, "must not contain control characters")
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            if not str(name).isprintable():
                yield Cause(where, "must not contain keys with control characters")
            else:
                yield from _unprintable(inner, f"{where}.{name}")
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _unprintable(inner, f"{where}[{index}]")


CONVERSION = Conversion(_to_hub, _from_hub)
