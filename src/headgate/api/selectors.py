"""Label and field selectors, as they come in a query: text in, a predicate over objects out."""

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from headgate.api.status import ApiError
from headgate.resources.meta import Object

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
_FIELDS = {
    "Pod": {"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName"}
    | {"status.phase", "status.podIP", "status.nominatedNodeName"},
    "Event": {f"involvedObject.{part}" for part in ("kind", "namespace", "name", "uid", "apiVersion")}
    | {"involvedObject.resourceVersion", "involvedObject.fieldPath", "reason", "source", "type"},
    "Secret": {"type"},
    "Namespace": {"status.phase"},
    "ReplicaSet": {"status.replicas"},
}


def everything(_: Object) -> bool:
    """Match every object."""
    return True


def label_selector(text: str) -> Predicate:
    """Read `app=web,tier in (a, b),!old`. Raises ApiError 400."""
    tests = [_label_test(part.strip()) for part in _split_outside_parentheses(text)]
    return lambda obj: all(test((obj["metadata"].get("labels")) or {}) for test in tests)


def _label_test(part: str) -> Callable[[dict[str, str]], bool]:
    if found := _SET.fullmatch(part):
        key, operator, listed = found.groups()
        values = {value.strip() for value in listed.split(",")}
        if operator == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if found := _EQUALITY.fullmatch(part):
        key, operator, value = found.groups()
        return (
            (lambda labels: labels.get(key) != value) if operator == "!=" else (lambda labels: labels.get(key) == value)
        )
    if found := _ORDER.fullmatch(part):
        key, operator, number = found.groups()
        return lambda labels: _in_order(labels.get(key), operator, int(number))
    if found := _EXISTS.fullmatch(part):
        absent, key = found.groups()
        return (lambda labels: key not in labels) if absent else (lambda labels: key in labels)
    raise ApiError(
        400, f"unable to parse requirement {part!r}: write key=value, key!=value, key in (a, b), key or !key"
    )


def written_selector(text: str) -> dict[str, Any]:
    """Return a label selector as an object has it (LabelSelector). Only for text that `label_selector` takes."""
    labels: dict[str, str] = {}
    expressions: list[dict[str, Any]] = []
    for part in map(str.strip, _split_outside_parentheses(text)):
        key, operator, values = _requirement(part)
        if operator == "=" and key not in labels:
            labels[key] = values[0]
        else:
            expression = {"key": key, "operator": _OPERATORS[operator], "values": values}
            expressions.append({name: value for name, value in expression.items() if value})
    found: dict[str, Any] = {"matchLabels": labels} if labels else {}
    return found | ({"matchExpressions": expressions} if expressions else {})


def _requirement(part: str) -> tuple[str, str, list[str]]:
    if found := _SET.fullmatch(part):
        return found[1], found[2], [value.strip() for value in found[3].split(",")]
    if found := _EQUALITY.fullmatch(part) or _ORDER.fullmatch(part):
        return found[1], found[2].replace("==", "="), [found[3]]
    return part.removeprefix("!").strip(), "!" if part.startswith("!") else "", []


def _in_order(value: str | None, operator: str, number: int) -> bool:
    if value is None or not value.lstrip("-").isdecimal():
        return False
    return int(value) > number if operator == ">" else int(value) < number


def _split_outside_parentheses(text: str) -> Iterator[str]:
    start = depth = 0
    for index, letter in enumerate(text):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            yield text[start:index]
            start = index + 1
    yield text[start:]


def field_selector(text: str, kind: str) -> Predicate:
    """Read `metadata.name=web,status.phase!=Failed`. Raises ApiError 400, also for a field without support."""
    known = _COMMON_FIELDS | _FIELDS.get(kind, set())
    tests = []
    for part in re.split(r"(?<!\\),", text):
        found = _FIELD.fullmatch(part.strip())
        if found is None:
            raise ApiError(400, f"invalid field selector {part!r}: write field=value or field!=value")
        field, operator, value = found.groups()
        if field not in known:
            raise ApiError(
                400,
                f'"{field}" is not a known field selector: only ' + ", ".join(f'"{name}"' for name in sorted(known)),
            )
        tests.append((field.split("."), operator != "!=", _ESCAPED.sub(r"\1", value)))
    return lambda obj: all((_field(obj, path) == value) is equal for path, equal, value in tests)


def selected_name(text: str) -> str:
    """Return the one name that a field selector lets through, empty where there may be several."""
    found = (_FIELD.fullmatch(part.strip()) for part in re.split(r"(?<!\\),", text) if part)
    names = (part[3] for part in found if part and part[1] == "metadata.name" and part[2] != "!=")
    return _ESCAPED.sub(r"\1", next(names, ""))


def _field(obj: Object, path: list[str]) -> str:
    value: Any = obj
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    if isinstance(value, dict):  # an event's `source` is selected by its component
        value = value.get("component")
    return "" if value is None else str(value)
