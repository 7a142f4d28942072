"""The parser of label and field selectors. It returns predicates over objects."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from headgate.api.status import ApiError
from headgate.resources.meta import Object, labels_of
from headgate.resources.selectors import Requirement, holds

Predicate: TypeAlias = Callable[[Object], bool]

_KEY = r"[A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?"
_SET = re.compile(rf"({_KEY})\s+(in|notin)\s*\(([^()]*)\)")
_EQUALITY = re.compile(rf"({_KEY})\s*(==|=|!=)\s*({_VALUE})")
_ORDER = re.compile(rf"({_KEY})\s*([<>])\s*(-?\d+)")
_EXISTS = re.compile(rf"(!?)\s*({_KEY})")
_FIELD = re.compile(r"((?:[^=!,\\]|\\.)+?)(==|!=|=)((?:[^,\\]|\\.)*)")
_ESCAPED = re.compile(r"\\(.)")

_OPERATORS = {
    "in": "In",
    "=": "In",
    "notin": "NotIn",
    "!=": "NotIn",
    "<": "Lt",
    ">": "Gt",
    "": "Exists",
    "!": "DoesNotExist",
}

_COMMON_FIELDS = frozenset({"metadata.name", "metadata.namespace"})


def everything(_: Object) -> bool:
    """Match every object."""
    return True


def label_selector(text: str) -> Predicate:
    """Parse a label selector such as `app=web,tier in (a, b),!old`. Raises ApiError 400."""
    requirements = [
        Requirement(key=key, operator=_OPERATORS[operator], values=tuple(values))
        for key, operator, values in _requirements(text)
    ]
    return lambda obj: all(holds(requirement, labels_of(obj)) for requirement in requirements)


def label_selector_object(text: str) -> dict[str, Any]:
    """Convert the text of a label selector to a LabelSelector object. Raises ApiError 400."""
    labels: dict[str, str] = {}
    expressions: list[dict[str, Any]] = []
    for key, operator, values in _requirements(text):
        if operator == "=" and key not in labels:
            labels[key] = values[0]
        else:
            expression = {"key": key, "operator": _OPERATORS[operator], "values": values}
            expressions.append({name: value for name, value in expression.items() if value})
    selector: dict[str, Any] = {"matchLabels": labels} if labels else {}
    return selector | ({"matchExpressions": expressions} if expressions else {})


def selected_values(text: str) -> Mapping[str, frozenset[str]]:
    """Return the values of each label that a label selector lists by `=` or `in`. Raises ApiError 400 for other operators."""
    values: dict[str, frozenset[str]] = {}
    for key, operator, listed in _requirements(text):
        if _OPERATORS[operator] != "In":
            raise ApiError(400, f"the labelSelector must list values of {key}: write {key}=value or {key} in (a, b)")
        values[key] = values[key] & {*listed} if key in values else frozenset(listed)
    return values


def _requirements(text: str) -> Iterator[tuple[str, str, Sequence[str]]]:
    """Yield label, operator (a key of `_OPERATORS`) and values for each part of a label selector."""
    for part in map(str.strip, _split_outside_parentheses(text)):
        if match := _SET.fullmatch(part):
            yield match[1], match[2], [value.strip() for value in match[3].split(",")]
        elif match := _EQUALITY.fullmatch(part) or _ORDER.fullmatch(part):
            yield match[1], match[2].replace("==", "="), [match[3]]
        elif match := _EXISTS.fullmatch(part):
            yield match[2], match[1], []
        else:
            raise ApiError(
                400,
                f"unable to parse requirement: {part!r}; write key=value, key!=value, key in (a, b), key or !key",
            )


def _split_outside_parentheses(text: str) -> Iterator[str]:
    start = depth = 0
    for index, letter in enumerate(text):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            yield text[start:index]
            start = index + 1
    yield text[start:]


def field_selector(text: str, fields: Collection[str] = ()) -> Predicate:
    """Parse a field selector such as `metadata.name=web,status.phase!=Failed`.

    `fields` has those that the kind supports besides the name and the namespace. Raises ApiError 400 for a malformed
    selector, and for another field.
    """
    supported_fields = _COMMON_FIELDS.union(fields)
    tests = []
    for part in re.split(r"(?<!\\),", text):
        match = _FIELD.fullmatch(part.strip())
        if match is None:
            raise ApiError(400, f"invalid field selector: {part!r}; write field=value or field!=value")
        field, operator, value = match.groups()
        if field not in supported_fields:
            supported = ", ".join(f'"{name}"' for name in sorted(supported_fields))
            raise ApiError(400, f'"{field}" is not a known field selector: only {supported}')
        tests.append((field.split("."), operator != "!=", _ESCAPED.sub(r"\1", value)))
    return lambda obj: all((_field(obj, path) == value) is equal for path, equal, value in tests)


def selected_name(text: str) -> str:
    """Return the only object name that a field selector matches; empty when it may match several."""
    matches = (_FIELD.fullmatch(part.strip()) for part in re.split(r"(?<!\\),", text) if part)
    names = (part[3] for part in matches if part and part[1] == "metadata.name" and part[2] != "!=")
    return _ESCAPED.sub(r"\1", next(names, ""))


def _field(obj: Object, path: list[str]) -> str:
    value: Any = obj
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    if isinstance(value, dict):  # the `source` of an Event
        value = value.get("component")
    return "" if value is None else str(value)
