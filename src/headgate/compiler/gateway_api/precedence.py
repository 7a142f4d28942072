"""Which of several routes takes a request that more than one is for: the order of the Gateway API.

Exact path, longest prefix, regular expression, method, most headers, most query parameters, oldest object,
namespace and name, first rule, first match. A rule for every path comes after the regular expressions: else a route
without a path would hide them all.
"""

from collections.abc import Iterable

from headgate.model.requests import Match, Path
from headgate.model.routing import Route
from headgate.resources.meta import Key, Value


class Ranked(Value, frozen=True, kw_only=True):
    """The routes of one match of a rule, in their order, and what decides between them and others.

    `wanted` is the match as the rule has it; `rule` and `match` are positions.
    """

    routes: tuple[Route, ...]
    wanted: Match
    origin: Key
    created: str
    rule: int
    match: int


def order(ranked: Ranked) -> tuple[object, ...]:
    """Return a key: of two matches for the same request, the one with the smaller key takes it."""
    origin = ranked.origin
    return (*_match(ranked.wanted), ranked.created, origin.namespace, origin.name, ranked.rule, ranked.match)


def in_order(routes: Iterable[Ranked]) -> tuple[Route, ...]:
    """Return the routes in the order in which they are tried."""
    return tuple(route for ranked in sorted(routes, key=order) for route in ranked.routes)


def _match(match: Match) -> tuple[tuple[int, int], bool, int, int]:
    return _path(match.path), not match.methods, -len(match.headers), -len(match.query)


def _path(path: Path | None) -> tuple[int, int]:
    if path is None:
        return 3, 0
    if path.kind == "exact":
        return 0, 0
    return (1, -len(path.value)) if path.kind == "prefix" else (2, 0)
