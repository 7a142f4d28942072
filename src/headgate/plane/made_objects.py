"""The objects that controllers make of a written object, or delete with it, for plans and for the warnings of writes."""

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from headgate.compiler.snapshot import Snapshot
from headgate.errors import NotFound
from headgate.objects.ports import Reader
from headgate.plane.feed import with_objects
from headgate.resources.meta import Key, Object, annotations_of
from headgate.resources.registry import CANARY, ROUTE_GROUP, TRAFFIC_SPLIT, key_of

Made: TypeAlias = Mapping[Key, tuple[Key, Object | None]]
"""The maker and the new form of each made object; None if it is deleted."""
Makes: TypeAlias = Callable[[Object, Mapping[Key, Object], Snapshot, str], Mapping[Key, Object | None]]
"""A function of a written Canary, the stored objects that it owns, the snapshot with the write, and the DNS domain of Services.

It returns what the Canary makes of the objects that it owns, None for an object that is deleted.
"""
_NAMESPACE = "Namespace"


async def made_objects(
    store: Reader,
    before: Snapshot,
    change: tuple[Sequence[Object], Collection[Key], Collection[Key]],
    canaries: tuple[Makes, str],
) -> Made:
    """Return what follows from writes and deletions. `before` has the objects without them.

    `change` has the written objects, the deleted ones, and those of them with which the objects that they own are deleted.
    `canaries` has the function of Canaries and the DNS domain of Services.
    """
    (written, deleted, owners), (makes, domain) = change, canaries
    after = with_objects(before, {**{key_of(obj): obj for obj in written}, **dict.fromkeys(deleted)})
    following: dict[Key, tuple[Key, Object | None]] = dict(_deleted_with(before, owners))
    makers = {key_of(obj): obj for obj in written if _is_canary(key_of(obj))}
    for key in (*map(key_of, written), *deleted):  # a Canary writes an object again that another client changes
        if (owner := _canary_of(before, key)) and owner not in (*makers, *following, *deleted):
            with contextlib.suppress(NotFound):
                makers[owner] = await store.get(owner)
    for key, obj in makers.items():
        stored = await _stored(store, before, key, obj)
        edited = {
            name: content for name, content in ((key_of(content), content) for content in written) if name in stored
        }
        made = makes(
            obj, {name: content for name, content in (stored | edited).items() if name not in deleted}, after, domain
        )
        following |= {name: (key, _merged(stored.get(name), content)) for name, content in made.items()}
    return following


def _is_canary(key: Key) -> bool:
    return (key.group, key.kind) == (CANARY.group, CANARY.kind)


def _canary_of(snapshot: Snapshot, key: Key) -> Key | None:
    """Return the Canary that owns an object; None if there is none."""
    resource = snapshot.objects.get(key)
    references = resource.metadata.owner_references if resource else ()
    return next(
        (CANARY.key(key.namespace, reference.name) for reference in references if reference.kind == CANARY.kind), None
    )


def _deleted_with(snapshot: Snapshot, deleted: Collection[Key]) -> Iterator[tuple[Key, tuple[Key, None]]]:
    """Yield what is deleted with other objects: what they own, and the objects of a namespace."""
    for maker in deleted:
        if maker.kind == _NAMESPACE:
            inside = (key for key in (*snapshot.objects, *snapshot.mistakes) if key.namespace == maker.name)
            yield from ((key, (maker, None)) for key in inside)
        elif owner := snapshot.objects.get(maker):
            yield from ((key, (maker, None)) for key in _owned(snapshot, owner.metadata.uid))


def _owned(snapshot: Snapshot, uid: str) -> Iterable[Key]:
    """Return the objects that are deleted with their owner."""
    if not uid:
        return []
    owners = ((key, resource.metadata.owner_references) for key, resource in snapshot.objects.items())
    return [key for key, references in owners if any(reference.uid == uid for reference in references)]


async def _stored(store: Reader, before: Snapshot, key: Key, obj: Object) -> dict[Key, Object]:
    """Return the stored objects that a Canary owns, or that have the name of its split."""
    owned = _owned(before, obj["metadata"].get("uid", ""))
    kinds = {(kind.group, kind.kind) for kind in (TRAFFIC_SPLIT, ROUTE_GROUP)}
    names = {name for name in owned if (name.group, name.kind) in kinds} | {TRAFFIC_SPLIT.key(key.namespace, key.name)}
    stored: dict[Key, Object] = {}
    for name in names:
        with contextlib.suppress(NotFound):
            stored[name] = await store.get(name)
    return stored


def _merged(stored: Object | None, made: Object | None) -> Object | None:
    """Return a made object as it is stored after a server-side apply."""
    if stored is None or made is None:
        return made
    written = made["metadata"]
    annotations = {**annotations_of(stored), **(written.get("annotations") or {})}
    return {**stored, "metadata": {**stored["metadata"], **written, "annotations": annotations}, "spec": made["spec"]}
