"""The stored form of the history: a base with objects, and a ring of segments with revisions.

Only the newest segment is written again. When the ring is full, the revisions of its oldest quarter become a part of the
base, and their objects stay known. The base has all objects, so it is written as seldom as possible.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from headgate.history.revisions import Log, RecordedRevision, applied
from headgate.resources.meta import Key, Value

SLOTS = 16
SEGMENT_BYTES, SEGMENT_REVISIONS = 64 << 10, 128
"""The limits of a compressed segment. A revision that is larger has a segment of its own.

A change to weights takes about 35 bytes in a segment, and 1 KB in memory, where the number of revisions matters.
"""
TOTAL_BYTES = SLOTS * SEGMENT_BYTES
_KEPT_SHARE = 0.75  # of the ring, when it was full


class Segment(Value, frozen=True, kw_only=True):
    """Consecutive revisions. `sequence` counts segments from the beginning, and determines the slot in the ring."""

    sequence: int
    revisions: tuple[RecordedRevision, ...] = ()

    @property
    def slot(self) -> int:
        """The number of the slot."""
        return self.sequence % SLOTS


class Base(Value, frozen=True, kw_only=True):
    """The objects at the revision `number`, and the sequence number of the first segment after it."""

    number: int = 0
    sequence: int = 0
    objects: tuple[tuple[Key, bytes], ...] = ()


class Stored(NamedTuple):
    """A history as it is stored: the base, and the segments with the size of each in bytes. The last segment grows."""

    base: Base
    segments: tuple[tuple[Segment, int], ...] = ()

    @classmethod
    def starting(cls, log: Log) -> "Stored":
        """Return the stored form of a log's base, without segments."""
        return cls(Base(number=log.base_number, objects=tuple(sorted(log.base.items()))))

    @property
    def log(self) -> Log:
        """The log of all revisions."""
        revisions = tuple(revision for segment, _ in self.segments for revision in segment.revisions)
        return Log(self.base.number, dict(self.base.objects), revisions)


class Writes(NamedTuple):
    """What to write to store a history: the base first, if it differs, then segments, then slots to clear."""

    stored: Stored
    base: bytes | None
    segments: tuple[tuple[int, bytes], ...]
    cleared: tuple[int, ...] = ()


class DamagedHistory(Exception):
    """The stored history can't be decoded, or a part is missing."""


def store(stored: Stored, log: Log) -> Writes:
    """Return what to write so that the stored history has the revisions of a log, within the limits of the sizes.

    The segments are written in order. When a write fails, those before it are a complete history.
    """
    kept = stored.segments[:-1]
    growing = stored.segments[-1][0] if stored.segments else Segment(sequence=stored.base.sequence)
    last = max((revision.number for revision in growing.revisions), default=0)
    first = kept[-1][0].revisions[-1].number if kept else stored.base.number
    packed = list(_grown(growing, [revision for revision in log.revisions if revision.number > first], last))
    segments = [*kept, *((segment, len(data)) for segment, data in packed)]
    dropped = []
    share = _KEPT_SHARE if _exceeds(segments, 1) else 1
    while len(segments) > 1 and _exceeds(segments, share):
        dropped.append(segments.pop(0)[0])
    base = _extended(stored.base, dropped)
    used = {segment.slot for segment, _ in segments}
    return Writes(
        Stored(base, tuple(segments)),
        encode(base) if base is not stored.base or not stored.segments else None,
        tuple((segment.slot, data) for segment, data in packed if segment not in dropped),
        tuple(sorted({segment.slot for segment in dropped} - used)),
    )


def _exceeds(segments: Sequence[tuple[Segment, int]], share: float) -> bool:
    """Return whether segments exceed a share of the limits."""
    return len(segments) > share * SLOTS or sum(size for _, size in segments) > share * TOTAL_BYTES


def _grown(growing: Segment, revisions: Sequence[RecordedRevision], last: int) -> Iterator[tuple[Segment, bytes]]:
    """Yield the growing segment with all revisions, or with those up to `last`, and then segments for later ones."""
    whole = Segment(sequence=growing.sequence, revisions=tuple(revisions))
    data = encode(whole)
    old = tuple(revision for revision in revisions if revision.number <= last)
    new = tuple(revision for revision in revisions if revision.number > last)
    is_full = len(data) > SEGMENT_BYTES or len(revisions) > SEGMENT_REVISIONS
    if not is_full or not new or len(revisions) == 1:
        yield whole, data
    elif old:
        closed = Segment(sequence=growing.sequence, revisions=old)
        yield closed, encode(closed)
        yield from _grown(Segment(sequence=growing.sequence + 1), new, 0)
    else:
        half = len(new) // 2
        first = list(_grown(growing, new[:half], 0))
        yield from first
        yield from _grown(Segment(sequence=growing.sequence + len(first)), new[half:], 0)


def _extended(base: Base, dropped: Sequence[Segment]) -> Base:
    """Return the base after the revisions of segments that are dropped."""
    if not dropped:
        return base
    revisions = [revision for segment in dropped for revision in segment.revisions]
    objects = applied(dict(base.objects), revisions)
    number = revisions[-1].number if revisions else base.number
    return Base(number=number, sequence=dropped[-1].sequence + 1, objects=tuple(sorted(objects.items())))


def encode(part: Base | Segment) -> bytes:
    """Return a part of the history as compressed bytes."""
    return zlib.compress(msgspec.msgpack.encode(part), 6)


def decode(base: bytes, slots: Iterable[bytes]) -> Stored:
    """Return the history in a base and the slots of the ring, of which some may be empty. Raises DamagedHistory."""
    try:
        start = msgspec.msgpack.decode(zlib.decompress(base), type=Base)
        decoded = [(msgspec.msgpack.decode(zlib.decompress(data), type=Segment), len(data)) for data in slots if data]
    except (zlib.error, msgspec.DecodeError) as error:
        raise DamagedHistory(str(error)) from error
    segments = sorted(
        (pair for pair in decoded if pair[0].sequence >= start.sequence), key=lambda pair: pair[0].sequence
    )
    if [segment.sequence for segment, _ in segments] != list(range(start.sequence, start.sequence + len(segments))):
        raise DamagedHistory("a segment is missing")
    return Stored(start, tuple(segments))
