"""Revisions of the users' objects: a log of changes, from which the objects at each revision are computed."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from msgspec import structs

from headgate.history.records import RECORDED, Record
from headgate.resources.mesh_keys import FILES_MANAGER
from headgate.resources.meta import Key, Value, epoch_seconds, timestamp
from headgate.resources.revisions import Reason

SAME_SECOND_S = 2.0
"""The age of an entry in managedFields up to which it is of the newest write. Times of entries are in whole seconds."""

MOST_EARLIER, MOST_EARLIER_BYTES = 32, 16 << 10
"""How many earlier writes of a combined change are kept at most, and how many bytes of their contents."""

Contents = Mapping[Key, bytes]


class EarlierWrite(Value, frozen=True, kw_only=True):
    """A write of a controller before the last one of a combined change: its time, its writer, and the content afterwards."""

    time: str
    by: str = ""
    content: bytes | None = None


class RecordedChange(Value, frozen=True, kw_only=True):
    """The change to an object: its content afterwards, None if it was deleted.

    `by` is the field manager of the last writer, empty if it is unknown. `writes` is the number of combined changes. `first_time`
    is the time of the first of them, and `earlier` has the newest of those before the last one. `owner`
    is the controller that owns the object, such as `Canary website`. `position` is the `FILE:LINE` of the manifest that the
    change came from, that of the owner if the controller made the change; empty if it did not come from a file.
    """

    key: Key
    content: bytes | None
    by: str = ""
    time: str = ""
    writes: int = 1
    first_time: str = ""
    earlier: tuple[EarlierWrite, ...] = ()
    owner: str = ""
    position: str = ""

    @property
    def every_write(self) -> tuple[EarlierWrite, ...]:
        """The kept writes with the last one, oldest first."""
        return (*self.earlier, EarlierWrite(time=self.time, by=self.by, content=self.content))


class RecordedRevision(Value, frozen=True, kw_only=True):
    """Changes that took effect together. `time` (RFC 3339) is when headgate read the last one, `effect` what they did."""

    number: int
    time: str
    reason: Reason
    changes: tuple[RecordedChange, ...] = ()
    effect: tuple[str, ...] = ()


class Log(NamedTuple):
    """The revisions that are kept, oldest first, and the objects before the first of them.

    `base_number` is the number of the revision whose objects are in `base`, or 0.
    """

    base_number: int = 0
    base: Contents = MappingProxyType({})
    revisions: tuple[RecordedRevision, ...] = ()

    @property
    def last(self) -> int:
        """The number of the last revision."""
        return self.revisions[-1].number if self.revisions else self.base_number

    def at(self, number: int) -> Contents | None:
        """Return the objects at a revision; None if it is not kept."""
        if not any(revision.number == number for revision in self.revisions):
            return None
        return applied(self.base, (revision for revision in self.revisions if revision.number <= number))

    def steps(self) -> Iterator[tuple[RecordedRevision, Contents]]:
        """Yield each revision with the contents that its objects had before; other objects are left out."""
        contents = dict(self.base)
        for revision in self.revisions:
            yield (
                revision,
                {change.key: contents[change.key] for change in revision.changes if change.key in contents},
            )
            _apply(contents, revision)


def applied(base: Contents, revisions: Iterable[RecordedRevision]) -> Contents:
    """Return the objects after revisions."""
    contents = dict(base)
    for revision in revisions:
        _apply(contents, revision)
    return contents


def _apply(contents: dict[Key, bytes], revision: RecordedRevision) -> None:
    for change in revision.changes:
        if change.content is None:
            contents.pop(change.key, None)
        else:
            contents[change.key] = change.content


class Written(NamedTuple):
    """The changes between two states of all objects: those by clients, and those by the controllers of the objects."""

    by_clients: tuple[RecordedChange, ...]
    by_controllers: tuple[RecordedChange, ...]


def changes_between(
    before: Mapping[Key, Record],
    now: Mapping[Key, Record],
    seconds: float,
    objects: Mapping[Key, Record] = MappingProxyType({}),
) -> Written:
    """Return the changes to objects between two states. `seconds` is the current time since the epoch, `objects` has all objects now.

    A write that changes only the status, managedFields or bookkeeping of an object is no change.
    """
    clients: list[RecordedChange] = []
    controllers: list[RecordedChange] = []
    for key in sorted(before.keys() | now.keys()):
        old, new = before.get(key), now.get(key)
        if old and new and old.content == new.content:
            continue
        time, by = _writer(old, new, seconds)
        record = new or old or Record(content=b"")
        position = record.position if new and by == FILES_MANAGER else ""
        change = RecordedChange(
            key=key, content=new.content if new else None, by=by, time=time, owner=record.owner, position=position
        )
        if _is_of_controller(old, new, by):
            controllers.append(structs.replace(change, position=_owner_position(key, record.owner, objects)))
        else:
            clients.append(change)
    return Written(tuple(clients), tuple(controllers))


def _owner_position(key: Key, owner: str, objects: Mapping[Key, Record]) -> str:
    """Return the position of an owner's manifest, if that is its newest writer."""
    kind, _, name = owner.partition(" ")
    for group in (group for group, other in RECORDED if other == kind):
        record = objects.get(Key(group, kind, key.namespace, name))
        if record and any(by == FILES_MANAGER for _, by in record.newest):
            return record.position
    return ""


def _is_of_controller(old: Record | None, new: Record | None, by: str) -> bool:
    """Return whether the controller of an object made a change: the writer of the last changes, or of the first."""
    if old is None or new is None:
        return bool((old or new or Record(content=b"")).owner)
    return bool(new.owner) and by in {name for _, name in old.newest}


def _writer(old: Record | None, new: Record | None, seconds: float) -> tuple[str, str]:
    """Return the time and the writer of a change. A deletion leaves no trace of its client, like some removals of fields."""
    if new is not None and new.writers:
        earlier = old.writers if old else ()
        added = [writer for writer in new.newest if writer not in earlier]
        if added or seconds - epoch_seconds(new.writers[0][0]) <= SAME_SECOND_S:
            return (added or new.newest)[0]
    return timestamp(seconds), ""


def with_controllers(last: RecordedRevision, changes: Sequence[RecordedChange], time: str) -> RecordedRevision:
    """Return a revision by controllers that also has their next changes, with one change for each object.

    So the steps of a rollout do not push the revisions of users out of the history. Each step keeps its time and content.
    """
    by_key = {change.key: change for change in last.changes}
    for change in changes:
        before = by_key.get(change.key)
        by_key[change.key] = _combined(before, change) if before else change
    return structs.replace(last, time=time, changes=tuple(by_key[key] for key in sorted(by_key)))


def _combined(before: RecordedChange, change: RecordedChange) -> RecordedChange:
    """Return two changes to an object as one."""
    return structs.replace(
        change,
        writes=before.writes + change.writes,
        first_time=before.first_time or before.time,
        earlier=_newest(before.every_write),
    )


def _newest(writes: Sequence[EarlierWrite]) -> tuple[EarlierWrite, ...]:
    """Return the newest writes within the limits, oldest first."""
    kept: list[EarlierWrite] = []
    size = 0
    for write in reversed(writes[-MOST_EARLIER:]):
        size += len(write.content or b"")
        if size > MOST_EARLIER_BYTES:
            break
        kept.append(write)
    return tuple(reversed(kept))
