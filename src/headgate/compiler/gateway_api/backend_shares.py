"""The backends and mirrors of a rule to shares and copies of its traffic (D3, D11, D13, D14; R44 to R60)."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple, TypeAlias

from msgspec import structs

from headgate.compiler.gateway_api.destinations import Destinations, PortDestination
from headgate.compiler.reasons import Reason
from headgate.compiler.references import service_key
from headgate.compiler.report import Finding
from headgate.model.evaluate import total_weight
from headgate.model.requests import NO_FILTERS, Filters
from headgate.model.routing import Broken, Mirror, PortRef, Split, Target
from headgate.resources.meta import Key
from headgate.resources.routes import RequestMirror
from headgate.resources.versions import whole_weights

LARGEST_TOTAL = 2**32 - 1  # of the weights of one split, in a proxy
WHOLE = 100  # what an absent numerator or denominator of a written fraction is (R48)
FINEST = 1_000_000  # parts in which a proxy counts requests, at most

Share: TypeAlias = Target | Broken


class Failure(NamedTuple):
    """How a kind of route fails: with an HTTP status, and in words for a mistake of the user's and for an outage."""

    status: int
    mistake: str
    outage: str


_HTTP = Failure(500, "answered with 500", "answered with 503")
_FAILURES = {
    "GRPCRoute": Failure(503, "answered with UNAVAILABLE", "answered with UNAVAILABLE"),  # 503 in gRPC's words
    "TCPRoute": Failure(503, "closed at once", "closed at once"),
}


def failure(about: Key) -> Failure:
    """Return how a route fails."""
    return _FAILURES.get(about.kind, _HTTP)


class Backend(NamedTuple):
    """A backendRef of a rule by its field path: its weight, the Service port that it names, or why it names none.

    `filters` are changes for its share alone.
    """

    field: str
    weight: int
    where: PortRef | Finding
    filters: Filters = NO_FILTERS


Chosen: TypeAlias = Mapping[PortRef, PortDestination]
"""What becomes of some requests at each root of splits, and at every other Service port."""


def findings(places: Destinations, about: Key, field: str, backends: Sequence[Backend]) -> list[Finding]:
    """Return what is wrong with the backends of a rule."""
    found = [finding for backend in backends for finding in _findings(places, about, backend)]
    if not any(backend.weight for backend in backends):
        what = "no backend has a weight above 0" if backends else "there is no backend and no redirect"
        message = f"{what}, so all of it is {failure(about).mistake}; name a Service that is to answer"
        found.append(Finding(about, Reason.ALL_WEIGHTS_ZERO, field, message))
    return found


def split(places: Destinations, about: Key, backends: Sequence[Backend], chosen: Chosen) -> Split:
    """Return where the requests (or connections) of a rule go that are `chosen` so at the Service ports.

    An invalid reference keeps its share, answered with 500; one without ready endpoints with 503 (D11). The root of a
    split stands for the split's backends (D13). Where no weight is above 0, all is answered with 500. Calls of gRPC are
    answered with UNAVAILABLE instead, and connections are closed.
    """
    found: dict[Share, Fraction] = defaultdict(Fraction)
    for item in backends:
        choice = (
            item.where if isinstance(item.where, Finding) else chosen.get(item.where, PortDestination(ref=item.where))
        )
        for share, part in _parts(places, choice, item.filters, status=failure(about).status):
            found[share] += part * item.weight
    shares = {share: weight for share, weight in found.items() if weight}
    if not shares:
        return failing(about, Reason.ALL_WEIGHTS_ZERO)
    return _sticky(backends, chosen) or _weighed(shares)


def _sticky(backends: Sequence[Backend], chosen: Chosen) -> Split | None:
    """Return the split of the only backend as it is, if its users stay on their side: then they do here too."""
    only, *others = (item for item in backends if item.weight)
    if others or isinstance(only.where, Finding) or only.filters != NO_FILTERS:
        return None
    decided = chosen[only.where].split
    return decided if decided and decided.sticky else None


def failing(about: Key, reason: Reason) -> Split:
    """Return a split that serves nobody."""
    return Split(targets=(), broken=(Broken(weight=1, reason=reason.value, status=failure(about).status),))


def _parts(
    places: Destinations, choice: PortDestination | Finding, filters: Filters, *, status: int
) -> Iterator[tuple[Share, Fraction]]:
    """Yield what one backend stands for, as parts of 1, each share with the weight 1: itself, a split, an error."""
    whole = Fraction(1)
    if isinstance(choice, Finding):
        yield Broken(weight=1, reason=choice.reason.value, status=status), whole
    elif places.is_empty(choice):
        yield Broken(weight=1, reason=Reason.NO_READY_ENDPOINTS.value), whole
    elif choice.split is not None:
        total = total_weight(choice.split)
        for target in choice.split.targets:
            yield structs.replace(target, weight=1, filters=filters), Fraction(target.weight, total)
        for share in choice.split.broken:
            yield structs.replace(share, weight=1), Fraction(share.weight, total)
    else:
        yield Target(ref=choice.ref, weight=1, filters=filters), whole


