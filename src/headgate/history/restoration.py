"""What leads from the present objects back to those of an earlier revision."""

from collections.abc import Mapping
from typing import Any, Literal

from headgate.history.records import content_of, controller_of, is_bookkeeping, object_in
from headgate.history.revisions import Contents
from headgate.resources.meta import Key, Object, Value, part
from headgate.resources.registry import SERVICE, find_written

Verb = Literal["create", "update", "delete"]
_RESTORED = ("labels", "annotations", "ownerReferences")


class Restoration(Value, frozen=True, kw_only=True):
    """A step to an earlier revision. `present` has the object's content, `wanted` the content to write; None without the object.

    `skipped` is the reason if the step is left out; empty if it is not.
    """

    verb: Verb
    key: Key
    present: bytes | None
    wanted: bytes | None
    skipped: str = ""


def restorations(present: Contents, past: Contents) -> tuple[Restoration, ...]:
    """Return the steps that restore the objects of the past: Services first, deletions last."""
    steps = [
        _restoration(key, present.get(key), past.get(key))
        for key in sorted(present.keys() | past.keys())
        if not is_same(present.get(key), past.get(key))
    ]
    return tuple(sorted(steps, key=lambda step: (step.verb == "delete", step.key.kind != SERVICE.kind)))


def is_same(content: bytes | None, other: bytes | None) -> bool:
    """Return whether two contents are the same but for what is not restored: the time of creation, and `Kind.unrestored`."""
    if content is None or other is None or content == other:
        return content == other
    return _restored(content) == _restored(other)


def _restored(content: bytes) -> bytes:
    obj = object_in(content)
    obj["metadata"].pop("creationTimestamp", None)
    return content_of({**obj, **_spec(obj, {})})


def _restoration(key: Key, present: bytes | None, past: bytes | None) -> Restoration:
    verb: Verb = "delete" if past is None else "create" if present is None else "update"
    controllers = (controller_of(object_in(content)) for content in (present, past) if content)
    controller = next(filter(None, controllers), "")
    skipped = f"{controller} controls it" if controller else ""
    written = past and content_of(manifest(past, object_in(present) if present else None))
    return Restoration(verb=verb, key=key, present=present, wanted=written, skipped=skipped)


def manifest(content: bytes, stored: Object | None = None) -> dict[str, Any]:
    """Return the object to write so that it has an earlier content; `stored` is the present one, None if it is created.

    The object keeps what the history does not record: finalizers, and annotations that name its manifest.
    """
    earlier = object_in(content)
    metadata = {name: value for name, value in earlier["metadata"].items() if name != "creationTimestamp"}
    if stored is None:
        return {**earlier, "metadata": metadata, **_spec(earlier, {})}
    kept = {name: value for name, value in stored["metadata"].items() if name not in _RESTORED}
    marks = {name: text for name, text in part(stored["metadata"], "annotations").items() if is_bookkeeping(name)}
    annotations = {**part(metadata, "annotations"), **marks}
    restored = {name: metadata[name] for name in _RESTORED if name in metadata} | {"annotations": annotations}
    status = {"status": stored["status"]} if "status" in stored else {}
    whole = {**earlier, "metadata": {**kept, **{name: value for name, value in restored.items() if value}}}
    return {**whole, **_spec(earlier, part(stored, "spec")), **status}


def _spec(earlier: Object, present: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec with those fields of the present object that are not restored; a headless Service stays headless."""
    if "spec" not in earlier:
        return {}
    kind, spec = find_written(earlier["apiVersion"], earlier["kind"]), earlier["spec"]
    if not kind or not kind.unrestored or spec.get("clusterIP") == "None":
        return {"spec": spec}
    left = {name: value for name, value in spec.items() if name not in kind.unrestored}
    return {"spec": {**left, **{name: present[name] for name in kind.unrestored if name in present}}}
