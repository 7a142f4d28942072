"""The route tables of several Service ports as one: a rule that names roots of splits becomes a route for each row (D13)."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from msgspec import structs

from headgate.compiler.containment import both
from headgate.compiler.gateway_api.destinations import Choice, Destinations
from headgate.model.requests import ANY, Match
from headgate.model.routing import PortRef, Route, Step

MOST_ROWS = 128
"""Rows that the tables of several roots may have together; a proxy looks at them one after the other."""


class Row(NamedTuple):
    """Requests that fit `match`, and none of the rows before it: what becomes of them at each Service port."""

    match: Match
    choices: tuple[Choice, ...]

    @property
    def chosen(self) -> Mapping[PortRef, Choice]:
        """Return the choices by Service port."""
        return {choice.ref: choice for choice in self.choices}

    @property
    def steps(self) -> tuple[Step, ...]:
        """Return the matches of splits that the requests fit."""
        return tuple(choice.step for choice in self.choices if choice.step)


Matched = TypeVar("Matched", Row, Route)


def expand(places: Destinations, refs: Iterable[PortRef]) -> tuple[list[Row], list[PortRef]]:
    """Return what becomes of requests that go to several Service ports, one level deep.

    Each port is decided by itself: a row is one choice for each. The rows are in the order of the choices, so the first
    row that a request fits has the first choice that it fits at each port; the last row is for every request. One root may
    have any number of matches. Those of several may make too many rows together: then the matches of some roots are not
    asked, which are returned too.
    """
    rows = [Row(ANY, ())]
    left_out: list[PortRef] = []
    for ref in dict.fromkeys(refs):
        choices = places.choices(ref)
        if min(len(rows), len(choices)) > 1 and len(rows) * len(choices) > MOST_ROWS:
            left_out.append(ref)
            choices = choices[-1:]
        combined = (_with(row, choice) for row in rows for choice in choices)
        rows = list(_reachable((row for row in combined if row), ANY))
    return rows, left_out


def narrowed(routes: Iterable[Route], match: Match) -> Iterator[Route]:
    """Yield the routes for the requests that fit a rule's match too; the last is for all that fit it."""
    pairs = ((route, both(match, route.match)) for route in routes)
    return _reachable((structs.replace(route, match=found) for route, found in pairs if found), match)


def _with(row: Row, choice: Choice) -> Row | None:
    """Return the requests of a row that fit a choice too; None where there are none."""
    match = both(row.match, choice.match)
    return Row(match, (*row.choices, choice)) if match else None


def _reachable(found: Iterable[Matched], widest: Match) -> Iterator[Matched]:
    """Yield what requests may reach: nothing after an equal match, nothing after the widest."""
    seen: set[Match] = set()
    for item in found:
        if item.match not in seen:
            seen.add(item.match)
            yield item
        if item.match == widest:
            return
