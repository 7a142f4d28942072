"""Conversion of HorizontalPodAutoscalers between autoscaling/v2, which the store holds, and autoscaling/v1.

In v1, the target for processor time has a field of its own; an annotation has the remaining metrics, as in Kubernetes.
"""

import json
from collections.abc import Mapping
from typing import Any

from headgate.resources.kind import Conversion
from headgate.resources.meta import Object, part, rows

_PERCENTAGE = "targetCPUUtilizationPercentage"
_METRICS = "autoscaling.alpha.kubernetes.io/metrics"


def _to_hub(obj: Object, version: str) -> Object:
    if version != "v1":
        return obj
    spec = dict(part(obj, "spec"))
    target = spec.pop(_PERCENTAGE, None)
    text = part(part(obj, "metadata"), "annotations").get(_METRICS)
    metrics = [_cpu(target)] if target is not None else []
    try:
        metrics += json.loads(text) if text else []
    except (ValueError, TypeError):
        return {**obj, "spec": spec}
    return {**_annotated(obj, None), "spec": {**spec, **({"metrics": metrics} if metrics else {})}}


def _from_hub(obj: Object, version: str) -> Object:
    if version != "v1":
        return obj
    spec = dict(part(obj, "spec"))
    metrics = [metric for _, metric in rows(spec.pop("metrics", ()))]
    target = next((value for metric in metrics if (value := _cpu_percentage(metric)) is not None), None)
    remaining = [metric for metric in metrics if _cpu_percentage(metric) is None]
    text = json.dumps(remaining, separators=(",", ":")) if remaining else None
    return {
        **_annotated(obj, text),
        "spec": {**spec, **({_PERCENTAGE: target} if target is not None else {})},
    }


def _annotated(obj: Object, text: str | None) -> Object:
    """Return the object with the annotation for the remaining metrics, or without it."""
    metadata = dict(part(obj, "metadata"))
    annotations = {name: value for name, value in part(metadata, "annotations").items() if name != _METRICS}
    annotations |= {_METRICS: text} if text else {}
    metadata.pop("annotations", None)
    return {**obj, "metadata": {**metadata, **({"annotations": annotations} if annotations else {})}}


def _cpu(percentage: Any) -> Mapping[str, Any]:
    target = {"type": "Utilization", "averageUtilization": percentage}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def _cpu_percentage(metric: Mapping[str, Any]) -> Any:
    resource = part(metric, "resource")
    is_cpu = metric.get("type") == "Resource" and resource.get("name") == "cpu"
    return part(resource, "target").get("averageUtilization") if is_cpu else None


CONVERSION = Conversion(_to_hub, _from_hub)
