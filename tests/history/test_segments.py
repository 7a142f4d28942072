"""The stored history: bounded, and complete after each write."""

import random
from collections.abc import Iterable

import pytest
from tests.history.objects import TIME

from headgate.history import segments
from headgate.history.revisions import Log, RecordedChange, RecordedRevision
from headgate.history.segments import SLOTS, DamagedHistory, Stored, Writes, decode, store
from headgate.resources.registry import SERVICE

_random = random.Random(7)


class Slots:
    """A storage of a base and a ring of slots."""

    def __init__(self) -> None:
        self.base = b""
        self.slots = [b""] * SLOTS
        self.written: list[int] = []

    def write(self, writes: Writes) -> None:
        for _ in self.steps(writes):
            pass

    def steps(self, writes: Writes) -> Iterable[None]:
        """Write one part after the other."""
        if writes.base is not None:
            self.base = writes.base
            yield
        for slot, data in writes.segments:
            self.slots[slot] = data
            self.written.append(slot)
            yield
        for slot in writes.cleared:
            self.slots[slot] = b""
            yield

    @property
    def log(self) -> Log:
        return decode(self.base, self.slots).log


def revision(number: int, size: int = 900) -> RecordedRevision:
    """Return a revision with an incompressible change of one of five objects."""
    change = RecordedChange(key=SERVICE.key("default", f"web-{number % 5}"), content=_random.randbytes(size))
    return RecordedRevision(number=number, time=TIME, reason="Written", changes=(change,), effect=("none",))


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 4000)
    monkeypatch.setattr(segments, "TOTAL_BYTES", 4000 * SLOTS)


def test_a_save_writes_only_the_newest_segment() -> None:
    storage, stored, log = Slots(), Stored.starting(Log()), Log()
    for number in range(1, 4):
        log = log._replace(revisions=(*log.revisions, revision(number)))
        writes = store(stored, log)
        stored = writes.stored
        storage.write(writes)
        assert writes.base is None or number == 1
    assert (storage.log, set(storage.written)) == (log, {0})


def test_the_oldest_revisions_are_dropped_and_their_objects_stay_known() -> None:
    storage, stored, whole = Slots(), Stored.starting(Log()), Log()
    for number in range(1, 120):
        whole = whole._replace(revisions=(*whole.revisions, revision(number)))
        writes = store(
            stored,
            whole if number == 1 else stored.log._replace(revisions=(*stored.log.revisions, whole.revisions[-1])),
        )
        stored = writes.stored
        storage.write(writes)
    kept = storage.log
    assert 20 < len(kept.revisions) < 119
    assert sum(map(len, storage.slots)) <= segments.TOTAL_BYTES
    assert [item.number for item in kept.revisions] == list(range(kept.base_number + 1, 120))
    for item in kept.revisions:
        assert kept.at(item.number) == whole.at(item.number)


def test_an_interrupted_save_leaves_a_complete_history() -> None:
    """After each written part, the storage has all revisions up to some number, with the right objects."""
    storage, stored, log = Slots(), Stored.starting(Log()), Log()
    saved = 0
    for size in (3, 2, 30, 1, 60, 40, 5):
        new = [revision(log.last + number) for number in range(1, size + 1)]
        log = log._replace(revisions=(*log.revisions, *new))
        writes = store(
            stored,
            Log(
                stored.log.base_number,
                stored.log.base,
                tuple(item for item in log.revisions if item.number > stored.base.number),
            ),
        )
        for _ in storage.steps(writes):
            part = storage.log
            assert not part.revisions or part.last >= saved
            assert all(part.at(item.number) == log.at(item.number) for item in part.revisions[-3:])
        stored, saved = writes.stored, log.last
        assert storage.log.last == saved


def test_the_number_of_revisions_is_limited_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENT_REVISIONS", 3)
    stored = Stored.starting(Log())
    bases = []
    for number in range(1, 90):
        writes = store(stored, stored.log._replace(revisions=(*stored.log.revisions, revision(number, size=1))))
        stored = writes.stored
        bases += [number] if writes.base else []
        assert len(stored.segments) <= SLOTS
    assert [len(segment.revisions) for segment, _ in stored.segments[:-1]] == [3] * (len(stored.segments) - 1)
    assert stored.log.last == 89
    assert bases == [1, 49, 64, 79]  # not at each new segment: the base has all objects


def test_a_revision_that_is_too_large_has_its_own_segment() -> None:
    storage, log = Slots(), Log(revisions=(revision(1), revision(2, size=30_000), revision(3)))
    writes = store(Stored.starting(Log()), log)
    storage.write(writes)
    assert [[item.number for item in segment.revisions] for segment, _ in writes.stored.segments] == [[1], [2], [3]]
    assert storage.log == log


def test_changes_of_the_last_revision_are_saved() -> None:
    storage, stored = Slots(), Stored.starting(Log())
    for content in (b"1", b"2"):
        change = RecordedChange(key=SERVICE.key("default", "web"), content=content)
        log = Log(revisions=(RecordedRevision(number=1, time=TIME, reason="ControllerWrote", changes=(change,)),))
        writes = store(stored, log)
        stored = writes.stored
        storage.write(writes)
        assert storage.log == log


def test_a_missing_or_damaged_part_is_detected() -> None:
    storage = Slots()
    storage.write(store(Stored.starting(Log()), Log(revisions=tuple(revision(number) for number in range(1, 12)))))
    with pytest.raises(DamagedHistory):
        decode(storage.base, [b"", *storage.slots[1:]])
    with pytest.raises(DamagedHistory):
        decode(storage.base, [b"damaged", *storage.slots[1:]])
