"""Splits whose users stay on their side: the annotation, and the slots that it makes of the weights (requirements 2.8)."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import structs

from headgate.model.routing import PortRef, Side, Split, Sticky
from headgate.model.slots import TOTAL, is_rounded, layout, slot_counts
from headgate.resources.smi import STICKY

FIELD = f"metadata.annotations.{STICKY}"


class Seat(NamedTuple):
    """A backend in the order as written; `fails` when it has no endpoint and its share is kept (D9)."""

    ref: PortRef
    fails: bool = False


def sticky_of(annotations: Mapping[str, str]) -> Sticky | None:
    """Return what the annotation `headgate.dev/sticky` asks for: `cookie:NAME`, `header:NAME` or `source`."""
    kind, _, name = annotations.get(STICKY, "").partition(":")
    if kind == "cookie":
        return Sticky(kind="cookie", name=name)
    if kind == "header":
        return Sticky(kind="header", name=name.lower())
    return Sticky(kind="source") if kind == "source" else None


def seated(split: Split, sticky: Sticky, seats: Sequence[Seat]) -> Split:
    """Return the split with its users in slots; weights become numbers of slots, of 10 000.

    A backend that gets nothing keeps its seat: its place in the order decides who comes back to it.
    """
    weights = _weights(split, seats)
    if not any(weights):  # the root's plain behaviour, or nothing at all
        return split
    counts = slot_counts(weights)
    sides = tuple(
        Side(slots=run.size, ref=None if seats[run.owner].fails else seats[run.owner].ref) for run in layout(counts)
    )
    known = {seat.ref: count for seat, count in zip(seats, counts, strict=True) if count}
    targets = [structs.replace(target, weight=known.get(target.ref, 0)) for target in split.targets]
    failing = [count for seat, count in zip(seats, counts, strict=True) if seat.fails]
    broken = [structs.replace(share, weight=slots) for share, slots in zip(split.broken, failing, strict=True)]
    return structs.replace(
        split,
        targets=tuple(target for target in targets if target.weight),
        broken=tuple(share for share in broken if share.weight),
        sticky=structs.replace(sticky, sides=sides),
    )


def rounding(split: Split, seats: Sequence[Seat]) -> str:
    """Say how slots differ from the weights of a split that is not seated yet; empty when they are exact."""
    weights = _weights(split, seats)
    if not any(weights) or not is_rounded(weights):
        return ""
    counted = ", ".join(
        f"{seat.ref.service} {count}" for seat, count in zip(seats, slot_counts(weights), strict=True) if count
    )
    return f"users are counted in {TOTAL} slots, which these weights do not divide evenly; they get: {counted}"


def _weights(split: Split, seats: Sequence[Seat]) -> list[int]:
    """Return the weight of each seat; broken shares are in the order of their seats."""
    known = {target.ref: target.weight for target in split.targets}
    failing = iter(share.weight for share in split.broken)
    return [next(failing, 0) if seat.fails else known.get(seat.ref, 0) for seat in seats]
