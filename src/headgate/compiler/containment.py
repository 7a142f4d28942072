"""How two matches relate: whether one takes every request of the other, where simple means can decide that, and both as one."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from headgate.compiler.regex_samples import always_begins, beginning, matches_everything
from headgate.model.evaluate import path_fits, text_fits
from headgate.model.requests import Header, Match, Path, Query, Text

ALWAYS_THERE = ":authority"


def contains(wide: Match, narrow: Match) -> bool:
    """Say whether it is certain that every request of `narrow` fits `wide`."""
    paths = (narrow.path, *narrow.other_paths)
    return (
        all(any(path_contains(item, path) for path in paths) for item in (wide.path, *wide.other_paths))
        and (not wide.methods or (bool(narrow.methods) and set(narrow.methods) <= set(wide.methods)))
        and _texts_contain(wide.headers, narrow.headers)
        and _texts_contain(wide.query, narrow.query)
    )


def path_contains(wide: Path | None, narrow: Path | None) -> bool:
    """Say whether it is certain that every path that fits `narrow` fits `wide`; None is every path."""
    if wide is None or wide == narrow or _is_any_path(wide):
        return True
    if narrow is None:
        return False
    if narrow.kind == "exact":
        return path_fits(wide, narrow.value)
    if narrow.kind == "prefix":
        return _takes_prefix(wide, narrow.value)
    return _takes_regex(wide, narrow.value)


def _is_any_path(path: Path) -> bool:
    if path.kind == "prefix":
        return not path.value.rstrip("/")
    return path.kind == "regex" and matches_everything(path.value)


def _takes_prefix(wide: Path, value: str) -> bool:
    if wide.kind == "prefix":
        return path_fits(wide, value.rstrip("/") or "/")
    start = beginning(wide.value) if wide.kind == "regex" else None
    return start is not None and value.rstrip("/").startswith(start)


def _takes_regex(wide: Path, pattern: str) -> bool:
    if wide.kind == "prefix":
        return always_begins(pattern, wide.value.rstrip("/") + "/")
    start = beginning(wide.value) if wide.kind == "regex" else None
    return start is not None and always_begins(pattern, start)


def _texts_contain(wide: Iterable[Header | Query], narrow: Iterable[Header | Query]) -> bool:
    """Say whether each condition of `wide` follows from the one of the same name in `narrow`."""
    known: defaultdict[str, list[Text | None]] = defaultdict(lambda: [None])
    for item in narrow:
        known[item.name].append(item.text)
    return all(
        any(_follows(item.text, text, there=item.name == ALWAYS_THERE) for text in known[item.name]) for item in wide
    )


def _follows(wide: Text, narrow: Text | None, *, there: bool) -> bool:
    anything = wide.regex and matches_everything(wide.value) and wide.value.startswith((".*", "^.*"))
    if narrow is None:
        return there and anything
    if anything or wide == narrow:
        return True
    return not narrow.regex and text_fits(wide, narrow.value)


def intersect(one: Match, other: Match) -> Match | None:
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
