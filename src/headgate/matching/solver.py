"""Find a request that meets conditions and fits none of some matches, or prove that there is none.

The search builds a request from one text for each part. If an excluded match fits it, the search negates one condition of
this match after the other. It looks at a condition only when a request needs it, so most answers take one or two requests.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain

from headgate.matching.conditions import METHOD, METHODS, Conjunction, Dimension, Literal, Setting, Test
from headgate.matching.regular import Algebra, Expression, find_text
from headgate.matching.undecided import Exhausted, Undecided, Work
from headgate.model.wellformed import CONNECT

TEXT_STEPS = 60_000
"""Derivatives for one text: about 0.2 s."""
SEARCHES = 400
"""Requests that are built for one answer."""
SEARCH_STEPS = 10
"""What one built request counts as, in steps of Work."""
Values = Mapping[Dimension, str | None]
"""The text of each part that conditions name; None for an absent header or parameter."""
_Tests = tuple[frozenset[Test], frozenset[Test]]
_NO_TESTS: _Tests = frozenset(), frozenset()
_IMPOSSIBLE = "\0"  # no part of a request has this text


class Solver:
    """Answers questions about the requests of one setting, and remembers the texts that it found.

    `work` limits all answers together; after it, each question raises Exhausted.
    """

    def __init__(self, setting: Setting, algebra: Algebra | None = None, work: Work | None = None) -> None:
        self.setting = setting
        self.work = work
        self._algebra = algebra or Algebra()
        self._texts: dict[tuple[Dimension, _Tests], str | None] = {}
        self._nodes: dict[Test, Expression] = {}
        self._searches = 0

    def solve(self, required: Iterable[Literal], excluded: Iterable[Conjunction]) -> Values | None:
        """Return parts of a request that meets all of `required` and fits none of `excluded`; None if there is none.

        Raises Undecided if the answer would take too long.
        """
        self._searches = 0
        state: dict[Dimension, _Tests] = {}
        for literal in required:
            _add(state, literal)
        return self._search(state, list(dict.fromkeys(excluded)))

    def _search(self, state: dict[Dimension, _Tests], excluded: Sequence[Conjunction]) -> Values | None:
        """Answer for the conditions in `state`, which this method changes."""
        left = self._propagated(state, excluded)
        while left is not None:
            self._searches += 1
            if self._searches > SEARCHES:
                raise Undecided
            if self.work:
                self.work.spend(SEARCH_STEPS)
            values = self._values(state)
            if values is None:
                return None
            fitting = next((conjunction for conjunction in left if self._fits(conjunction, values)), None)
            if fitting is None:
                return values
            options = _open_literals(state, fitting)
            for literal in options[:-1]:
                branch = dict(state)
                _add(branch, literal.opposite)
                if (solution := self._search(branch, left)) is not None:
                    return solution
                _add(state, literal)
            _add(state, options[-1].opposite)
            left = self._propagated(state, left)
        return None

    def _propagated(self, state: dict[Dimension, _Tests], excluded: Sequence[Conjunction]) -> list[Conjunction] | None:
        """Return the matches that `state` does not exclude yet, after negating each condition that is the last open one.

        Returns None if a match contains no open condition: all requests of `state` fit it.
        """
        left = list(excluded)
        while True:
            remaining: list[Conjunction] = []
            for conjunction in left:
                if any(_is_excluded(state, literal) for literal in conjunction):
                    continue
                options = _open_literals(state, conjunction)
                if not options:
                    return None
                if len(options) == 1:
                    _add(state, options[0].opposite)
                else:
                    remaining.append(conjunction)
            if len(remaining) == len(left):
                return remaining
            left = remaining

    def _fits(self, conjunction: Conjunction, values: Values) -> bool:
        return all(self._meets(literal, values) for literal in conjunction)

    def _meets(self, literal: Literal, values: Values) -> bool:
        dimension = literal.dimension
        text = values[dimension] if dimension in values else self._text(dimension, _NO_TESTS)
        return (text is not None and literal.test.fits(text)) is literal.holds

    def _values(self, state: Mapping[Dimension, _Tests]) -> Values | None:
        texts: dict[Dimension, str | None] = {}
        for dimension, tests in state.items():
            text = self._text(dimension, tests)
            if text == _IMPOSSIBLE:
                return None
            texts[dimension] = text
        return texts

    def value(self, dimension: Dimension) -> str | None:
        """Return the text of a part without conditions; None if it is absent."""
        return self._text(dimension, _NO_TESTS)

    def _text(self, dimension: Dimension, tests: _Tests) -> str | None:
        key = dimension, tests
        if key not in self._texts:
            self._texts[key] = self._found_text(dimension, *tests)
        return self._texts[key]

    def _found_text(self, dimension: Dimension, inside: frozenset[Test], outside: frozenset[Test]) -> str | None:
        """Return a text that meets all conditions, None if the part must be absent, or _IMPOSSIBLE."""
        if dimension == METHOD:
            named = (name for test in sorted(inside | outside) for name in test.value.split(" ") if name != CONNECT)
            return _first_fitting((*METHODS, *named), inside, outside) or _IMPOSSIBLE
        domain = self.setting.domain(dimension)
        if domain.optional and not inside:
            return None
        if any(covers(test, other) for test in outside for other in inside):
            return _IMPOSSIBLE
        possible = Test("regex", domain.pattern)
        examples = (text for test in sorted(inside) for text in test.examples())
        fitting = _first_fitting(chain(examples, domain.usual), {*inside, possible}, outside)
        if fitting is not None or any(test.kind == "exact" for test in inside):
            return _IMPOSSIBLE if fitting is None else fitting
        near = [test for test in outside if not any(are_disjoint(test, other) for other in inside)]
        required = [self._node(test) for test in (possible, *sorted(inside))]
        unwanted = [self._node(test) for test in sorted(near)]
        text = self._shortest_text(required, unwanted)
        return _IMPOSSIBLE if text is None else text

    def _shortest_text(self, required: Sequence[Expression], unwanted: Sequence[Expression]) -> str | None:
        steps = min(TEXT_STEPS, self.work.left) if self.work else TEXT_STEPS
        work = Work(steps)
        try:
            return find_text(self._algebra, required, unwanted, work)
        except Exhausted:
            if steps < TEXT_STEPS:
                raise
            raise Undecided from None
        finally:
            if self.work:
                self.work.left -= steps - work.left

    def _node(self, test: Test) -> Expression:
        if test not in self._nodes:
            self._nodes[test] = test.node(self._algebra)
        return self._nodes[test]


def _first_fitting(texts: Iterable[str], inside: Collection[Test], outside: Collection[Test]) -> str | None:
    return next(
        (
            text
            for text in texts
            if all(test.fits(text) for test in inside) and not any(test.fits(text) for test in outside)
        ),
        None,
    )


def _add(state: dict[Dimension, _Tests], literal: Literal) -> None:
    inside, outside = state.get(literal.dimension, _NO_TESTS)
    added = frozenset((literal.test,))
    state[literal.dimension] = (inside | added, outside) if literal.holds else (inside, outside | added)


def _is_excluded(state: Mapping[Dimension, _Tests], literal: Literal) -> bool:
    inside, outside = state.get(literal.dimension, _NO_TESTS)
    if not literal.holds:
        return literal.test in inside
    return literal.test in outside or any(are_disjoint(literal.test, other) for other in inside)


def _open_literals(state: Mapping[Dimension, _Tests], conjunction: Conjunction) -> list[Literal]:
    """Return the conditions of a match that `state` does not contain; headers and parameters first, which can be absent."""
    literals = []
    for literal in conjunction:
        inside, outside = state.get(literal.dimension, _NO_TESTS)
        if literal.test not in (inside if literal.holds else outside):
            literals.append(literal)
    return sorted(literals, key=lambda literal: literal.dimension.part == "path")


def covers(outer: Test, inner: Test) -> bool:
    """Return whether it is certain that each text of `inner` meets `outer`."""
    if outer == inner:
        return True
    if inner.kind == "exact":
        return outer.fits(inner.value)
    if outer.kind == "begins":
        return inner.start.startswith(outer.value)
    if outer.kind == "prefix":
        return inner.start.startswith(f"{outer.value}/") or (inner.kind == "prefix" and outer.fits(inner.value))
    return False


def are_disjoint(test: Test, other: Test) -> bool:
    """Return whether it is certain that no text meets both conditions."""
    if test.kind == "one of" and other.kind == "one of":
        return not set(test.value.split(" ")) & set(other.value.split(" "))
    if test.kind == "exact":
        return not other.fits(test.value)
    if other.kind == "exact":
        return not test.fits(other.value)
    if test.kind == other.kind == "prefix":
        return not test.fits(other.value) and not other.fits(test.value)
    return not test.start.startswith(other.start) and not other.start.startswith(test.start)
