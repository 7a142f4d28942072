"""Give users of a sticky split their backends: hash slots, and what their rounding does to the weights (docs/tasks/sticky.md)."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import structs

from headgate.model.hash_slots import TOTAL, is_rounded, layout, slot_counts
from headgate.model.routing import PortRef, SlotRange, Split, Sticky
from headgate.resources.smi.split_fields import STICKY


class StickyBackend(NamedTuple):
    """A backend of a sticky split, in the order of the spec.

    `fails`: the backend has no ready endpoint, but keeps its share, which gets 503 (D9).
    """

    ref: PortRef
    fails: bool = False


def sticky_of(annotations: Mapping[str, str]) -> Sticky | None:
    """Read the annotation `headgate.dev/sticky`: `cookie:NAME`, `header:NAME` or `source`; None without one."""
    kind, _, name = annotations.get(STICKY, "").partition(":")
    if kind == "cookie":
        return Sticky(kind="cookie", name=name)
    if kind == "header":
        return Sticky(kind="header", name=name.lower())
    return Sticky(kind="source") if kind == "source" else None


def with_slots(split: Split, sticky: Sticky, sticky_backends: Sequence[StickyBackend]) -> Split:
    """Return the split with ranges of hash slots; its weights become numbers of slots, 10 000 in total.

    A backend without traffic keeps its position in `sticky_backends`, so that its former users return to it
    later.
    """
    weights = _sticky_weights(split, sticky_backends)
    if not any(weights):  # the root serves its own traffic, or the split has no target
        return split
    counts = slot_counts(weights)
    ranges = tuple(
        SlotRange(slots=run.size, ref=None if sticky_backends[run.owner].fails else sticky_backends[run.owner].ref)
        for run in layout(counts)
    )
    slots_by_ref = {backend.ref: count for backend, count in zip(sticky_backends, counts, strict=True) if count}
    targets = [structs.replace(target, weight=slots_by_ref.get(target.ref, 0)) for target in split.targets]
    failing = [count for backend, count in zip(sticky_backends, counts, strict=True) if backend.fails]
    broken = [structs.replace(share, weight=slots) for share, slots in zip(split.broken, failing, strict=True)]
    return structs.replace(
        split,
        targets=tuple(target for target in targets if target.weight),
        broken=tuple(share for share in broken if share.weight),
        sticky=structs.replace(sticky, slot_ranges=ranges),
    )


def rounding_note(split: Split, sticky_backends: Sequence[StickyBackend]) -> str:
    """Describe how rounding to hash slots changes the weights of a split; empty if no weight is rounded."""
    weights = _sticky_weights(split, sticky_backends)
    if not any(weights) or not is_rounded(weights):
        return ""
    counted = ", ".join(
        f"{backend.ref.service} {count}"
        for backend, count in zip(sticky_backends, slot_counts(weights), strict=True)
        if count
    )
    return f"the weights do not divide the {TOTAL} slots of users evenly, so they are rounded: {counted}"


def _sticky_weights(split: Split, sticky_backends: Sequence[StickyBackend]) -> list[int]:
    """Return the weight of each sticky backend. `split.broken` lists the failing backends in the same order."""
    weights = {target.ref: target.weight for target in split.targets}
    failing = iter(share.weight for share in split.broken)
    return [next(failing, 0) if backend.fails else weights.get(backend.ref, 0) for backend in sticky_backends]
