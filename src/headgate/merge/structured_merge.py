"""Compare, merge and prune values by their schema, as Kubernetes' structured-merge-diff does.

A path is a tuple of elements as in `fieldsV1` (KEP-555): `f:NAME` is a field, `k:{...}` the item of a list with these keys,
`v:VALUE` the item of a set. A set of paths contains each owned path itself: it may contain `spec.ports` without `spec`.

`x-kubernetes-list-type` and `x-kubernetes-map-type` decide whether a value is atomic (one leaf), and which keys identify the
items of a list. A schema without them may have the older `x-kubernetes-patch-strategy`. In a value without a schema,
objects are merged field by field and lists are atomic.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from headgate.resources.schema.builders import Schema

Path: TypeAlias = tuple[str, ...]
Paths: TypeAlias = AbstractSet[Path]
Tree: TypeAlias = dict[str, "Tree"]

SELF = "."
_LARGEST_DEPTH = 100


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)


def tree_of(paths: Iterable[Path]) -> Tree:
    """Return paths as a tree. A node whose own path is in the set has the key `.`."""
    root: Tree = {}
    for path in paths:
        node = root
        for element in path:
            node = node.setdefault(element, {})
        node[SELF] = {}
    return root


def write_field_set(paths: Iterable[Path]) -> dict[str, Any]:
    """Return paths as `fieldsV1`. A path is written as an empty object, or as the key `.` if longer paths extend it."""
    return _written(tree_of(paths))


def _written(node: Tree) -> dict[str, Any]:
    if node.keys() == {SELF}:
        return {}
    return {element: {} if element == SELF else _written(child) for element, child in sorted(node.items())}


def read_field_set(fields: Any) -> frozenset[Path]:
    """Parse `fieldsV1` to paths. Raises ValueError if it is malformed."""
    paths: set[Path] = set()
    _read(fields, (), paths)
    return frozenset(paths)


def _read(node: Any, path: Path, paths: set[Path]) -> None:
    if not isinstance(node, Mapping) or len(path) > _LARGEST_DEPTH:
        raise ValueError(f"must be an object at {text_of(path) or 'its root'}")
    if path and not node:
        paths.add(path)
    for element, child in node.items():
        if element == SELF:
            paths.add(path)
        else:
            _read(child, (*path, _canonical(element)), paths)


def _canonical(element: str) -> str:
    kind, _, rest = element.partition(":")
    if kind not in ("f", "k", "v", "i") or not _:
        raise ValueError(f"{element!r} is not a path element; it begins with f:, k:, v: or i:")
    return f"{kind}:{_json(json.loads(rest))}" if kind in ("k", "v") else element


def text_of(path: Path) -> str:
    """Return a path as in Kubernetes' messages: `.spec.ports[port=80,protocol="TCP"].name`."""
    return "".join(map(_element_text, path))


def _element_text(element: str) -> str:
    kind, _, rest = element.partition(":")
    match kind:
        case "f":
            return f".{rest}"
        case "k":
            return f"[{','.join(f'{name}={_json(value)}' for name, value in sorted(json.loads(rest).items()))}]"
        case "v":
            return f"[={rest}]"
        case _:
            return f"[{rest}]"


Form: TypeAlias = Literal["leaf", "fields", "items"]


class _Absent:
    """The type of `ABSENT`."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent()
"""The mark for a missing value. Fields of objects with a null value are treated as missing too."""


class MergeError(Exception):
    """A configuration can't be merged, because an item of a list has no keys, or two items have the same keys."""


class Item(NamedTuple):
    """A field of an object or an item of a list: its path element, its value and its schema.

    Two items of a list with equal elements are duplicates.
    """

    element: str
    value: Any
    schema: Schema


def form(value: Any, schema: Schema) -> Form:
    """Return how a value is merged: as one leaf, field by field, or item by item."""
    if isinstance(value, Mapping):
        return "leaf" if schema.get("x-kubernetes-map-type") == "atomic" else "fields"
    if isinstance(value, list | tuple) and list_type(schema) != "atomic":
        return "items"
    return "leaf"


def list_type(schema: Schema) -> str:
    """Return the type of a list: `atomic`, `set` or `map`."""
    if given := schema.get("x-kubernetes-list-type"):
        return str(given)
    if "merge" not in str(schema.get("x-kubernetes-patch-strategy", "")).split(","):
        return "atomic"
    return "map" if "x-kubernetes-patch-merge-key" in schema else "set"


def list_keys(schema: Schema) -> Sequence[str]:
    """Return the fields that identify an item in a `map` list."""
    return schema.get("x-kubernetes-list-map-keys") or [schema["x-kubernetes-patch-merge-key"]]


def has_field(schema: Schema, element: str) -> bool:
    """Return whether a path element is a field that the schema names (`f:spec`), not a key of a map (`f:my-label`)."""
    return element.startswith("f:") and element[2:] in schema.get("properties", {})


def field_schema(schema: Schema, name: str) -> Schema:
    """Return the schema of an object's field; an empty schema if the field is unknown."""
    field: Schema = schema.get("properties", {}).get(name) or schema.get("additionalProperties") or {}
    return field


def item_schema(schema: Schema) -> Schema:
    """Return the schema of a list's items; an empty schema if it is unknown."""
    items: Schema = schema.get("items") or {}
    return items


def schema_at(schema: Schema, element: str) -> Schema:
    """Return the schema of a field or list item by its path element; an empty schema if it is unknown."""
    return field_schema(schema, element[2:]) if element.startswith("f:") else item_schema(schema)


