"""Read the metrics API."""

from collections.abc import Mapping
from typing import Any

from tests.e2e.running_mesh import RunningMesh

WINDOW = "?t=15m"  # includes all requests, on a busy machine too
SEED, RELEASED = "/apis/traffic.metrics.k8s.io/v1beta1", "/apis/metrics.smi-spec.io/v1alpha1"


def ask(mesh: RunningMesh, path: str) -> Any:
    return mesh.api.call("GET", path)


def counts(item: Any) -> Mapping[str, int]:
    return {one["name"]: int(one["value"]) for one in item["metrics"] if one["name"].endswith("_count")}
