"""Divide the requests of a route exactly among the shares of its split.

If one backend section can serve all shares, the weights of its servers divide the requests. HAProxy's weights are at
most 256, and a section has one protocol and one list of rules. Any other split counts its requests in a stick table:
the count modulo the total weight is the turn of a request, and each share owns a range of turns. The turn is multiplied
by a number without a common divisor, so each cycle gives each share its exact number of turns, not one after the other.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from headgate.model.evaluate import UNAVAILABLE
from headgate.model.requests import NO_FILTERS, Filters, Redirect
from headgate.model.routing import Broken, Endpoint, PortRef, Protocol, Redirected, Split, Target
from headgate.render.haproxy.words import name_of, service_name
from headgate.render.proxy_ports import Selection
from headgate.render.shares import protocol_of
from headgate.render.weights import server_weights
from headgate.resources.meta import Value

LARGEST_WEIGHT = 256  # of a server
MOST_TURNS = 2**32  # the counter of a stick table has 32 bits


class BackendServer(Value, frozen=True, kw_only=True):
    """A server of a backend section."""

    name: str
    endpoint: Endpoint
    weight: int = 1


class SectionShare(Value, frozen=True, kw_only=True):
    """A share that a section named `name` serves; it owns the turns below `end` that earlier shares do not own.

    Without servers, the section answers with `redirect`, or else with `status`.
    """

    name: str
    end: int
    servers: tuple[BackendServer, ...] = ()
    protocol: Protocol = Protocol.HTTP
    filters: Filters = NO_FILTERS
    redirect: Redirect | None = None
    status: int = UNAVAILABLE


class Division(Value, frozen=True, kw_only=True):
    """The shares of a split; with `total` turns if there are several, and `rounded` if they are not exact."""

    shares: tuple[SectionShare, ...]
    total: int = 1
    rounded: bool = False

    @property
    def step(self) -> int:
        """Return the number that multiplies turns: close to the golden section, without a divisor of the total."""
        golden = int(self.total * 0.381966)
        return next(number for number in range(max(1, golden), self.total + 2) if math.gcd(number, self.total) == 1)


def divide(name: str, split: Split, selection: Selection) -> Division:
    """Return the shares of a split; `name` is the name of the route's section."""
    servers = _weighted_servers(split, selection)
    if servers is not None:
        first = split.targets[0]
        share = SectionShare(
            name=name, end=1, servers=servers, protocol=protocol_of(first, selection.protocols), filters=first.filters
        )
        return Division(shares=(share,))
    shares: tuple[Target | Broken | Redirected, ...] = (*split.targets, *split.broken, *split.redirected)
    weights = [share.weight for share in shares]
    if len(weights) <= 1:
        status = split.broken[0].status if split.broken else UNAVAILABLE
        redirect = split.redirected[0].redirect if split.redirected else None
        return Division(shares=(SectionShare(name=name, end=1, status=status, redirect=redirect),))
    turns = _turns(weights)
    ends = [sum(turns[: index + 1]) for index in range(len(turns))]
    rounded = [Fraction(turn, sum(turns)) for turn in turns] != [Fraction(weight, sum(weights)) for weight in weights]
    return Division(shares=tuple(_shares(name, split, ends, selection)), total=ends[-1], rounded=rounded)


def _turns(weights: Sequence[int]) -> Sequence[int]:
    """Return how many turns of a cycle each share has: the weights, reduced, and rounded only if necessary."""
    divisor = math.gcd(*weights)
    exact = [weight // divisor for weight in weights]
    if sum(exact) <= MOST_TURNS:
        return exact
    return [max(1, weight * (MOST_TURNS // 2) // sum(exact)) for weight in exact]


def _shares(name: str, split: Split, ends: Sequence[int], selection: Selection) -> Iterator[SectionShare]:
    for index, target in enumerate(split.targets):
        yield SectionShare(
            name=name_of(name, index),
            end=ends[index],
            servers=tuple(_servers({target.ref: (1, selection.endpoints.get(target.ref, ()))})),
            protocol=protocol_of(target, selection.protocols),
            filters=target.filters,
        )
    for index, broken in enumerate(split.broken, len(split.targets)):
        yield SectionShare(name=name_of(name, index), end=ends[index], status=broken.status)
    for index, redirected in enumerate(split.redirected, len(split.targets) + len(split.broken)):
        yield SectionShare(name=name_of(name, index), end=ends[index], redirect=redirected.redirect)


def _weighted_servers(split: Split, selection: Selection) -> tuple[BackendServer, ...] | None:
    """Return the servers of one section for the whole split; None if it needs several sections."""
    targets, ready = split.targets, selection.endpoints
    alike = {(target.filters, protocol_of(target, selection.protocols)) for target in targets}
    if split.broken or split.redirected or len(alike) != 1 or not all(ready.get(target.ref) for target in targets):
        return None
    if len(targets) > 1 and protocol_of(targets[0], selection.protocols) is Protocol.HTTP_ANY:
        return None
    if len({target.ref for target in targets}) < len(targets):
        return None
    servers = tuple(_servers({target.ref: (target.weight, ready[target.ref]) for target in targets}))
    return servers if all(server.weight <= LARGEST_WEIGHT for server in servers) else None


def _servers(shares: Mapping[PortRef, tuple[int, Sequence[Endpoint]]]) -> Iterator[BackendServer]:
    numbers = {ref: (weight, [str(number) for number in range(len(ready))]) for ref, (weight, ready) in shares.items()}
    for ref, weighted in server_weights(numbers).items():
        for number, weight in weighted:
            yield BackendServer(
                name=name_of(service_name(ref), number), endpoint=shares[ref][1][int(number)], weight=weight
            )