def _weighed(shares: Mapping[Share, Fraction]) -> Split:
    weights = fitting(whole_weights(list(shares.values())))
    weighed = [structs.replace(share, weight=weight) for share, weight in zip(shares, weights, strict=True)]
    return Split(
        targets=tuple(share for share in weighed if isinstance(share, Target)),
        broken=tuple(share for share in weighed if isinstance(share, Broken)),
    )


def fitting(weights: Sequence[int]) -> tuple[int, ...]:
    """Scale weights down until a proxy can add them up; each stays at least 1. Large splits of splits need it."""
    total = sum(weights)
    room = LARGEST_TOTAL - len(weights)
    return tuple(weights) if total <= LARGEST_TOTAL else tuple(max(1, weight * room // total) for weight in weights)


def _findings(places: Destinations, about: Key, item: Backend) -> Iterator[Finding]:
    if isinstance(item.where, Finding):
        message = f"its share is {failure(about).mistake}: {item.where.message}"
        yield structs.replace(item.where, message=message)
    elif item.weight:
        effect = f"its share is {failure(about).outage}"
        yield from _without_endpoints(places, about, item.where, f"{item.field}.name", effect)


def _without_endpoints(places: Destinations, about: Key, where: PortRef, field: str, effect: str) -> Iterator[Finding]:
    related = (service_key(where.service),)
    for what in dict.fromkeys(_lacking(places, where)):
        yield Finding(about, Reason.NO_READY_ENDPOINTS, field, f"{effect}: {what}", related)


def _lacking(places: Destinations, where: PortRef) -> Iterator[str]:
    """Yield what lacks endpoints at a Service port: the Service itself, or the splits whose root it is."""
    for choice in places.choices(where):
        if places.is_empty(choice):
            port = f"port {where.port}"
            if choice.by is None:
                yield f"Service {where.service} has no ready endpoint on {port}"
            else:
                yield f"{choice.by} leaves no backend with a ready endpoint and a weight for {where.service} on {port}"


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
) -> tuple[list[Mirror], list[Finding]]:
    """Return the mirrors of a rule, without targets yet, each given with its field path, and what is wrong with them.

    Copies are requests: a mirror to a port that is not HTTP is left out, as one without a Service is (D14).
    """
    found: list[Mirror] = []
    findings: list[Finding] = []
    for field, mirror in written:
        numerator, denominator = proportion(mirror)
        findings += _notes(about, field, mirror)
        place = places.find_http(about, mirror.backend_ref, f"{field}.backendRef")
        if isinstance(place, Finding):
            findings.append(structs.replace(place, message=f"nothing is mirrored: {place.message}"))
        elif numerator:
            name = f"{field}.backendRef.name"
            findings += _without_endpoints(places, about, place, name, "its copies are dropped")
            found.append(Mirror(ref=place, targets=(), numerator=numerator, denominator=denominator))
    return found, findings


def expanded(wanted: Mirror, chosen: Chosen) -> Mirror | None:
    """Return a mirror of the requests that are `chosen` so; None where no copy can arrive.

    The root of a split stands for the split's backends (D13), as in a backendRef. The copies of a share that fails are
    dropped. Copies go by weight alone, also where users stay on their side.
    """
    choice = chosen[wanted.ref]
    if choice.split is None:
        return structs.replace(wanted, targets=(Target(ref=wanted.ref, weight=1),))
    served = sum(target.weight for target in choice.split.targets)
    if not served:
        return None
    part = Fraction(wanted.numerator * served, wanted.denominator * total_weight(choice.split))
    return structs.replace(
        wanted,
        targets=choice.split.targets,
        numerator=part.numerator,
        denominator=part.denominator,
        split=choice.by if choice.step else None,
    )


def _notes(about: Key, field: str, mirror: RequestMirror) -> Iterator[Finding]:
    numerator, denominator = proportion(mirror)
    if mirror.fraction is not None and mirror.percent is not None:
        message = (
            f"percent and fraction are both written: the fraction {numerator}/{denominator} counts. The released Gateway "
            "API refuses that, so write one of the two"
        )
        yield Finding(about, Reason.PERCENT_IGNORED, f"{field}.percent", message)
    if numerator * FINEST % denominator:
        parts = nearest(numerator, denominator)
        message = (
            f"proxies count in millionths at most, so {parts} of 1000000 requests are mirrored instead of "
            f"{numerator}/{denominator}"
        )
        yield Finding(about, Reason.FRACTION_ROUNDED, f"{field}.fraction", message)


def nearest(numerator: int, denominator: int) -> int:
    """Return the millionths that are nearest to a fraction, halves up."""
    return (2 * numerator * FINEST + denominator) // (2 * denominator)
