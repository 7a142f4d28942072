"""Canaries and counts of requests for tests of rollouts."""

from collections.abc import Mapping
from typing import Any

from headgate.resources.canaries import Canary
from headgate.resources.decode import check_stored
from headgate.resources.meta import Object
from headgate.rollout.state import Plan
from headgate.telemetry.counters.counts import Counts, class_index
from headgate.telemetry.counters.histogram import bucket_of, gathered

ANALYSIS: Mapping[str, Any] = {"canary": "v2", "steps": [{"weight": 50}], "interval": "30s"}


def canary(*, name: str = "website", analysis: Mapping[str, Any] | None = ANALYSIS, **spec: Any) -> Object:
    """Return a Canary: 900m for v1 and 100m for v2, unless `spec` says otherwise."""
    backends = [{"service": "v1", "weight": "900m"}, {"service": "v2", "weight": "100m"}]
    rules = {"analysis": dict(analysis)} if analysis is not None else {}
    return {
        "apiVersion": "headgate.dev/v1beta1",
        "kind": "Canary",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"service": "website", "backends": backends, **rules, **spec},
    }


def plan_of(obj: Object) -> Plan:
    """Return the plan of a valid Canary."""
    checked = check_stored(obj)
    assert isinstance(checked.value, Canary), checked.causes
    return Plan(checked.value)


def requests(count: int, *, failed: int = 0, slow: int = 0, slow_us: float = 900_000) -> Counts:
    """Return the counts of requests that take 10 ms, except slow ones."""
    latency = gathered({bucket_of(10_000): count - slow, bucket_of(slow_us): slow})
    return Counts.of({class_index(200): count - failed, class_index(503): failed}, latency)
