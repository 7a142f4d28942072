"""Deletion in the foreground: an object stays, being deleted, until the objects that it owns are gone.

See https://kubernetes.io/docs/concepts/architecture/garbage-collection/#foreground-deletion.
"""

from headgate.objects import lifecycle
from headgate.resources.meta import Key, Object
from headgate.standalone.store.object_index import ObjectIndex

FOREGROUND = "foregroundDeletion"
"""The finalizer of an object that is deleted in the foreground."""


def requested(obj: Object) -> Object:
    """Return an object with the finalizer: its deletion will be in the foreground."""
    return lifecycle.with_metadata(obj, finalizers=[*_remaining(obj), FOREGROUND])


def is_requested(obj: Object) -> bool:
    """Return whether the deletion of an object is in the foreground."""
    return FOREGROUND in (obj["metadata"].get("finalizers") or ())


def done(obj: Object) -> Object:
    """Return an object without the finalizer."""
    return lifecycle.with_metadata(obj, finalizers=_remaining(obj) or None)


def blocking(index: ObjectIndex, owner: Object) -> list[Key]:
    """Return the keys of the objects that keep their owner from being removed."""
    uid = owner["metadata"]["uid"]
    return [
        key
        for key in index.owned_by(uid)
        if (dependent := index.get(key))
        and any(
            reference["uid"] == uid and reference.get("blockOwnerDeletion")
            for reference in dependent["metadata"].get("ownerReferences") or ()
        )
    ]


def undeleted(index: ObjectIndex, owner: Object) -> list[Key]:
    """Return the keys of the objects that block their owner and are not being deleted yet."""
    return [
        key for key in blocking(index, owner) if "deletionTimestamp" not in (index.get(key) or {}).get("metadata", {})
    ]


def _remaining(obj: Object) -> list[str]:
    return [name for name in obj["metadata"].get("finalizers") or () if name != FOREGROUND]
