"""What the history records of an object: its content, its last writer, and whether a controller owns it."""

from collections.abc import Mapping
from typing import Any

import msgspec

from headgate.merge.server_side_apply import LAST_APPLIED
from headgate.resources.mesh_keys import APPLIED_POSITION
from headgate.resources.meta import Key, Object, Value, part, rows
from headgate.resources.registry import KINDS

RECORDED = frozenset((kind.group, kind.kind) for kind in KINDS if kind.recorded)
"""The recorded kinds, by group and kind: those that users write to direct and protect traffic. Secrets are not recorded."""
_METADATA = ("name", "namespace", "labels", "annotations", "ownerReferences", "creationTimestamp")
_OF_FILES = "headgate.dev/applied-"  # the prefix of the annotations in `manifests.apply`
_ENCODER = msgspec.json.Encoder(order="deterministic")


class Record(Value, frozen=True, kw_only=True):
    """The state of an object: its content as JSON, and its writers.

    `writers` has the times and names of the field managers in managedFields that wrote the object itself, newest first.
    `owner` is the controller that owns the object, such as `Canary website`; empty if there is none. `position` is the file
    and line of the manifest that headgate has applied, as `FILE:LINE`.
    """

    content: bytes
    writers: tuple[tuple[str, str], ...] = ()
    owner: str = ""
    position: str = ""

    @property
    def newest(self) -> tuple[tuple[str, str], ...]:
        """The writers with the newest time: several, if they wrote in the same second."""
        return tuple(writer for writer in self.writers if writer[0] == self.writers[0][0])


def record_of(obj: Object) -> Record:
    """Return the record of an object in hub version."""
    entries = (entry for _, entry in rows(part(obj, "metadata").get("managedFields")))
    writers = {
        (str(entry.get("time") or ""), str(entry.get("manager") or "")) for entry in entries if not _is_of_status(entry)
    }
    return Record(
        content=content_of(obj),
        writers=tuple(sorted(writers, reverse=True)),
        owner=controller_of(obj),
        position=str(part(part(obj, "metadata"), "annotations").get(APPLIED_POSITION) or ""),
    )


def content_of(obj: Object) -> bytes:
    """Return the recorded content of an object as JSON, without its status and the bookkeeping of servers and clients."""
    metadata = {name: value for name, value in part(obj, "metadata").items() if name in _METADATA and value}
    if kept := {name: text for name, text in part(metadata, "annotations").items() if not is_bookkeeping(name)}:
        metadata["annotations"] = kept
    else:
        metadata.pop("annotations", None)
    return _ENCODER.encode({name: value for name, value in obj.items() if name != "status"} | {"metadata": metadata})


def object_in(content: bytes) -> dict[str, Any]:
    """Return the object in a record's content."""
    return msgspec.json.decode(content, type=dict[str, Any])


def is_bookkeeping(annotation: str) -> bool:
    """Return whether an annotation only says from which manifest the object was applied."""
    return annotation == LAST_APPLIED or annotation.startswith(_OF_FILES)


def controller_of(obj: Object) -> str:
    """Return the controller that owns an object, such as `Canary website`; empty if there is none."""
    owners = (reference for _, reference in rows(part(obj, "metadata").get("ownerReferences")))
    return next(
        (f"{reference.get('kind')} {reference.get('name')}" for reference in owners if reference.get("controller")), ""
    )


def is_recorded(key: Key) -> bool:
    """Return whether the history records objects of this kind."""
    return (key.group, key.kind) in RECORDED


def _is_of_status(entry: Mapping[str, Any]) -> bool:
    """Return whether an entry of managedFields is of a write to a subresource, which Kubernetes before 1.22 does not name."""
    return bool(entry.get("subresource")) or part(entry, "fieldsV1").keys() == {"f:status"}
