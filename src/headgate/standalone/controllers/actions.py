"""The actions of controllers: writes to the store that the functions `plan_*` return and `apply_actions` executes."""

from collections.abc import Collection, Iterable, Sequence
from typing import Generic, Literal, NamedTuple, TypeAlias, TypeVar

from headgate.errors import AlreadyExists, Conflict, NotFound
from headgate.objects.events import EventRecorder
from headgate.objects.ports import Store
from headgate.resources.meta import Key, Object, controller_reference

T = TypeVar("T")
Severity: TypeAlias = Literal["Normal", "Warning"]


class TypedObject(NamedTuple, Generic[T]):
    """An object in two forms: `object` is its JSON for writes, `typed` is its decoded form for decisions."""

    object: Object
    typed: T


class Create(NamedTuple):
    """The action that creates an object. With `by`, an Event about that object says so."""

    object: Object
    by: Object | None = None


class Update(NamedTuple):
    """The action that replaces an object, or only its status, unless its resourceVersion has changed."""

    object: Object
    subresource: Literal["", "status"] = ""


class Delete(NamedTuple):
    """The action that deletes the object with this UID. A newer object with the same name is not deleted.

    With `by`, an Event about that object says so.
    """

    key: Key
    uid: str
    by: Object | None = None


class Announce(NamedTuple):
    """The action that records an Event about an object, unless the write before it was skipped.

    With `once`, the caller leaves it out if its last decision about the object had the same one.
    """

    about: Object
    type: Severity
    reason: str
    message: str
    once: bool = False


class Recheck(NamedTuple):
    """The request to decide again at a time, in seconds since the epoch, although no object has changed until then."""

    at: float


Action: TypeAlias = Create | Update | Delete | Announce | Recheck


def without_repeated(actions: Iterable[Action], before: Collection[str]) -> list[Action]:
    """Return the actions without Events that are recorded once and whose message is in `before`."""
    return [
        action for action in actions if not (isinstance(action, Announce) and action.once and action.message in before)
    ]


def recorded_once(actions: Iterable[Action]) -> list[str]:
    """Return the messages of the Events that are recorded once."""
    return [action.message for action in actions if isinstance(action, Announce) and action.once]


async def apply_actions(store: Store, recorder: EventRecorder, actions: Iterable[Action]) -> None:
    """Execute actions. Skip objects that have changed since the decision: the change makes the controller decide again.

    The caller handles `Recheck`. Raises Invalid when the store rejects an object.
    """
    written = True
    for action in actions:
        if isinstance(action, Announce):
            if written:
                await recorder.record(action.about, type=action.type, reason=action.reason, message=action.message)
            continue
        try:
            event = await _write(store, action)
            written = True
        except (AlreadyExists, Conflict, NotFound):
            written = False
            continue
        if event:
            await recorder.record(event.about, type=event.type, reason=event.reason, message=event.message)


async def _write(store: Store, action: Create | Update | Delete | Recheck) -> Announce | None:
    """Execute an action; return the Event about it."""
    match action:
        case Create(obj, by):
            name = (await store.create(obj))["metadata"]["name"]
            return Announce(by, "Normal", "SuccessfulCreate", f"Created {obj['kind'].lower()}: {name}") if by else None
        case Update(obj, subresource):
            await store.update(obj, subresource=subresource)
        case Delete(key, uid, by):
            await store.delete(key, uid=uid)
            return Announce(by, "Normal", "SuccessfulDelete", f"Deleted {key.kind.lower()}: {key.name}") if by else None
    return None


def adopt(obj: Object, owner: Object) -> Update:
    """Return the action that adds an owner to an object."""
    return with_owners(obj, [*(obj["metadata"].get("ownerReferences") or ()), controller_reference(owner)])


def with_owners(obj: Object, references: Sequence[object]) -> Update:
    """Return the action that replaces the owners of an object."""
    return Update({**obj, "metadata": {**obj["metadata"], "ownerReferences": list(references)}})


def with_status(obj: Object, status: Object) -> list[Action]:
    """Return the action that writes a status; no action if the status is unchanged."""
    return [] if obj.get("status") == status else [Update({**obj, "status": status}, "status")]
