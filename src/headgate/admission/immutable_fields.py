"""The fields of workloads that no update changes, as in Kubernetes: their controllers could not follow a change."""

from collections.abc import Iterator, Mapping
from typing import Any

from headgate.errors import Cause
from headgate.resources.meta import Object, part

_JOB = (
    *("completions", "completionMode", "selector", "template", "podFailurePolicy"),
    *("backoffLimitPerIndex", "successPolicy", "managedBy"),
)
_SET = ("selector", "serviceName", "podManagementPolicy", "volumeClaimTemplates")
_FIXED: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("apps/v1", "StatefulSet"): _SET,
    ("apps/v1", "DaemonSet"): ("selector",),
    ("batch/v1", "Job"): _JOB,
}
"""The fields of `spec` by apiVersion and kind."""


def immutable_causes(new: Object, old: Object) -> Iterator[Cause]:
    """Yield each immutable field of a workload that an update changes."""
    before, now = part(old, "spec"), part(new, "spec")
    for field in _FIXED.get((new["apiVersion"], new["kind"]), ()):
        if _given(before.get(field)) != _given(now.get(field)):
            message = f"field is immutable: delete the {new['kind']} and create it again"
            yield Cause(f"spec.{field}", message)


def _given(value: Any) -> Any:
    """Return a value without fields that are null, which count as missing."""
    if isinstance(value, Mapping):
        return {name: _given(inner) for name, inner in value.items() if inner is not None}
    return [_given(inner) for inner in value] if isinstance(value, list) else value
