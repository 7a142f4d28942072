"""What a controller decides: a list of writes. Deciding is pure; `apply_actions` writes."""

from collections.abc import Iterable, Sequence
from typing import Generic, Literal, NamedTuple, TypeAlias, TypeVar

from headgate.errors import AlreadyExists, Conflict, NotFound
from headgate.objects.ports import Store
from headgate.resources.meta import Key, Object

T = TypeVar("T")


class TypedObject(NamedTuple, Generic[T]):
    """An object whole, to be written back, and the fields that decisions need."""

    object: Object
    typed: T


class Create(NamedTuple):
    """Store a new object."""

    object: Object


class Update(NamedTuple):
    """Replace an object, or only its status, if it is still the version that the decision was made on."""

    object: Object
    subresource: Literal["", "status"] = ""


class Delete(NamedTuple):
    """Delete an object, if it is still the same one."""

    key: Key
    uid: str


Action: TypeAlias = Create | Update | Delete


async def apply_actions(store: Store, actions: Iterable[Action]) -> None:
    """Write. What changed meanwhile is left alone: that change wakes the controller, which decides anew.

    Raises Invalid when the store refuses an object.
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
    """Return the write that gives an object an owner."""
    return with_owners(obj, [*(obj["metadata"].get("ownerReferences") or ()), reference(owner)])


def with_owners(obj: Object, references: Sequence[object]) -> Update:
    """Return the write that replaces the owners of an object."""
    return Update({**obj, "metadata": {**obj["metadata"], "ownerReferences": list(references)}})


def with_status(obj: Object, status: Object) -> list[Action]:
    """Return the write of a status, if it differs."""
    return [] if obj.get("status") == status else [Update({**obj, "status": status}, "status")]


def reference(owner: Object) -> dict[str, object]:
    """Return an ownerReference to the controller of a new object."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
