"""The JSONPaths of printer columns: fields, keys in brackets, indexes, `[*]`, and filters `[?(@.type=="Ready")]`."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headgate.resources import cells
from headgate.resources.cells import Cell
from headgate.resources.meta import Object

_STEP = re.compile(
    r"""\.(?P<field>(?:[^.\[\\]|\\.)+)
    | \['(?P<key>[^']*)'\]
    | \[(?P<index>-?\d{1,9})\]
    | \[(?P<all>\*)\]
    | \[\?\(\s*@\.(?P<name>[\w.]+)\s*==\s*(?P<quote>["'])(?P<text>[^"']*)(?P=quote)\s*\)\]""",
    re.VERBOSE,
)
_Select = Callable[[Any], Sequence[Any]]


def cell(path: str, *, is_date: bool) -> Callable[[Object], Cell]:
    """Return a column that shows the first value at a JSONPath, or its age; absent values are empty cells.

    A path with other elements selects nothing, as kubectl shows nothing for a path that an API server can't evaluate.
    """
    steps = _steps(path)

    def shown(obj: Object) -> Cell:
        values: Sequence[Any] = [obj]
        for select in steps:
            values = [inner for value in values for inner in select(value)]
        if not values or values[0] is None:
            return ""
        value = values[0]
        if is_date:
            return cells.duration(str(value))
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, Mapping | list | tuple):
            return json.dumps(value, separators=(",", ":"), sort_keys=True)
        return value if isinstance(value, int) else str(value)

    return shown


def _steps(path: str) -> Sequence[_Select]:
    text = path.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    steps: list[_Select] = []
    at = 0
    while at < len(text):
        step = _STEP.match(text, at)
        if step is None:
            return [lambda _: ()]
        steps.append(_step(step))
        at = step.end()
    return steps


def _step(step: re.Match[str]) -> _Select:
    if step["all"]:
        return lambda value: [*value.values()] if isinstance(value, Mapping) else _items(value)
    if step["index"] is not None:
        index = int(step["index"])
        return lambda value: _items(value)[index : index + 1 or None]
    if step["name"]:
        names, text = step["name"].split("."), step["text"]
        return lambda value: [row for row in _items(value) if _at(row, names) == text]
    name = step["key"] if step["key"] is not None else re.sub(r"\\(.)", r"\1", step["field"])
    if name == "*":
        return lambda value: [*value.values()] if isinstance(value, Mapping) else _items(value)
    return lambda value: [value[name]] if isinstance(value, Mapping) and name in value else []


def _items(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _at(value: Any, names: Sequence[str]) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
