"""The objects that controllers make of a written object, or delete with it, for plans and for the warnings of writes."""

import contextlib
from collections.abc import Iterable, Mapping

from headgate.compiler.snapshot import Snapshot
from headgate.errors import NotFound
from headgate.plane.feed import with_objects
from headgate.plane.live_state import LiveState
from headgate.resources.meta import Key, Object
from headgate.resources.registry import CANARY, ROUTE_GROUP, TRAFFIC_SPLIT, key_of

Made = Mapping[Key, tuple[Key, Object | None]]
"""The maker and the new form of each made object; None if it is deleted."""


async def made_objects(
    live_state: LiveState, before: Snapshot, written: Iterable[Object], deleted: Iterable[Key]
) -> Made:
    """Return what follows from writes and deletions. `before` has the objects without them."""
    objects, gone = list(written), set(deleted)
    after = with_objects(before, {**{key_of(obj): obj for obj in objects}, **dict.fromkeys(gone)})
    found: dict[Key, tuple[Key, Object | None]] = {}
    for maker in gone:
        if owner := before.objects.get(maker):
            found |= dict.fromkeys(_owned(before, owner.metadata.uid), (maker, None))
    for obj in objects:
        key = key_of(obj)
        if (key.group, key.kind) == (CANARY.group, CANARY.kind):
            stored = await _stored(live_state, before, key, obj)
            made = live_state.made(obj, stored, after, live_state.loop.settings.domain)
            found |= {name: (key, _merged(stored.get(name), item)) for name, item in made.items()}
    return found


def _owned(snapshot: Snapshot, uid: str) -> Iterable[Key]:
    """Return the objects that are deleted with their owner."""
    if not uid:
        return []
    owners = ((key, item.metadata.owner_references) for key, item in snapshot.objects.items())
    return [key for key, references in owners if any(reference.uid == uid for reference in references)]


async def _stored(live_state: LiveState, before: Snapshot, key: Key, obj: Object) -> Mapping[Key, Object]:
    """Return the stored objects that a Canary owns, or that have the name of its split."""
    owned = _owned(before, obj["metadata"].get("uid", ""))
    kinds = {(kind.group, kind.kind) for kind in (TRAFFIC_SPLIT, ROUTE_GROUP)}
    names = {name for name in owned if (name.group, name.kind) in kinds} | {TRAFFIC_SPLIT.key(key.namespace, key.name)}
    found: dict[Key, Object] = {}
    for name in names:
        with contextlib.suppress(NotFound):
            found[name] = await live_state.store.get(name)
    return found


def _merged(stored: Object | None, wanted: Object | None) -> Object | None:
    """Return a wanted object as it is stored after a server-side apply."""
    if stored is None or wanted is None:
        return wanted
    written = wanted["metadata"]
    annotations = {**(stored["metadata"].get("annotations") or {}), **(written.get("annotations") or {})}
    return {**stored, "metadata": {**stored["metadata"], **written, "annotations": annotations}, "spec": wanted["spec"]}
