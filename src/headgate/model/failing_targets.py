"""Let backends of a split fail."""

from collections.abc import Mapping

from msgspec import structs

from headgate.model.routing import Broken, SlotRange, Split, Target


def failing_targets(split: Split, failing: Mapping[Target, str], *, status: int) -> Split:
    """Return a split in which some targets fail with a status, for a reason; users of a sticky split keep their backend."""
    refs = {target.ref for target in failing}
    sticky = split.sticky and structs.replace(
        split.sticky,
        slot_ranges=tuple(
            SlotRange(slots=side.slots, status=status) if side.ref in refs else side
            for side in split.sticky.slot_ranges
        ),
    )
    broken = (Broken(weight=target.weight, reason=reason, status=status) for target, reason in failing.items())
    return structs.replace(
        split,
        targets=tuple(target for target in split.targets if target not in failing),
        broken=(*split.broken, *broken),
        sticky=sticky,
    )
