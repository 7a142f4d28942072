"""Objects for tests of the history."""

from collections.abc import Mapping
from typing import Any

from tests.make.objects import Object, split

from headgate.history.records import Record, record_of
from headgate.resources.meta import Key
from headgate.resources.registry import key_of

TIME = "2026-01-31T12:00:00Z"
CANARY = {"apiVersion": "headgate.dev/v1beta1", "kind": "Canary", "name": "website", "uid": "1", "controller": True}


def website_split(
    name: str = "website", weight: int = 90, *, by: str = "kubectl", time: str = TIME, **metadata: Any
) -> Object:
    """Return a TrafficSplit with two backends; `weight` is that of the first."""
    fields = [{"manager": by, "operation": "Update", "time": time}]
    weights = {"website-v1": weight, "website-v2": 100 - weight}
    return split("website", weights, name=name, metadata={"managedFields": fields, **metadata})


def owned(weight: int, *, by: str = "headgate-rollout", **metadata: Any) -> Any:
    """Return the TrafficSplit of a Canary."""
    return website_split("owned", weight, by=by, ownerReferences=[CANARY], **metadata)


def records(*objects: Any) -> Mapping[Key, Record]:
    """Return the records of objects by key."""
    return {key_of(obj): record_of(obj) for obj in objects}


def contents(*objects: Any) -> Mapping[Key, bytes]:
    """Return the contents of objects by key."""
    return {key: record.content for key, record in records(*objects).items()}
