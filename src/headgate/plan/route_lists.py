"""Compare two ordered lists of routes: which requests are treated differently, by the first route that matches in each.

Routes with the same match in the same order in both lists are partners. The first matches of a request in both lists are
partners, or one of the two has no partner: so only these pairs are compared.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from headgate.matching.conditions import Conjunction, conjunction
from headgate.matching.match_index import MatchIndex
from headgate.matching.solver import Solver, Values
from headgate.matching.undecided import Undecided
from headgate.model.requests import Match
from headgate.plan.treatment import Treatment

Pair = tuple[int, int]


class ListedRoute(NamedTuple):
    """A route of a list: its match as conditions, its treatment, and its position in the list of routes.

    The last rule of a list has no condition. Its position is None if it stands for requests that no route matches.
    """

    position: int | None
    match: Conjunction
    treatment: Treatment


class RouteDifference(NamedTuple):
    """Requests that fit `before` first in the old list and `after` first in the new one, and their parts in an example.

    `excluded` has the matches of earlier rules that may fit some of these requests.
    Without `values` it is not decided whether there are such requests.
    """

    before: ListedRoute
    after: ListedRoute
    excluded: tuple[Conjunction, ...]
    values: Values | None


def rules(matches: Iterable[Match], treatments: Iterable[Treatment], unmatched: Treatment) -> list[ListedRoute]:
    """Return the rules in a route list, without those that an equal match precedes."""
    listed: dict[Conjunction, ListedRoute] = {}
    for position, (match, treatment) in enumerate(zip(matches, treatments, strict=True)):
        conditions = conjunction(match)
        listed.setdefault(conditions, ListedRoute(position, conditions, treatment))
        if not conditions:
            break
    listed.setdefault((), ListedRoute(None, (), unmatched))
    return list(listed.values())


def differences(
    solver: Solver, before: Sequence[ListedRoute], after: Sequence[ListedRoute], base: Conjunction = ()
) -> Iterator[RouteDifference]:
    """Yield the differences between two lists of rules, for requests that meet all conditions in `base`."""
    old, new = MatchIndex([rule.match for rule in before]), MatchIndex([rule.match for rule in after])
    for first, second in _pairs(before, after, old, new):
        was, now = before[first], after[second]
        if was.treatment == now.treatment:
            continue
        required = (*base, *was.match, *now.match)
        near = (*was.match, *now.match)
        excluded = [before[index].match for index in old.near(near) if index < first]
        excluded += [after[index].match for index in new.near(near) if index < second]
        try:
            values = solver.solve(required, excluded)
        except Undecided:
            yield RouteDifference(was, now, tuple(excluded), None)
            continue
        if values is not None:
            yield RouteDifference(was, now, tuple(excluded), values)


def _pairs(
    before: Sequence[ListedRoute], after: Sequence[ListedRoute], old: MatchIndex, new: MatchIndex
) -> Iterator[Pair]:
    partners = _partners(before, after)
    partnered = set(partners.values())
    alone = [index for index in range(len(after)) if index not in partnered]
    for first, rule in enumerate(before):
        if first in partners:
            yield first, partners[first]
        else:
            yield from ((first, second) for second in _until_covered(rule, new.near(rule.match), after))
    for second in alone:
        rule = after[second]
        yield from (
            (first, second) for first in _until_covered(rule, old.near(rule.match), before) if first in partners
        )


def _until_covered(rule: ListedRoute, near: Iterable[int], rules: Sequence[ListedRoute]) -> Iterator[int]:
    """Yield positions up to the first rule whose conditions are all conditions of `rule`: it takes all requests."""
    own = set(rule.match)
    for index in near:
        yield index
        if own.issuperset(rules[index].match):
            return


def _partners(before: Sequence[ListedRoute], after: Sequence[ListedRoute]) -> dict[int, int]:
    """Return pairs of rules with equal matches: a longest selection in which both lists have the same order."""
    places = {rule.match: index for index, rule in enumerate(after)}
    both = [(index, places[rule.match]) for index, rule in enumerate(before) if rule.match in places]
    ends: list[int] = []  # the smallest last place of an increasing sequence, by its length
    lengths = []
    for _, place in both:
        length = bisect_left(ends, place)
        ends[length : length + 1] = [place]
        lengths.append(length)
    partners, next_length = dict[int, int](), len(ends) - 1
    last = len(after)
    for (index, place), length in zip(reversed(both), reversed(lengths), strict=True):
        if length == next_length and place < last:
            partners[index], next_length, last = place, next_length - 1, place
    return partners
