"""Combine two matches into one for the requests that fit both."""

from collections.abc import Iterable, Sequence

from headgate.matching.conditions import Test, path_test
from headgate.matching.solver import are_disjoint, covers
from headgate.model.evaluate import text_fits
from headgate.model.requests import Header, Match, Path, Query, Text


def intersect(match: Match, other: Match) -> Match | None:
    """Return a match for the requests that fit both matches; None if it is certain that no request fits both.

    The path of `match` stays the path of the result, because a rewrite of the matched prefix refers to it. Paths of
    `other` become additional conditions.
    """
    methods = tuple(method for method in match.methods if method in other.methods) if other.methods else match.methods
    paths = _paths([match.path, *match.other_paths, other.path, *other.other_paths])
    headers = _texts((*match.headers, *other.headers))
    query = _texts((*match.query, *other.query))
    if paths is None or headers is None or query is None or (match.methods and other.methods and not methods):
        return None
    return Match(
        path=paths[0] if paths else None,
        other_paths=tuple(paths[1:]),
        methods=methods or match.methods or other.methods,
        headers=tuple(Header(name=name, text=text) for name, text in headers),
        query=tuple(Query(name=name, text=text) for name, text in query),
    )


def _paths(written: Sequence[Path | None]) -> list[Path] | None:
    """Return the conditions on the path without redundant ones, in order; None if they exclude each other."""
    tests = {path: path_test(path) for path in written if path}
    exact = next((path for path in tests if path.kind == "exact"), None)
    if exact:
        return [exact] if all(test.fits(exact.value) for test in tests.values()) else None
    if any(are_disjoint(test, other) for test in tests.values() for other in tests.values()):
        return None
    first, *later = tests.values() or [Test("prefix", "")]
    redundant = {test for test in later if covers(test, first) or not test.value}  # every path begins with ""
    return [path for path, test in tests.items() if test not in redundant]


def _texts(conditions: Iterable[Header | Query]) -> list[tuple[str, Text]] | None:
    """Return the conditions on headers or parameters without redundant ones, sorted; None if two exclude each other."""
    texts = sorted({(condition.name, condition.text) for condition in conditions})
    exact = {name: text for name, text in texts if not text.regex}
    if any(not text_fits(text, exact[name].value) for name, text in texts if name in exact):
        return None
    return [(name, text) for name, text in texts if not text.regex or name not in exact]
