"""RequestMirror filters to mirrors (002: R44 to R60, D3, D14)."""

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction

from msgspec import structs

from headgate.compiler.gateway_api.destinations import Choice, Destinations, service_key
from headgate.compiler.gateway_api.shares import lacking
from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.model.evaluate import total_weight
from headgate.model.routing import Mirror, PortRef, Target
from headgate.resources.meta import Key, Value
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


class Wanted(Value, frozen=True, kw_only=True):
    """A mirror of a rule: copies of a fraction of its requests, for a Service port."""

    ref: PortRef
    numerator: int
    denominator: int


def mirrors(
    places: Destinations, about: Key, written: Iterable[tuple[str, RequestMirror]]
) -> tuple[tuple[Wanted, ...], tuple[Finding, ...]]:
    """Return the mirrors of a rule, each given with its field path, and what is wrong with them.

    Copies are requests: a mirror to a port that is not HTTP is left out, as one without a Service is (D14).
    """
    found: list[Wanted] = []
    findings: list[Finding] = []
    for field, mirror in written:
        numerator, denominator = proportion(mirror)
        findings += _notes(about, field, mirror)
        place = places.find_http(about, mirror.backend_ref, f"{field}.backendRef")
        if isinstance(place, Finding):
            findings.append(structs.replace(place, message=f"nothing is mirrored: {place.message}"))
        elif numerator:
            findings += _without_endpoints(places, about, place, field)
            found.append(Wanted(ref=place, numerator=numerator, denominator=denominator))
    return tuple(found), tuple(findings)


def _without_endpoints(places: Destinations, about: Key, place: PortRef, field: str) -> Iterator[Finding]:
    for what in dict.fromkeys(lacking(places, place)):
        yield Finding(
            about=about,
            reason=Reason.NO_READY_ENDPOINTS,
            field=f"{field}.backendRef.name",
            message=f"its copies are dropped: {what}",
            related=(service_key(place.service),),
        )


def expanded(wanted: Wanted, chosen: Mapping[PortRef, Choice]) -> Mirror | None:
    """Return a mirror of the requests that are `chosen` so; None where no copy can arrive.

    The root of a split stands for the split's backends (D13), as in a backendRef. The copies of a share that fails are
    dropped. Copies go by weight alone, also where users stay on their side.
    """
    choice = chosen[wanted.ref]
    if choice.split is None:
        target = Target(ref=wanted.ref, weight=1)
        return Mirror(ref=wanted.ref, targets=(target,), numerator=wanted.numerator, denominator=wanted.denominator)
    served = sum(target.weight for target in choice.split.targets)
    if not served:
        return None
    part = Fraction(wanted.numerator * served, wanted.denominator * total_weight(choice.split))
    return Mirror(
        ref=wanted.ref,
        targets=choice.split.targets,
        numerator=part.numerator,
        denominator=part.denominator,
        split=choice.by if choice.step else None,
    )


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
