"""Records the revisions of the users' objects, with what each change did to requests and access.

The active control plane records; a standby only follows the objects. It compares the objects with those of the last saved
revision when it becomes active, so a change that no control plane recorded becomes a revision too.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from msgspec import structs

from headgate.compiler.report import Compiled
from headgate.compiler.snapshot import SERVICE_NAME_LABEL, Snapshot
from headgate.errors import StoreError
from headgate.history.records import Record
from headgate.history.revisions import (
    Log,
    RecordedChange,
    RecordedRevision,
    applied,
    changes_between,
    with_controllers,
)
from headgate.latest import Latest, until
from headgate.objects.ports import Ports
from headgate.plan.lines import summary
from headgate.plane.history_storage import HistoryStorage
from headgate.plane.live_state import LiveState
from headgate.plane.past import snapshot_at
from headgate.resources.discovery.endpoint_slice import EndpointSlice
from headgate.resources.meta import Key, timestamp
from headgate.resources.registry import SERVICE
from headgate.resources.revisions import Reason
from headgate.shared_map import SharedMap, replaced

COMPILE_S = 10.0
"""The longest wait for the compilation of a change. After it, the revision has no effect in words."""
SETTLE_S = 0.1
"""The longest wait for the proxies' answers to a change, in seconds, before its effect is described: they come first."""
MOST_LINES = 40
"""How many lines of an effect are kept at most."""

log = logging.getLogger(__name__)


class CompiledObjects(NamedTuple):
    """A compiled mesh with its objects."""

    compiled: Compiled | None = None
    snapshot: Snapshot | None = None


