"""Both of two matches as one: the match of a route's rule and those of the splits behind its backends."""

from collections.abc import Iterable, Sequence

from headgate.compiler.containment import path_contains
from headgate.model.evaluate import path_fits, text_fits
from headgate.model.requests import Header, Match, Path, Query, Text


def both(one: Match, other: Match) -> Match | None:
    """Return the match of requests that fit both; None where it is certain that no request does.

    The path of `one` stays the path of the result, as a rewrite of the matched prefix is about it; `other` has none of
    its own, or adds its conditions.
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
    """Return the conditions on the path that are left, the first one first; None where they exclude each other."""
    paths = list(dict.fromkeys(path for path in written if path))
    exact = next((path for path in paths if path.kind == "exact"), None)
    if exact:
        return [exact] if all(path_fits(path, exact.value) for path in paths) else None
    if any(_apart(path, after) for index, path in enumerate(paths) for after in paths[index + 1 :]):
        return None
    return [*paths[:1], *(path for path in paths[1:] if not path_contains(path, paths[0]))]


def _apart(one: Path, other: Path) -> bool:
    """Say whether no path can have both prefixes."""
    if one.kind != "prefix" or other.kind != "prefix":
        return False
    return not path_fits(one, other.value) and not path_fits(other, one.value)


def _texts(conditions: Iterable[Header | Query]) -> list[tuple[str, Text]] | None:
    """Return what is left of conditions on headers or parameters, sorted; None where two exclude each other."""
    found = sorted({(item.name, item.text) for item in conditions})
    exact = {name: text for name, text in found if not text.regex}
    if any(not text_fits(text, exact[name].value) for name, text in found if name in exact):
        return None
    return [(name, text) for name, text in found if not text.regex or name not in exact]
