"""Compile the annotation with which a split's backend gets copies of some requests (R108)."""

from collections.abc import Mapping

from headgate.model.routing import Mirror, Target
from headgate.quantity import parse_percentage
from headgate.resources.meta import Key
from headgate.resources.smi.split_fields import MIRROR


def split_mirrors(key: Key, annotations: Mapping[str, str], usable: Mapping[str, Target]) -> tuple[Mirror, ...]:
    """Return the mirror of the split `key` on a port; empty without the annotation, or if its backend is not usable.

    `usable` has the backends that can get requests on the port, by their names in the split.
    """
    name, _, percentage = annotations.get(MIRROR, "").partition("=")
    target = usable.get(name)
    if target is None:
        return ()
    share = parse_percentage(percentage)
    mirror = Mirror(ref=target.ref, targets=(target,), numerator=share.numerator, denominator=share.denominator, by=key)
    return (mirror,)
