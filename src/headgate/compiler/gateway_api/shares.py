"""The backends of a rule to shares of its traffic, by the Gateway API's rules (D11, D13)."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple, TypeAlias

from msgspec import structs

from headgate.compiler.gateway_api.destinations import Choice, Destinations, service_key
from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.model.evaluate import total_weight
from headgate.model.requests import NO_FILTERS, Filters
from headgate.model.routing import Broken, PortRef, Split, Target
from headgate.quantity import whole_weights
from headgate.resources.meta import Key, Value
from headgate.resources.routes import BackendReference

LARGEST_TOTAL = 2**32 - 1  # of the weights of one split, in a proxy

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


class Backend(Value, frozen=True, kw_only=True):
    """A backendRef of a rule with its field path, its weight, and changes for its share alone."""

    field: str
    ref: BackendReference
    weight: int
    filters: Filters = NO_FILTERS


Placed: TypeAlias = tuple[Backend, PortRef | Finding]
Chosen: TypeAlias = Mapping[PortRef, Choice]
"""What becomes of some requests at each root of splits, and at every other Service port."""


def place(places: Destinations, about: Key, backends: Sequence[Backend], *, http: bool) -> tuple[Placed, ...]:
    """Return each backend with the Service port that it names, or with why it names none."""
    find = places.find_http if http else places.find
    return tuple((backend, find(about, backend.ref, backend.field)) for backend in backends)


def findings(places: Destinations, about: Key, field: str, *, placed: Sequence[Placed]) -> tuple[Finding, ...]:
    """Return what is wrong with the backends of a rule."""
    found = tuple(finding for pair in placed for finding in _findings(places, about, *pair))
    if any(backend.weight for backend, _ in placed):
        return found
    return (*found, _nothing(about, field, written=bool(placed)))


def split(places: Destinations, about: Key, placed: Sequence[Placed], chosen: Chosen) -> Split:
    """Return where the requests (or connections) of a rule go that are `chosen` so at the Service ports.

    An invalid reference keeps its share, answered with 500; one without ready endpoints with 503 (D11). The root of a
    split stands for the split's backends (D13). Where no weight is above 0, all is answered with 500. Calls of gRPC are
    answered with UNAVAILABLE instead, and connections are closed.
    """
    found: dict[Share, Fraction] = defaultdict(Fraction)
    for backend, where in placed:
        choice = where if isinstance(where, Finding) else chosen.get(where, Choice(ref=where))
        for share, part in _parts(places, choice, backend.filters, status=failure(about).status):
            found[share] += part * backend.weight
    shares = {share: weight for share, weight in found.items() if weight}
    if not shares:
        return failing(about, Reason.ALL_WEIGHTS_ZERO)
    return _sticky(placed, chosen) or _weighed(shares)


def _sticky(placed: Iterable[Placed], chosen: Chosen) -> Split | None:
    """Return the split of the only backend as it is, if its users stay on their side: then they do here too."""
    used = [(backend, where) for backend, where in placed if backend.weight]
    (backend, where), *others = used
    if others or isinstance(where, Finding) or backend.filters != NO_FILTERS:
        return None
    decided = chosen[where].split
    return decided if decided and decided.sticky else None


def failing(about: Key, reason: Reason) -> Split:
    """Return a split that serves nobody."""
    return Split(targets=(), broken=(Broken(weight=1, reason=reason.value, status=failure(about).status),))


def _parts(
    places: Destinations, choice: Choice | Finding, filters: Filters, *, status: int
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


def _findings(places: Destinations, about: Key, backend: Backend, where: PortRef | Finding) -> Iterator[Finding]:
    if isinstance(where, Finding):
        yield structs.replace(where, message=f"its share is {failure(about).mistake}: {where.message}")
        return
    for what in dict.fromkeys(lacking(places, where) if backend.weight else ()):
        yield Finding(
            about=about,
            reason=Reason.NO_READY_ENDPOINTS,
            field=f"{backend.field}.name",
            message=f"its share is {failure(about).outage}: {what}",
            related=(service_key(where.service),),
        )


def lacking(places: Destinations, where: PortRef) -> Iterator[str]:
    """Yield what lacks endpoints at a Service port: the Service itself, or the splits whose root it is."""
    for choice in places.choices(where):
        if places.is_empty(choice):
            port = f"port {where.port}"
            if choice.by is None:
                yield f"Service {where.service} has no ready endpoint on {port}"
            else:
                yield f"{choice.by} leaves no backend with a ready endpoint and a weight for {where.service} on {port}"


def _nothing(about: Key, field: str, *, written: bool) -> Finding:
    what = "no backend has a weight above 0" if written else "there is no backend and no redirect"
    message = f"{what}, so all of it is {failure(about).mistake}; name a Service that is to answer"
    return Finding(about=about, reason=Reason.ALL_WEIGHTS_ZERO, field=field, message=message)
