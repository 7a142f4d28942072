"""Warnings about a write: the compiler's findings about the object, and what the write does to requests and access."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Compiled
from headgate.compiler.snapshot import Snapshot
from headgate.history.records import content_of, is_recorded
from headgate.plan.quote import quote
from headgate.plan.world import World
from headgate.plane.feed import GROUP_KINDS, with_objects
from headgate.plane.live_state import LiveState
from headgate.plane.loop import other_rules
from headgate.plane.predictions import PredictedWrites, Prediction, predict
from headgate.resources.meta import Key, Object
from headgate.resources.registry import CANARY, SERVICE, key_of

PREVIEW_S = 2.0  # seconds that a webhook may wait for the compiler's findings
WARNINGS_S = 0.2  # seconds that a done write may wait for the compiler's findings
DELETION_S = 1.5  # seconds that a webhook may wait for the effect of a deletion, less than its timeout of 2 s
EFFECT_S = 1.0  # seconds that a write may wait for its effect, if the machine is busy: the work is limited by its steps

log = logging.getLogger(__name__)


class ReviewedWrite(NamedTuple):
    """An object before and after a write: `old` is None if the write creates it, `new` if the write deletes it.

    With `orphan`, the deletion keeps the objects that it owns.
    """

    old: Object | None
    new: Object | None
    dry_run: bool
    orphan: bool = False
    is_done: bool = False

    @property
    def key(self) -> Key:
        """The key of the object."""
        return key_of(self.new or self.old or {})

    @property
    def has_findings(self) -> bool:
        """Whether the preview has findings that are not known yet."""
        return self.new is not None and not self.is_done and (self.key.group, self.key.kind) in GROUP_KINDS

    @property
    def may_have_effect(self) -> bool:
        """Whether the write may change requests or access. A new Service has no endpoints yet, so its effect is not known."""
        is_service = (self.key.group, self.key.kind) == (SERVICE.group, SERVICE.kind)
        if not is_recorded(self.key) or (self.old is None and is_service):
            return False
        return not (self.old and self.new) or content_of(self.old) != content_of(self.new)

    @property
    def command(self) -> str:
        """The command that shows the whole effect."""
        if not self.dry_run:
            return "headgate history"
        deleted = f"--delete {self.key.kind.lower()}/{self.key.name} -n {self.key.namespace}"
        return f"headgate plan {'-f FILE' if self.new else deleted}"


async def prepare_warnings(
    live_state: LiveState, key: Key, old: Object | None
) -> Callable[..., Awaitable[Sequence[str]]]:
    """Return the function of `headgate.api.webhooks.WriteWarnings` for a write that follows. `old` is the stored object.

    Controllers of this process may react before the warnings are computed. If they write what routes requests, the effect is computed
    from the snapshot before the write.
    """
    before = None
    if _is_followed(key, old):
        try:
            async with asyncio.timeout(EFFECT_S):
                await live_state.feed.wait_until_current()
                before = live_state.feed.snapshot.get()
        except TimeoutError:
            pass  # the effect is computed from the snapshot after the write

    async def warn(old: Object | None, new: Object | None, *, dry_run: bool, orphan: bool = False) -> Sequence[str]:
        return await warnings_after_write(live_state, ReviewedWrite(old, new, dry_run, orphan=orphan), before)

    return warn


def _is_followed(key: Key, old: Object | None) -> bool:
    """Return whether a controller writes other objects at once: splits of Canaries, EndpointSlices of changed Services."""
    kind = key.group, key.kind
    return kind == (CANARY.group, CANARY.kind) or (old is not None and kind == (SERVICE.group, SERVICE.kind))


async def warnings_after_write(
    live_state: LiveState, write: ReviewedWrite, before: Snapshot | None = None
) -> Sequence[str]:
    """Return warnings about a write that is done, or about a dry run (R22).

    `before` is the snapshot before the write; without it, the newest one. Findings are missing if they are not ready within
    `WARNINGS_S` seconds, the effect if it takes longer than `EFFECT_S`.
    """
    if write.dry_run:
        await live_state.feed.wait_until_current()
        return await _previewed(live_state, write, None)
    findings = await _findings_after(live_state, write.new) if write.new else ()
    return [*findings, *await _previewed(live_state, write._replace(is_done=True), EFFECT_S, before)]


async def warnings_before_write(
    live_state: LiveState, old: Object | None, new: Object | None, *, dry_run: bool, orphan: bool = False
) -> Sequence[str]:
    """Return warnings about a write that is not done yet, based on the feed's snapshot.

    With `orphan`, a deletion keeps the objects that the deleted one owns.
    They are missing if the compilation takes longer than `PREVIEW_S` seconds, for a deletion if all takes longer than
    `DELETION_S`.
    """
    if new is None:
        try:
            async with asyncio.timeout(DELETION_S):
                return await _previewed(live_state, ReviewedWrite(old, None, dry_run=dry_run, orphan=orphan), None)
        except TimeoutError:
            return ()
    return await _previewed(live_state, ReviewedWrite(old, new, dry_run=dry_run), PREVIEW_S)


async def _findings_after(live_state: LiveState, obj: Object) -> Sequence[str]:
    key = key_of(obj)
    if (key.group, key.kind) not in GROUP_KINDS:
        return ()
    try:
        async with asyncio.timeout(WARNINGS_S):
            return _about(key, await live_state.wait_compiled(obj))
    except TimeoutError:
        return ()


async def _previewed(
    live_state: LiveState, write: ReviewedWrite, limit_s: float | None, snapshot: Snapshot | None = None
) -> Sequence[str]:
    """Compile a snapshot without and with a write; return the findings about the object, and the effect in a few lines.

    Without `snapshot`, compile that of the feed.
    """
    if not write.has_findings and not write.may_have_effect:
        return ()
    warnings: list[str] = []
    base = snapshot or live_state.feed.snapshot.get() or Snapshot()
    before = with_objects(base, {write.key: write.old})
    predicted = await _predicted(live_state, before, write) if write.may_have_effect else None

    def compiled() -> World:
        after = predicted.snapshot if predicted else with_objects(base, {write.key: write.new})
        first, *other = live_state.loop.compile_each(*dict.fromkeys((before if predicted else after, after)))
        makers = predicted.makers if predicted else {}
        return World(
            first, other[0] if other else first, {write.key, *makers}, snapshots=(before, after), makers=makers
        )

    try:
        async with asyncio.timeout(limit_s):
            world = await live_state.in_preview(compiled)
        if write.has_findings:
            warnings.extend(_about(write.key, world.after))
        if write.may_have_effect:
            async with asyncio.timeout(EFFECT_S):
                pods = predicted.on_creation if predicted else ()
                rules = "by the default revision's rules" if other_rules(live_state.loop) else ""
                warnings.extend(await live_state.in_preview(lambda: _effect(world, write, pods, rules)))
    except TimeoutError:
        pass
    return warnings


async def _predicted(live_state: LiveState, before: Snapshot, write: ReviewedWrite) -> Prediction:
    """Return the objects after a write, with those that controllers make of it."""
    change = PredictedWrites([write.new]) if write.new else PredictedWrites(deleted=[write.key], orphan=write.orphan)
    return await predict(live_state.store, before, change, live_state.controllers, live_state.loop.settings.domain)


def _about(key: Key, compiled: Compiled) -> Sequence[str]:
    """Return the findings about an object. That a new Gateway has no address yet is no mistake."""
    findings = compiled.report.findings_of.get(key, ())
    return [
        f"{finding.field}: {finding.message}"
        for finding in findings
        if finding.reason is not Reason.ADDRESS_NOT_ASSIGNED
    ]


def _effect(world: World, write: ReviewedWrite, pods: Sequence[str], rules: str) -> Sequence[str]:
    """Return what a write does to requests and access in a few lines; empty if it does nothing.

    `pods` get it only when they are created again. `rules` says which ones decide, if there are several.
    """
    try:
        only_served = write.old is None or write.new is None
        return quote(world, only_served=only_served, command=write.command, on_creation=pods, rules=rules)
    except Exception:  # a bug there must not stop a write
        log.exception("the effect of the write to %s can't be described", write.key)
        return ()
