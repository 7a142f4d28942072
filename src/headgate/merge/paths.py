"""Sets of field paths, and their written form `fieldsV1` (KEP-555, structured-merge-diff).

A path is a tuple of elements in the form that `fieldsV1` has: `f:NAME` a field, `k:{...}` the item of a list with these
keys, `v:VALUE` the item of a set. A set of paths holds exactly what is owned: a field is not in it because a part of it is.
"""

import json
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, TypeAlias

Path: TypeAlias = tuple[str, ...]
Paths: TypeAlias = AbstractSet[Path]
Tree: TypeAlias = dict[str, "Tree"]

SELF = "."
_LARGEST_DEPTH = 100


def field(name: str) -> str:
    """Return the element of a field."""
    return f"f:{name}"


def keyed(keys: Mapping[str, Any]) -> str:
    """Return the element of a list's item that these keys identify."""
    return f"k:{_json(keys)}"


def valued(value: Any) -> str:
    """Return the element of a set's item."""
    return f"v:{_json(value)}"


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)


def tree_of(paths: Iterable[Path]) -> Tree:
    """Return paths as a tree; a node that is a member itself has the key `.`."""
    root: Tree = {}
    for path in paths:
        node = root
        for element in path:
            node = node.setdefault(element, {})
        node[SELF] = {}
    return root


def written(paths: Iterable[Path]) -> dict[str, Any]:
    """Return paths as `fieldsV1`: `.` stands only at members that have parts of their own."""
    return _written(tree_of(paths))


def _written(node: Tree) -> dict[str, Any]:
    if node.keys() == {SELF}:
        return {}
    return {element: {} if element == SELF else _written(child) for element, child in sorted(node.items())}


def read(fields: Any) -> frozenset[Path]:
    """Read `fieldsV1`. Raises ValueError when it is not of that form."""
    found: set[Path] = set()
    _read(fields, (), found)
    return frozenset(found)


def _read(node: Any, path: Path, found: set[Path]) -> None:
    if not isinstance(node, Mapping) or len(path) > _LARGEST_DEPTH:
        raise ValueError(f"must be an object at {text_of(path) or 'its root'}")
    if path and not node:
        found.add(path)
    for element, child in node.items():
        if element == SELF:
            found.add(path)
        else:
            _read(child, (*path, _canonical(element)), found)


def _canonical(element: str) -> str:
    kind, _, rest = element.partition(":")
    if kind not in ("f", "k", "v", "i") or not _:
        raise ValueError(f"{element!r} is not a path element; it begins with f:, k:, v: or i:")
    return f"{kind}:{_json(json.loads(rest))}" if kind in ("k", "v") else element


def text_of(path: Path) -> str:
    """Return a path as Kubernetes' messages write it: `.spec.ports[port=80,protocol="TCP"].name`."""
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
