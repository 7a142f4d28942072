"""The actions of controllers: writes to the store that the functions `plan_*` return and `apply_actions` executes."""

from collections.abc import Iterable, Sequence
from typing import Generic, Literal, NamedTuple, TypeAlias, TypeVar

from headgate.errors import AlreadyExists, Conflict, NotFound
from headgate.objects.ports import Store
from headgate.resources.meta import Key, Object, controller_reference

T = TypeVar("T")


class TypedObject(NamedTuple, Generic[T]):
    """An object in two forms: `object` is its JSON for writes, `typed` is its decoded form for decisions."""

    object: Object
    typed: T


class Create(NamedTuple):
    """The action that creates an object."""

    object: Object


class Update(NamedTuple):
    """The action that replaces an object, or only its status, unless its resourceVersion has changed."""

    object: Object
    subresource: Literal["", "status"] = ""


class Delete(NamedTuple):
    """The action that deletes the object with this UID. A newer object with the same name is not deleted."""

    key: Key
    uid: str


Action: TypeAlias = Create | Update | Delete


async def apply_actions(store: Store, actions: Iterable[Action]) -> None:
    """Execute actions. Skip objects that have changed since the decision: the change makes the controller decide again.

    Raises Invalid when the store rejects an object.
    """
    for action in actions:
        try:
            await _write(store, action)
        except (AlreadyExists, Conflict, NotFound):
            continue


async def _write(store: Store, action: Action) -> None:
    match action:
        case Create(obj):
            await store.create(obj)
        case Update(obj, subresource):
            await store.update(obj, subresource=subresource)
        case Delete(key, uid):
            await store.delete(key, uid=uid)


def adopt(obj: Object, owner: Object) -> Update:
    """Return the action that adds an owner to an object."""
    return with_owners(obj, [*(obj["metadata"].get("ownerReferences") or ()), controller_reference(owner)])


def with_owners(obj: Object, references: Sequence[object]) -> Update:
    """Return the action that replaces the owners of an object."""
    return Update({**obj, "metadata": {**obj["metadata"], "ownerReferences": list(references)}})


def with_status(obj: Object, status: Object) -> list[Action]:
    """Return the action that writes a status; no action if the status is unchanged."""
    return [] if obj.get("status") == status else [Update({**obj, "status": status}, "status")]