def parts(value: Any, schema: Schema) -> list[Item]:
    """Return the fields of an object, or the items of a list, each with its path element and schema.

    The path element of a list item without keys is `i:INDEX`.
    """
    if isinstance(value, Mapping):
        named = ((f"f:{name}", part) for name, part in value.items() if part is not None)
        return [Item(element, part, schema_at(schema, element)) for element, part in named]
    items = item_schema(schema)
    if list_type(schema) == "set":
        return [Item(f"v:{_json(element)}", element, items) for element in value]
    names = list_keys(schema)
    return [Item(_key_of(element, names, items) or f"i:{index}", element, items) for index, element in enumerate(value)]


def _key_of(element: Any, names: Sequence[str], schema: Schema) -> str:
    keys: dict[str, Any] = {}
    for name in names if isinstance(element, Mapping) else ():
        value = element.get(name)
        if value is None:
            value = field_schema(schema, name).get("default")
        if value is not None:
            keys[name] = value
    return f"k:{_json(keys)}" if keys else ""


class ChangedPaths(NamedTuple):
    """The paths at which two values differ."""

    removed: Paths
    modified: Paths
    added: Paths

    def limited(self, paths: Paths) -> "ChangedPaths":
        """Return the comparison without the given paths."""
        return ChangedPaths(self.removed - paths, self.modified - paths, self.added - paths)

    @property
    def touched(self) -> Paths:
        """The paths whose values were modified or added."""
        return self.modified | self.added

    @property
    def paths(self) -> Paths:
        """All paths that differ."""
        return self.removed | self.touched


def fields_of(value: Any, schema: Schema, *, distinct: bool = True) -> frozenset[Path]:
    """Return the paths that a value sets.

    With `distinct`, raises MergeError if a list has an item twice or an item without keys.
    """
    paths: set[Path] = set()
    _collect(Item("", value, schema), (), paths)
    if distinct:
        _check_distinct(value, schema, ())
    return frozenset(paths)


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


def _collect(node: Item, path: Path, paths: set[Path]) -> None:
    shape = form(node.value, node.schema)
    if shape == "leaf":
        paths.add(path)
        return
    for part in parts(node.value, node.schema):
        below = (*path, part.element)
        _collect(part, below, paths)
        if shape == "items" or part.value in ({}, []) or not has_field(node.schema, part.element):
            paths.add(below)


def compare(old: Any, new: Any, schema: Schema) -> ChangedPaths:
    """Return the paths at which two values differ. Duplicates in a list are compared as one leaf."""
    changed = ChangedPaths(set(), set(), set())
    _compare(old, new, schema, (), changed)
    return changed


def _compare(old: Any, new: Any, schema: Schema, path: Path, changed: ChangedPaths) -> None:
    present = old if new is ABSENT else new
    shape = form(present, schema)
    if ABSENT not in (old, new) and form(old, schema) != shape:
        shape = "leaf"
    both = [value for value in (old, new) if value is not ABSENT]
    leaf = shape == "leaf" or not any(both)
    if not leaf:
        earlier, later = ({} if value is ABSENT else _indexed(value, schema) for value in (old, new))
        for element in {**earlier, **later}:
            before, after = earlier.get(element, ABSENT), later.get(element, ABSENT)
            _compare(before, after, schema_at(schema, element), (*path, element), changed)
    if old is ABSENT:
        _add(changed.added, path)
    elif new is ABSENT:
        _add(changed.removed, path)
    elif leaf and old != new:
        _add(changed.modified, path)


def _add(paths: Paths, path: Path) -> None:
    if isinstance(paths, set) and path:
        paths.add(path)


def _indexed(value: Any, schema: Schema) -> dict[str, Any]:
    """Return the values of fields or items by path element. Duplicate items become one tuple of their values."""
    by_element: dict[str, Any] = {}
    duplicates: dict[str, list[Any]] = {}
    for part in parts(value, schema):
        if part.element in by_element:
            duplicates.setdefault(part.element, [by_element[part.element]]).append(part.value)
        else:
            by_element[part.element] = part.value
    return by_element | {element: tuple(items) for element, items in duplicates.items()}


def merged(live: Any, config: Any, schema: Schema) -> Any:
    """Return `live` with the values that `config` sets.

    List items that are in both values are in the order of `config`.
    """
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
    elements = [part.element for part in config]
    applied_elements = frozenset(elements)  # a search in the list takes seconds for 20,000 items
    result: list[Any] = []
    done = 0
    for part in live:
        if part.element not in applied_elements:
            result.append(part.value)
            continue
        upto = next((i for i in range(done, len(elements)) if elements[i] in old), len(elements) - 1) + 1
        result += [merged(old.get(applied.element, ABSENT), applied.value, schema) for applied in config[done:upto]]
        done = max(done, upto)
    return result + [merged(old.get(applied.element, ABSENT), applied.value, schema) for applied in config[done:]]


def without(value: Any, paths: Paths, schema: Schema) -> Any:
    """Return a value without the fields and items at the given paths; ABSENT if no field or item is left."""
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
    """Return the paths, and those of their ancestors that are named fields in the schema.

    `spec.replicas` adds `spec`. Items of lists and keys of maps are not added.
    """
    members = set(paths)
    for path in paths:
        part = schema
        for depth, element in enumerate(path[:-1]):
            if has_field(part, element):
                members.add(path[: depth + 1])
            part = schema_at(part, element)
    return frozenset(members)
