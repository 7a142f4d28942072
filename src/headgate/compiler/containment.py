"""Compare two matches: whether every request that fits one also fits the other, and which requests fit both."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from headgate.compiler.regex_samples import always_begins, beginning, matches_everything
from headgate.model.evaluate import path_fits, text_fits
from headgate.model.requests import Header, Match, Path, Query, Text

ALWAYS_PRESENT = ":authority"


def contains(outer: Match, inner: Match) -> bool:
    """Say whether it is certain that every request that fits `inner` also fits `outer`."""
    paths = (inner.path, *inner.other_paths)
    return (
        all(any(path_contains(item, path) for path in paths) for item in (outer.path, *outer.other_paths))
        and (not outer.methods or (bool(inner.methods) and set(inner.methods) <= set(outer.methods)))
        and _texts_contain(outer.headers, inner.headers)
        and _texts_contain(outer.query, inner.query)
    )


def path_contains(outer: Path | None, inner: Path | None) -> bool:
    """Say whether it is certain that every path that fits `inner` also fits `outer`; None fits every path."""
    if outer is None or outer == inner or _is_any_path(outer):
        return True
    if inner is None:
        return False
    if inner.kind == "exact":
        return path_fits(outer, inner.value)
    if inner.kind == "prefix":
        return _contains_prefix(outer, inner.value)
    return _contains_regex(outer, inner.value)


def _is_any_path(path: Path) -> bool:
    if path.kind == "prefix":
        return not path.value.rstrip("/")
    return path.kind == "regex" and matches_everything(path.value)


def _contains_prefix(outer: Path, value: str) -> bool:
    if outer.kind == "prefix":
        return path_fits(outer, value.rstrip("/") or "/")
    start = beginning(outer.value) if outer.kind == "regex" else None
    return start is not None and value.rstrip("/").startswith(start)


def _contains_regex(outer: Path, pattern: str) -> bool:
    if outer.kind == "prefix":
        return always_begins(pattern, outer.value.rstrip("/") + "/")
    start = beginning(outer.value) if outer.kind == "regex" else None
    return start is not None and always_begins(pattern, start)


def _texts_contain(outer: Iterable[Header | Query], inner: Iterable[Header | Query]) -> bool:
    """Say whether each condition of `outer` follows from a condition of `inner` with the same name."""
    known: defaultdict[str, list[Text | None]] = defaultdict(lambda: [None])
    for item in inner:
        known[item.name].append(item.text)
    return all(
        any(_follows(item.text, text, present=item.name == ALWAYS_PRESENT) for text in known[item.name])
        for item in outer
    )


def _follows(outer: Text, inner: Text | None, *, present: bool) -> bool:
    anything = outer.regex and matches_everything(outer.value) and outer.value.startswith((".*", "^.*"))
    if inner is None:
        return present and anything
    if anything or outer == inner:
        return True
    return not inner.regex and text_fits(outer, inner.value)


def intersect(one: Match, other: Match) -> Match | None:
    """Return a match for the requests that fit both matches; None if it is certain that no request fits both.

    The path of `one` stays the path of the result, because a rewrite of the matched prefix refers to it. Paths of
    `other` become additional conditions.
    """
    methods = tuple(item for item in one.methods if item in other.methods) if other.methods else one.methods
    paths = _paths([one.path, *one.other_paths, other.path, *other.other_paths])
    found_headers = _texts((*one.headers, *other.headers))
    query = _texts((*one.query, *other.query))
    if paths is None or found_headers is None or query is None or (one.methods and other.methods and not methods):
        return None
    return Match(
        path=paths[0] if paths else None,
        other_paths=tuple(paths[1:]),
        methods=methods or one.methods or other.methods,
        headers=tuple(Header(name=name, text=text) for name, text in found_headers),
        query=tuple(Query(name=name, text=text) for name, text in query),
    )


def _paths(written: Sequence[Path | None]) -> list[Path] | None:
    """Return the conditions on the path without redundant ones, in order; None if they exclude each other."""
    paths = list(dict.fromkeys(path for path in written if path))
    exact = next((path for path in paths if path.kind == "exact"), None)
    if exact:
        return [exact] if all(path_fits(path, exact.value) for path in paths) else None
    if any(_disjoint(path, after) for index, path in enumerate(paths) for after in paths[index + 1 :]):
        return None
    return [*paths[:1], *(path for path in paths[1:] if not path_contains(path, paths[0]))]


def _disjoint(one: Path, other: Path) -> bool:
    """Say whether no path can begin with both prefixes, such as `/a` and `/b`."""
    if one.kind != "prefix" or other.kind != "prefix":
        return False
    return not path_fits(one, other.value) and not path_fits(other, one.value)


def _texts(conditions: Iterable[Header | Query]) -> list[tuple[str, Text]] | None:
    """Return the conditions on headers or parameters without redundant ones, sorted; None if two exclude each other."""
    found = sorted({(item.name, item.text) for item in conditions})
    exact = {name: text for name, text in found if not text.regex}
    if any(not text_fits(text, exact[name].value) for name, text in found if name in exact):
        return None
    return [(name, text) for name, text in found if not text.regex or name not in exact]
