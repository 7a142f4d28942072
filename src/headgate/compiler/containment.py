"""Whether one match takes every request of another, where that can be decided by simple means; else the answer is no."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from headgate.compiler.samples import always_begins, beginning, matches_everything
from headgate.model.evaluate import path_fits, text_fits
from headgate.model.requests import Header, Match, Path, Query, Text

ALWAYS_THERE = ":authority"


def contains(wide: Match, narrow: Match) -> bool:
    """Say whether it is certain that every request of `narrow` fits `wide`."""
    return (
        _paths_contain((wide.path, *wide.other_paths), (narrow.path, *narrow.other_paths))
        and (not wide.methods or (bool(narrow.methods) and set(narrow.methods) <= set(wide.methods)))
        and _texts_contain(wide.headers, narrow.headers)
        and _texts_contain(wide.query, narrow.query)
    )


def _paths_contain(wide: Sequence[Path | None], narrow: Sequence[Path | None]) -> bool:
    """Say whether each condition of `wide` follows from one of `narrow`."""
    return all(any(path_contains(condition, path) for path in narrow) for condition in wide)


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
