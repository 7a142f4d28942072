"""`scale`: the number of replicas of a Deployment or ReplicaSet as an object of its own (autoscaling/v1)."""

from collections.abc import Callable, Mapping
from typing import Any

from headgate.errors import Cause, DecodeError
from headgate.resources.meta import Object


def scale_of(obj: Object) -> dict[str, Any]:
    """Return the Scale of a workload."""
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    labels = (spec.get("selector") or {}).get("matchLabels") or {}
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in names if name in metadata},
        "spec": {"replicas": spec.get("replicas", 1)},
        "status": {
            "replicas": (obj.get("status") or {}).get("replicas", 0),
            "selector": ",".join(f"{key}={value}" for key, value in sorted(labels.items())),
        },
    }


def changed(change: Callable[[Object], Object]) -> Callable[[Object], Object]:
    """Turn a change of a Scale into the change of its workload."""
    return lambda obj: _with_scale(obj, change(scale_of(obj)))


def replaced(scale: Mapping[str, Any]) -> Callable[[Object], Object]:
    """Return the change that a whole new Scale makes."""
    return lambda obj: _with_scale(obj, scale)


def applied(scale: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a workload that an applied Scale sets."""
    spec, metadata = scale.get("spec"), scale.get("metadata")
    given = {"spec": {"replicas": spec["replicas"]}} if isinstance(spec, Mapping) and "replicas" in spec else {}
    return {"metadata": metadata if isinstance(metadata, Mapping) else {}, **given}


def _with_scale(obj: Object, scale: Mapping[str, Any]) -> Object:
    spec, metadata = scale.get("spec"), scale.get("metadata")
    replicas = spec.get("replicas", 0) if isinstance(spec, Mapping) else None
    if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 0:
        raise DecodeError(Cause("spec.replicas", "must be a whole number of 0 or more"))
    revision = metadata.get("resourceVersion") if isinstance(metadata, Mapping) else None
    wanted = {**obj["metadata"], "resourceVersion": revision or obj["metadata"]["resourceVersion"]}
    return {**obj, "metadata": wanted, "spec": {**(obj.get("spec") or {}), "replicas": replicas}}
