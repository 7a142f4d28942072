"""Types of the inspect API for the history of the mesh, for its server and its clients."""

from collections.abc import Mapping
from typing import Any, Literal

from headgate.resources.inspect import API_VERSION, Answer, AnswerList, ObjectName, Time
from headgate.resources.meta import Key

Action = Literal["Created", "Changed", "Deleted", "Unchanged"]
Reason = Literal["RecordingStarted", "Written", "ControllerWrote", "NotRecorded"]
"""Why there is a revision. `RecordingStarted`: the first one, with all objects at that time. `Written`: clients wrote.
`ControllerWrote`: controllers, such as that of a Canary, wrote objects that they own. `NotRecorded`: the changes were made while
no control plane recorded them."""


class ChangedField(Answer, frozen=True, kw_only=True):
    """A field of an object with its values; null means that the field is missing."""

    path: str
    before: Any = None
    after: Any = None


class ChangeOwner(Answer, frozen=True, kw_only=True):
    """The controller that owns a changed object, in its namespace."""

    kind: str
    name: str


class ObjectWrite(Answer, frozen=True, kw_only=True):
    """One of the combined writes of a controller, with the fields that it changed."""

    write_time: Time
    by: str = ""
    fields: tuple[ChangedField, ...] = ()


class ObjectChange(Answer, frozen=True, kw_only=True):
    """The change to an object. `by` is the field manager of its writer, empty if it is unknown.

    `owner` is the controller that owns the object. `file` and `line` come from the manifest
    that the change came from, when `headgate up` applied it; those of the owner's manifest if the controller made the change.
    `writes` is the number of writes; only those of controllers are combined. `first_write_time` is the time of the first
    of several, `write_time` that of the last, and `steps` has the newest of them, oldest first. `Unchanged` means that the last of them
    restored what was before the first.
    """

    object: Key
    action: Action
    by: str = ""
    write_time: Time = None
    first_write_time: Time = None
    writes: int = 1
    steps: tuple[ObjectWrite, ...] = ()
    owner: ChangeOwner | None = None
    file: str = ""
    line: int = 0
    fields: tuple[ChangedField, ...] = ()


class Revision(Answer, frozen=True, kw_only=True):
    """Changes that took effect together, and what they did to requests and access; its name is the number.

    `record_time` is when headgate read the last change. `effect_messages` say what the changes did to requests and access.
    """

    metadata: ObjectName
    revision: int
    record_time: Time
    reason: Reason
    changes: tuple[ObjectChange, ...] = ()
    effect_messages: tuple[str, ...] = ()
    api_version: str = API_VERSION
    kind: str = "Revision"


class RevisionList(AnswerList, frozen=True, kw_only=True):
    """Revisions, oldest first. `older` is the number of kept revisions that are left out."""

    items: tuple[Revision, ...] = ()
    older: int = 0
    kind: str = "RevisionList"


class RestorationStep(Answer, frozen=True, kw_only=True):
    """A write that restores an object. `present` holds the object now, `wanted` the object to write; null without it.

    They have no status and no managedFields. Fields that are not restored have their present values in both. `skip_message` says why the object must not be restored; it is empty if it is to be restored.
    """

    verb: Literal["create", "update", "delete"]
    object: Key
    present: Mapping[str, Any] | None = None
    wanted: Mapping[str, Any] | None = None
    skip_message: str = ""


class RevisionRestoration(Answer, frozen=True, kw_only=True):
    """The writes that restore the objects of a revision: Services first, deletions last."""

    metadata: ObjectName
    record_time: Time
    steps: tuple[RestorationStep, ...] = ()
    api_version: str = API_VERSION
    kind: str = "RevisionRestoration"
