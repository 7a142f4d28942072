"""What leads from the present objects back to those of an earlier revision."""

from collections.abc import Mapping
from typing import Any, Literal

from headgate.history.records import content_of, controller_of, is_bookkeeping, object_in
from headgate.history.revisions import Contents
from headgate.resources.meta import Key, Object, Value, part
from headgate.resources.registry import SERVICE

Verb = Literal["create", "update", "delete"]
_OF_CLUSTER = ("clusterIP", "clusterIPs", "ipFamilies", "healthCheckNodePort")
"""Fields of a Service that belong to the present one: the API server sets them, and they can't be changed."""
_RESTORED = ("labels", "annotations", "ownerReferences")


class Restoration(Value, frozen=True, kw_only=True):
    """A step to an earlier revision. `present` and `wanted` are the object's contents, None without the object.

    `skipped` is the reason if the step is left out; empty if it is not.
    """

    verb: Verb
    key: Key
    present: bytes | None
    wanted: bytes | None
    skipped: str = ""


def restorations(present: Contents, past: Contents) -> tuple[Restoration, ...]:
    """Return the steps that restore the objects of the past: Services first, deletions last."""
    found = [
        _restoration(key, present.get(key), past.get(key))
        for key in sorted(present.keys() | past.keys())
        if not is_same(present.get(key), past.get(key))
    ]
    return tuple(sorted(found, key=lambda item: (item.verb == "delete", item.key.kind != SERVICE.kind)))


def is_same(one: bytes | None, other: bytes | None) -> bool:
    """Return whether two contents are the same but for the time of creation, which can't be restored."""
    if one is None or other is None or one == other:
        return one == other
    return _without_creation(one) == _without_creation(other)


def _without_creation(content: bytes) -> bytes:
    obj = object_in(content)
    obj["metadata"].pop("creationTimestamp", None)
    return content_of(obj)


def _restoration(key: Key, present: bytes | None, wanted: bytes | None) -> Restoration:
    verb: Verb = "delete" if wanted is None else "create" if present is None else "update"
    controllers = (controller_of(object_in(content)) for content in (present, wanted) if content)
    controller = next(filter(None, controllers), "")
    skipped = f"{controller} controls it" if controller else ""
    return Restoration(verb=verb, key=key, present=present, wanted=wanted, skipped=skipped)


def manifest(content: bytes, stored: Object | None = None) -> dict[str, Any]:
    """Return the object to write so that it has an earlier content; `stored` is the present one, None if it is created.

    The object keeps what the history does not record: finalizers, and annotations that name its manifest.
    """
    wanted = object_in(content)
    metadata = {name: value for name, value in wanted["metadata"].items() if name != "creationTimestamp"}
    if stored is None:
        return {**wanted, "metadata": metadata, **_spec(wanted, {})}
    kept = {name: value for name, value in stored["metadata"].items() if name not in _RESTORED}
    marks = {name: text for name, text in part(stored["metadata"], "annotations").items() if is_bookkeeping(name)}
    annotations = {**part(metadata, "annotations"), **marks}
    restored = {name: metadata[name] for name in _RESTORED if name in metadata} | {"annotations": annotations}
    status = {"status": stored["status"]} if "status" in stored else {}
    whole = {**wanted, "metadata": {**kept, **{name: value for name, value in restored.items() if value}}}
    return {**whole, **_spec(wanted, part(stored, "spec")), **status}


def _spec(wanted: Object, stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec of a Service with the present one's addresses, or without any; a headless Service stays headless."""
    if "spec" not in wanted:
        return {}
    spec = wanted["spec"]
    if wanted["kind"] != SERVICE.kind or spec.get("clusterIP") == "None":
        return {"spec": spec}
    left = {name: value for name, value in spec.items() if name not in _OF_CLUSTER}
    return {"spec": {**left, **{name: stored[name] for name in _OF_CLUSTER if name in stored}}}