class HistoryRecorder:
    """Adds a revision to `LiveState.history` after each change, and saves the history."""

    def __init__(self, ports: Ports, live_state: LiveState, *, clock: Callable[[], float] = time.time) -> None:
        self._ports = ports
        self._live_state = live_state
        self._clock = clock
        self._storage = HistoryStorage(ports.state)
        self._known: SharedMap[Key, Record] = SharedMap()  # the objects at the last revision
        self._last = CompiledObjects()  # before the next change
        self._opened: CompiledObjects | None = None  # before the last revision
        self._caused: frozenset[Key] = frozenset()  # the objects of the last revision, while its consequences may come
        self._count: Latest[int] = Latest(0)  # of the changes in the log
        self._saved = 0  # the count when it was saved
        self._saving = asyncio.Lock()

    async def run(self) -> None:
        """Record until canceled. Save each change, and at the end what is not saved yet."""
        await until(self._ports.active.get, self._ports.active)
        await self._live_state.wait_compiled()
        # Changes from now on are recorded with their writers, also those that come while the history is loaded.
        feed = self._live_state.feed
        self._known = feed.records
        self._last = CompiledObjects(self._live_state.loop.compiled.get(), feed.snapshot.get())
        await self._start(await self._storage.load())
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._record(), name="revisions")
                tasks.create_task(self._save(), name="saved history")
        finally:
            with contextlib.suppress(StoreError):
                await asyncio.shield(self._save_now())

    @property
    def _log(self) -> Log:
        return self._live_state.history.get() or Log()

    def _set(self, current: Log) -> None:
        self._live_state.history.replace(current)
        self._count.set(self._count.get() + 1)

    async def _start(self, saved: Log | None) -> None:
        """Continue a saved history, with a revision for what changed since it was saved; or begin a history."""
        now = self._known
        if saved is None:
            first = RecordedRevision(number=1, time=timestamp(self._clock()), reason="RecordingStarted")
            self._set(Log(0, {key: record.content for key, record in now.items()}, (first,)))
            return
        self._live_state.history.replace(saved)
        contents = applied(saved.base, saved.revisions)
        before = {key: Record(content=content) for key, content in contents.items()}
        unrecorded = changes_between(before, now, self._clock())
        if changes := tuple(
            sorted((*unrecorded.by_clients, *unrecorded.by_controllers), key=lambda change: change.key)
        ):
            past = await self._live_state.preview(snapshot_at(self._live_state, contents))
            self._add("NotRecorded", changes, await self._effect(CompiledObjects(past), self._last))

    async def _record(self) -> None:
        feed, loop = self._live_state.feed, self._live_state.loop
        while True:
            await until(
                lambda: feed.records is not self._known or loop.compiled.get() is not self._last.compiled,
                feed.seen,
                loop.compiled,
            )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(COMPILE_S):
                    await until(lambda: self._live_state.is_current, feed.seen, loop.compiled)
            before, self._last = self._last, CompiledObjects(loop.compiled.get(), feed.snapshot.get())
            if feed.records is self._known:
                await self._add_consequences(before)
            else:
                await self._add_changes(feed.records, before)

    async def _add_changes(self, now: SharedMap[Key, Record], before: CompiledObjects) -> None:
        new, gone = replaced(self._known, now)
        old = {key: self._known[key] for key in (*new, *gone) if key in self._known}
        self._known = now
        writes = changes_between(old, new, self._clock(), now)
        if writes.by_clients:
            self._opened = before
            self._add("Written", writes.by_clients, await self._effect(before, self._last))
        if writes.by_controllers:
            # the effect of both is that of the clients' revision
            await self._add_of_controllers(writes.by_controllers, self._last if writes.by_clients else before)
        if changes := (*writes.by_clients, *writes.by_controllers):
            self._caused = frozenset(change.key for change in changes)

    async def _add_consequences(self, before: CompiledObjects) -> None:
        """Add to the effect of the last revision what controllers do because of it, in objects that are not recorded."""
        changed = list(_differing(before.snapshot, self._last.snapshot))
        if not changed or not self._caused:
            return
        if not all(cause in self._caused for cause in changed):
            self._caused = frozenset()  # another change, so later effects are not those of the revision
            return
        base_number, base, revisions = self._log
        effect = await self._effect(self._opened, self._last)
        if tuple(effect) != revisions[-1].effect:
            self._set(Log(base_number, base, (*revisions[:-1], structs.replace(revisions[-1], effect=tuple(effect)))))

    async def _add_of_controllers(self, changes: Sequence[RecordedChange], before: CompiledObjects) -> None:
        """Add changes by controllers to the last revision if it is by controllers too, else as a new one."""
        base_number, base, revisions = self._log
        last = revisions[-1]
        if last.reason != "ControllerWrote":
            self._opened = before
            self._add("ControllerWrote", changes, await self._effect(before, self._last))
            return
        self._opened = self._opened or before  # after a restart, the effect is that of the changes since then
        more = with_controllers(last, changes, timestamp(self._clock()))
        effect = await self._effect(self._opened, self._last)
        whole = structs.replace(more, effect=tuple(effect) or last.effect)
        self._set(Log(base_number, base, (*revisions[:-1], whole)))

    def _add(self, reason: Reason, changes: Sequence[RecordedChange], effect: Sequence[str]) -> None:
        current = self._log
        revision = RecordedRevision(
            number=current.last + 1,
            time=timestamp(self._clock()),
            reason=reason,
            changes=tuple(changes),
            effect=tuple(effect),
        )
        self._set(current._replace(revisions=(*current.revisions, revision)))

    async def _effect(self, before: CompiledObjects | None, after: CompiledObjects) -> Sequence[str]:
        if before is None or before.compiled is None or after.compiled is None or before.compiled is after.compiled:
            return ()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_S):
                await self._live_state.wait_distributed()
        try:
            lines = await asyncio.to_thread(_lines, before.compiled, after.compiled, before.snapshot, after.snapshot)
        except Exception:  # a bug there must not end the recording
            log.exception("the effect of a change can't be described")
            return ("unknown; the log of headgate has the error",)
        return lines if len(lines) <= MOST_LINES else (*lines[:MOST_LINES], f"and {len(lines) - MOST_LINES} more")

    async def _save(self) -> None:
        """Save the history after each change, with a pause between two saves."""
        failed = False
        while True:
            await until(lambda: self._count.get() != self._saved, self._count)
            try:
                await asyncio.shield(self._save_now())  # a write that began is not interrupted
                failed = False
            except StoreError as error:
                if not failed:
                    log.warning("the history can't be saved; a restart would lose its last revisions: %s", error)
                failed = True
            await asyncio.sleep(self._storage.interval_s)

    async def _save_now(self) -> None:
        """Save what is not saved yet, and drop the revisions that exceed the limits of the storage. Raises StoreError."""
        async with self._saving:
            if (count := self._count.get()) == self._saved:
                return
            current = self._log
            kept = await self._storage.save(current)
            self._saved = count
            if kept.base_number != current.base_number:
                newer = [revision for revision in self._log.revisions if revision.number > kept.base_number]
                self._live_state.history.replace(Log(kept.base_number, kept.base, tuple(newer)))


def _differing(before: Snapshot | None, after: Snapshot | None) -> Iterator[Key]:
    """Yield for each object that differs the object that caused it: an EndpointSlice follows from its Service."""
    if before is None or after is None:
        return
    for key in chain(*replaced(before.objects, after.objects)):
        resource = after.objects.get(key) or before.objects.get(key)
        if isinstance(resource, EndpointSlice):
            yield SERVICE.key(key.namespace, resource.metadata.labels.get(SERVICE_NAME_LABEL, ""))
        else:
            yield key


def _lines(before: Compiled, after: Compiled, old: Snapshot | None, new: Snapshot | None) -> Sequence[str]:
    return summary(before, after, (old, new) if old and new else None)
