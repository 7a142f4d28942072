"""Comparing, merging and pruning values by their schema, as structured-merge-diff does."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from headgate.merge.paths import SELF, Path, Paths, Tree, text_of, tree_of
from headgate.merge.shapes import ABSENT, Item, MergeError, form, has_field, list_keys, parts, schema_at
from headgate.resources.definitions.parts import Schema


class Comparison(NamedTuple):
    """Where two values differ."""

    removed: Paths
    modified: Paths
    added: Paths

    def limited(self, paths: Paths) -> "Comparison":
        """Return the comparison without some paths."""
        return Comparison(self.removed - paths, self.modified - paths, self.added - paths)

    @property
    def touched(self) -> Paths:
        """Return the paths whose value is new."""
        return self.modified | self.added

    @property
    def paths(self) -> Paths:
        """Return all paths that differ."""
        return self.removed | self.touched


def fields_of(value: Any, schema: Schema, *, distinct: bool = True) -> frozenset[Path]:
    """Return the paths that a value sets.

    Raises MergeError when an item of a list is there twice or has no keys, unless items need not be distinct.
    """
    found: set[Path] = set()
    _collect(Item("", value, schema), (), found)
    if distinct:
        _check_distinct(value, schema, ())
    return frozenset(found)


def _check_distinct(value: Any, schema: Schema, path: Path) -> None:
    if form(value, schema) == "leaf":
        return
    seen: set[str] = set()
    for part in parts(value, schema):
        below = (*path, part.element)
        if part.element.startswith("i:"):
            names = " and ".join(list_keys(schema))
            raise MergeError(f"{text_of(below)}: must be an object with {names}, which identifies it in the list")
        if part.element in seen:
            raise MergeError(f"{text_of(below)}: the item is in the list twice")
        seen.add(part.element)
        _check_distinct(part.value, part.schema, below)


def _collect(item: Item, path: Path, found: set[Path]) -> None:
    shape = form(item.value, item.schema)
    if shape == "leaf":
        found.add(path)
        return
    for part in parts(item.value, item.schema):
        below = (*path, part.element)
        _collect(part, below, found)
        if shape == "items" or part.value in ({}, []) or not has_field(item.schema, part.element):
            found.add(below)


def compare(old: Any, new: Any, schema: Schema) -> Comparison:
    """Return the paths at which two values differ; duplicates in a list are compared as one leaf."""
    found = Comparison(set(), set(), set())
    _compare(old, new, schema, (), found)
    return found


def _compare(old: Any, new: Any, schema: Schema, path: Path, found: Comparison) -> None:
    present = old if new is ABSENT else new
    shape = form(present, schema)
    if ABSENT not in (old, new) and form(old, schema) != shape:
        shape = "leaf"
    both = [value for value in (old, new) if value is not ABSENT]
    leaf = shape == "leaf" or not any(both)
    if not leaf:
        befores, afters = ({} if value is ABSENT else _indexed(value, schema) for value in (old, new))
        for element in {**befores, **afters}:
            before, after = befores.get(element, ABSENT), afters.get(element, ABSENT)
            _compare(before, after, schema_at(schema, element), (*path, element), found)
    if old is ABSENT:
        _add(found.added, path)
    elif new is ABSENT:
        _add(found.removed, path)
    elif leaf and old != new:
        _add(found.modified, path)


def _add(paths: Paths, path: Path) -> None:
    if isinstance(paths, set) and path:
        paths.add(path)


def _indexed(value: Any, schema: Schema) -> dict[str, Any]:
    """Return the parts by element; duplicates together, as a list that equals no single part."""
    found: dict[str, Any] = {}
    duplicates: dict[str, list[Any]] = {}
    for part in parts(value, schema):
        if part.element in found:
            duplicates.setdefault(part.element, [found[part.element]]).append(part.value)
        else:
            found[part.element] = part.value
    return found | {element: tuple(items) for element, items in duplicates.items()}


def merged(live: Any, config: Any, schema: Schema) -> Any:
    """Return `live` with all that `config` sets; shared items of a list are in the order of `config`."""
    shape = form(config, schema)
    if shape == "leaf" or live is ABSENT or form(live, schema) != shape:
        return config
    if shape == "fields":
        result = dict(live)
        for name, value in config.items():
            if value is not None:
                old = live.get(name)
                result[name] = merged(ABSENT if old is None else old, value, schema_at(schema, f"f:{name}"))
        return result
    return _merged_items(parts(live, schema), parts(config, schema), schema_at(schema, "items"))


def _merged_items(live: Sequence[Item], config: Sequence[Item], schema: Schema) -> list[Any]:
    old = {part.element: part.value for part in reversed(live)}
    wanted = [part.element for part in config]
    result: list[Any] = []
    done = 0
    for part in live:
        if part.element not in wanted:
            result.append(part.value)
            continue
        upto = next((i for i in range(done, len(wanted)) if wanted[i] in old), len(wanted) - 1) + 1
        result += [merged(old.get(one.element, ABSENT), one.value, schema) for one in config[done:upto]]
        done = max(done, upto)
    return result + [merged(old.get(one.element, ABSENT), one.value, schema) for one in config[done:]]


def without(value: Any, paths: Paths, schema: Schema) -> Any:
    """Return a value without the parts at some paths; ABSENT when none is left of it."""
    return _without(value, tree_of(paths), schema)


def _without(value: Any, tree: Tree, schema: Schema) -> Any:
    shape = form(value, schema)
    if shape == "leaf" or not value:
        return value
    kept: list[tuple[str, Any]] = []
    for part in parts(value, schema):
        below = tree.get(part.element)
        if below is None:
            kept.append((part.element, part.value))
        elif SELF not in below:
            rest = _without(part.value, below, part.schema)
            if rest is not ABSENT:
                kept.append((part.element, rest))
    if not kept:
        return ABSENT
    return {element[2:]: part for element, part in kept} if isinstance(value, Mapping) else [part for _, part in kept]


def with_named_members(paths: Paths, schema: Schema) -> frozenset[Path]:
    """Return paths, and the fields that the schema names on the way to them."""
    found = set(paths)
    for path in paths:
        part = schema
        for depth, element in enumerate(path[:-1]):
            if has_field(part, element):
                found.add(path[: depth + 1])
            part = schema_at(part, element)
    return frozenset(found)
