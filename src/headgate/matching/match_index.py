"""Find the matches of a long list that a request of another match may fit, by the beginning of the path."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from headgate.matching.conditions import PATH, Conjunction, Literal, Test


class MatchIndex:
    """Finds the matches of a list whose path may fit together with the path of a match."""

    def __init__(self, matches: Sequence[Conjunction]) -> None:
        self._every = range(len(matches))
        self._exact: defaultdict[str, list[int]] = defaultdict(list)
        self._begins: defaultdict[str, list[int]] = defaultdict(list)
        self._other: list[int] = []
        for index, match in enumerate(matches):
            test = _key_test(match)
            if test is None:
                self._other.append(index)
            else:
                (self._exact if test.kind == "exact" else self._begins)[test.start].append(index)
        self._sorted_exact, self._sorted_begins = sorted(self._exact), sorted(self._begins)

    def near(self, match: Sequence[Literal]) -> Sequence[int]:
        """Return the positions of the matches that may fit a request of another match, in order."""
        test = _key_test(match)
        if test is None:
            return self._every
        positions = list(self._other)
        start = test.start
        for length in range(len(start) + 1):
            positions += self._begins.get(start[:length], ())
        if test.kind == "exact":
            positions += self._exact.get(start, ())
        else:
            for words, items in ((self._sorted_exact, self._exact), (self._sorted_begins, self._begins)):
                for word in _beginning_with(words, start):
                    positions += items[word]
        return sorted(set(positions))


def _key_test(match: Iterable[Literal]) -> Test | None:
    """Return the most selective condition on the path; None if no condition says how the path begins."""
    tests = [literal.test for literal in match if literal.dimension == PATH and literal.holds and literal.test.start]
    exact = next((test for test in tests if test.kind == "exact"), None)
    return exact or max(tests, key=lambda test: len(test.start), default=None)


def _beginning_with(words: Sequence[str], start: str) -> Iterator[str]:
    for index in range(bisect_left(words, start), len(words)):
        if not words[index].startswith(start):
            return
        yield words[index]
