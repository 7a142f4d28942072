"""RequestMirror filters to mirrors (002: R44 to R60, D3, D14)."""

from collections.abc import Iterable

from msgspec import structs

from headgate.compiler.destinations import Destinations
from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.model.filters import Mirror
from headgate.resources.meta import Key
from headgate.resources.routes import RequestMirror

WHOLE = 100  # what an absent numerator or denominator of a written fraction is (R48)
FINEST = 1_000_000  # parts in which a proxy counts requests, at most


def proportion(mirror: RequestMirror) -> tuple[int, int]:
    """Return numerator and denominator of the requests to copy.

    Only what is written counts: a written fraction wins over `percent` (R49), its absent parts are 100 (R48), and with
    neither every request is copied (R50, R51).
    """
    if mirror.fraction is not None:
        numerator, denominator = mirror.fraction.numerator, mirror.fraction.denominator
        return (WHOLE if numerator is None else numerator), (WHOLE if denominator is None else denominator)
    return (WHOLE if mirror.percent is None else mirror.percent), WHOLE


def mirrors(
    places: Destinations, about: Key, written: Iterable[tuple[str, RequestMirror]]
) -> tuple[tuple[Mirror, ...], tuple[Finding, ...]]:
    """Return the mirrors of a rule, each given with its field path, and what is wrong with the others.

    A mirror goes to its Service's own endpoints, also when that is the root of a split: a copy needs no share.
    """
    found: list[Mirror] = []
    findings: list[Finding] = []
    for field, mirror in written:
        numerator, denominator = proportion(mirror)
        findings += _notes(about, field, mirror)
        place = places.find(about, mirror.backend_ref, f"{field}.backendRef")
        if isinstance(place, Finding):
            findings.append(structs.replace(place, message=f"nothing is mirrored: {place.message}"))
        elif numerator:
            found.append(Mirror(ref=place, numerator=numerator, denominator=denominator))
    return tuple(found), tuple(findings)


def _notes(about: Key, field: str, mirror: RequestMirror) -> list[Finding]:
    numerator, denominator = proportion(mirror)
    notes: list[Finding] = []
    if mirror.fraction is not None and mirror.percent is not None:
        message = (
            f"percent and fraction are both written: the fraction {numerator}/{denominator} counts. The released Gateway "
            "API refuses that, so write one of the two"
        )
        notes.append(Finding(about=about, reason=Reason.PERCENT_IGNORED, field=f"{field}.percent", message=message))
    if numerator * FINEST % denominator:
        parts = nearest(numerator, denominator)
        message = (
            f"proxies count in millionths at most, so {parts} of 1000000 requests are mirrored instead of "
            f"{numerator}/{denominator}"
        )
        notes.append(Finding(about=about, reason=Reason.FRACTION_ROUNDED, field=f"{field}.fraction", message=message))
    return notes


def nearest(numerator: int, denominator: int) -> int:
    """Return the millionths that are nearest to a fraction, halves up."""
    return (2 * numerator * FINEST + denominator) // (2 * denominator)
