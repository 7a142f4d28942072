"""Rules of schemas that combine schemas or limit numbers, lists and maps."""

from typing import Any

import pytest

from headgate.resources.custom.structural import value_causes

ONE_OF = {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}
ROWS = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}


@pytest.mark.parametrize(
    ("value", "schema", "message"),
    [
        (1, {"minimum": 1, "exclusiveMinimum": True}, "must be greater than 1"),
        (9, {"maximum": 9, "exclusiveMaximum": True}, "must be less than 9"),
        (7, {"multipleOf": 5}, "must be a multiple of 5"),
        ({}, {"minProperties": 1}, "must have at least 1 fields"),
        ({"a": 1, "b": 2}, {"maxProperties": 1}, "must have at most 1 fields"),
        ([1, 1], {"uniqueItems": True}, "has the same entry twice"),
        ([{"name": "a"}, {"name": "a", "x": 1}], ROWS, "has two entries with the same name"),
        ({"a": 1, "b": 2}, ONE_OF, "exactly one schema in oneOf (a) (b)"),
        ({}, ONE_OF, "exactly one schema in oneOf"),
        ({}, {"anyOf": ONE_OF["oneOf"]}, "at least one schema in anyOf (a) (b)"),
        ({"a": 1}, {"allOf": [{"required": ["a"]}, {"required": ["b"]}]}, "all schemas in allOf (b)"),
        ({"a": 1}, {"not": {"required": ["a"]}}, "must not match"),
        ("x", {"anyOf": [{"pattern": "^a"}, {"enum": ["b"]}]}, "at least one schema in anyOf"),
    ],
)
def test_a_broken_rule_is_named(value: Any, schema: dict[str, Any], message: str) -> None:
    (cause,) = value_causes({"at": [value]}, {"properties": {"at": {"items": schema}}})
    assert cause.field == "at[0]"
    assert message in cause.message


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        (2, {"minimum": 1, "exclusiveMinimum": True, "multipleOf": 2}),
        ({"a": 1}, ONE_OF),
        ("b", {"anyOf": [{"pattern": "^a"}, {"enum": ["b"]}]}),
        ({"b": 1}, {"not": {"required": ["a"]}, "maxProperties": 1}),
        ([{"name": "a"}, {"name": "b"}], ROWS),
        (80, {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (None, {"minProperties": 1}),
    ],
)
def test_a_value_that_follows_its_rules_has_no_mistake(value: Any, schema: dict[str, Any]) -> None:
    assert [*value_causes({"at": value}, {"additionalProperties": schema})] == []
