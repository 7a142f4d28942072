"""Objects for tests of the history."""

from collections.abc import Mapping
from typing import Any

from headgate.history.records import Record, record_of
from headgate.resources.meta import Key
from headgate.resources.registry import key_of

TIME = "2026-01-31T12:00:00Z"
CANARY = {"apiVersion": "headgate.dev/v1beta1", "kind": "Canary", "name": "website", "uid": "1", "controller": True}


def split(name: str = "website", weight: int = 90, *, by: str = "kubectl", time: str = TIME, **metadata: Any) -> Any:
    """Return a TrafficSplit with two backends; `weight` is that of the first."""
    backends = [{"service": "website-v1", "weight": weight}, {"service": "website-v2", "weight": 100 - weight}]
    return {
        "apiVersion": "split.smi-spec.io/v1alpha4",
        "kind": "TrafficSplit",
        "metadata": {
            "name": name,
            "namespace": "default",
            "managedFields": [{"manager": by, "operation": "Update", "time": time}],
            **metadata,
        },
        "spec": {"service": "website", "backends": backends},
    }


def owned(weight: int, *, by: str = "headgate-rollout", **metadata: Any) -> Any:
    """Return the TrafficSplit of a Canary."""
    return split("owned", weight, by=by, ownerReferences=[CANARY], **metadata)


def service(name: str, **spec: Any) -> Any:
    """Return a Service."""
    ports = [{"name": "http", "port": 8080}]
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": ports, **spec}}


def records(*objects: Any) -> Mapping[Key, Record]:
    """Return the records of objects by key."""
    return {key_of(obj): record_of(obj) for obj in objects}


def contents(*objects: Any) -> Mapping[Key, bytes]:
    """Return the contents of objects by key."""
    return {key: record.content for key, record in records(*objects).items()}
