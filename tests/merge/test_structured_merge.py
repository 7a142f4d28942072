"""Field sets, comparison and merge by schema. Property tests use a schema with every kind of list."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.merge.managed_fields import Manager, Managers, Versions, Write, updated
from headgate.merge.server_side_apply import ApplyConflicts, applied
from headgate.merge.structured_merge import (
    Item,
    MergeError,
    _merged_items,
    compare,
    fields_of,
    merged,
    read_field_set,
    text_of,
    with_named_members,
    without,
    write_field_set,
)
from headgate.resources.schema.catalog import schemas

TEXT = {"type": "string"}
SERVER = {
    "type": "object",
    "properties": {
        "name": TEXT,
        "protocol": {"type": "string", "default": "TCP"},
        "size": {"type": "integer"},
        "tags": {"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"},
    },
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "apiVersion": TEXT,
        "kind": TEXT,
        "metadata": {"type": "object", "properties": {"name": TEXT, "labels": {"additionalProperties": TEXT}}},
        "spec": {
            "type": "object",
            "properties": {
                "size": {"type": "integer"},
                "labels": {"type": "object", "additionalProperties": TEXT},
                "selector": {"type": "object", "additionalProperties": TEXT, "x-kubernetes-map-type": "atomic"},
                "command": {"type": "array", "items": TEXT},
                "tags": {"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"},
                "servers": {
                    "type": "array",
                    "items": SERVER,
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name", "protocol"],
                },
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
        },
    },
}
VERSIONS = Versions(lambda obj, _version: obj, lambda _version: SCHEMA)

words = st.sampled_from(["a", "b", "c"])
sizes = st.integers(0, 3)
tags = st.lists(words, unique=True, max_size=3)
labels = st.dictionaries(words, words, max_size=3)
servers = st.lists(
    st.fixed_dictionaries({"name": words, "protocol": words}, optional={"size": sizes, "tags": tags}),
    unique_by=lambda server: (server["name"], server["protocol"]),
    max_size=3,
)
free = st.recursive(sizes | words, lambda inner: st.dictionaries(words, inner, max_size=2), max_leaves=3)
specs = st.fixed_dictionaries(
    {},
    optional={
        "size": sizes,
        "labels": labels,
        "selector": labels,
        "command": st.lists(words, max_size=3),
        "tags": tags,
        "servers": servers,
        "free": st.dictionaries(words, free, max_size=2),
    },
)
objects = st.builds(lambda spec: {"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "x"}, "spec": spec}, specs)
EMPTY: dict[str, Any] = {"apiVersion": "v1", "kind": "Thing", "metadata": {}}


def write(name: str, *, force: bool = True) -> Write:
    return Write(Manager(name, "Apply", "v1"), "2026-01-01T00:00:00Z", VERSIONS, force=force)


def update(name: str) -> Write:
    return Write(Manager(name, "Update", "v1"), "2026-01-01T00:00:00Z", VERSIONS)


def owned(owners: Managers, name: str) -> Any:
    return next((one.paths for one in owners.values() if one.manager.name == name), frozenset())


def unordered(value: Any) -> Any:
    """Return a value with sorted lists, for comparison where the order of merged lists does not matter."""
    if isinstance(value, Mapping):
        return {
            name: sorted(json.dumps(unordered(item), sort_keys=True) for item in part)
            if name in ("servers", "tags")
            else unordered(part)
            for name, part in value.items()
        }
    return value


def of_spec(paths: Any) -> set[Any]:
    return {path for path in paths if path[0] == "f:spec"}


@given(objects)
def test_fields_v1_round_trips(obj: Any) -> None:
    fields = fields_of(obj, SCHEMA)
    assert read_field_set(write_field_set(fields)) == fields


@given(objects)
def test_an_object_does_not_differ_from_itself(obj: Any) -> None:
    assert not compare(obj, obj, SCHEMA).paths
    assert merged(obj, obj, SCHEMA) == obj


@given(objects, objects)
def test_a_merge_has_every_field_of_the_configuration(live: Any, config: Any) -> None:
    result = merged(live, config, SCHEMA)
    difference = compare(result, config, SCHEMA)
    assert not of_spec(difference.modified) - {("f:spec",)}
    assert not of_spec(difference.added)
    assert fields_of(config, SCHEMA) <= fields_of(result, SCHEMA) | with_named_members(
        fields_of(config, SCHEMA), SCHEMA
    )


@given(objects)
def test_removing_all_fields_of_a_spec_leaves_nothing(obj: Any) -> None:
    fields = with_named_members(of_spec(fields_of(obj, SCHEMA)), SCHEMA)
    rest = without(obj, fields, SCHEMA)
    assert not rest.get("spec")


@given(objects)
def test_a_manager_owns_exactly_the_fields_that_it_applies(config: Any) -> None:
    obj, owners = applied(EMPTY, config, {}, write("one"))
    assert owned(owners, "one") == of_spec(fields_of(config, SCHEMA))
    assert obj == config


@given(objects, objects)
def test_a_repeated_apply_changes_nothing(before: Any, config: Any) -> None:
    live, owners = applied(EMPTY, before, {}, write("other"))
    once = applied(live, config, owners, write("one"))
    again = applied(*[once[0], config, once[1]], write("one")._replace(time="2027-01-01T00:00:00Z"))
    assert again == once


@given(objects, objects)
def test_a_field_that_its_only_manager_stops_applying_is_removed(first: Any, second: Any) -> None:
    live, owners = applied(EMPTY, first, {}, write("one"))
    obj, after = applied(live, second, owners, write("one"))
    assert unordered(obj["spec"] if obj.get("spec") else {}) == unordered(second["spec"])
    assert owned(after, "one") == of_spec(fields_of(second, SCHEMA))


@given(objects, objects)
def test_managers_of_different_fields_may_apply_in_any_order(first: Any, second: Any) -> None:
    apart = dict(second["spec"])
    theirs = of_spec(with_named_members(fields_of(first, SCHEMA), SCHEMA))
    for name in list(apart):
        if any(path[:2] == ("f:spec", f"f:{name}") for path in theirs) and name != "labels":
            del apart[name]
    if "labels" in apart:
        given_labels = first["spec"].get("labels", {})
        apart["labels"] = {name: value for name, value in apart["labels"].items() if name not in given_labels}
    other = {**second, "spec": apart}
    results = []
    for configs in ((("one", first), ("two", other)), (("two", other), ("one", first))):
        live, owners = EMPTY, {}
        for name, config in configs:
            live, owners = applied(live, config, owners, write(name, force=False))
        results.append((unordered(live), {name: owned(owners, name) for name in ("one", "two")}))
    assert results[0] == results[1]


@given(objects, objects)
def test_an_update_takes_ownership_of_the_fields_that_it_changes(before: Any, after: Any) -> None:
    live, owners = applied(EMPTY, before, {}, write("one"))
    left = updated(live, after, owners, update("two"))
    difference = compare(live, after, SCHEMA)
    assert owned(left, "two") == of_spec(difference.touched)
    assert owned(left, "one") == owned(owners, "one") - difference.paths


def test_a_field_stays_while_another_manager_sets_it() -> None:
    config = {**EMPTY, "spec": {"size": 1, "labels": {"a": "1"}}}
    live, owners = applied(EMPTY, config, {}, write("one"))
    live, owners = applied(live, config, owners, write("two"))
    live, owners = applied(live, {**EMPTY, "spec": {"labels": {"b": "1"}}}, owners, write("one"))
    assert live["spec"] == {"size": 1, "labels": {"a": "1", "b": "1"}}
    live, owners = applied(live, EMPTY, owners, write("two"))
    assert live["spec"] == {"labels": {"b": "1"}}
    assert [one.manager.name for one in owners.values()] == ["one"]


def test_a_conflict_names_manager_and_field_and_force_overrides_it() -> None:
    server = {"name": "a", "size": 1}
    live, owners = applied(EMPTY, {**EMPTY, "spec": {"servers": [server], "size": 1}}, {}, write("one"))
    wanted = {**EMPTY, "spec": {"servers": [{**server, "size": 2}], "size": 1}}
    with pytest.raises(ApplyConflicts) as error:
        applied(live, wanted, owners, write("two", force=False))
    (conflict,) = error.value.conflicts
    assert (conflict.owner_name, conflict.field) == ('"one"', '.spec.servers[name="a",protocol="TCP"].size')
    live, owners = applied(live, wanted, owners, write("two"))
    assert live["spec"]["servers"] == [{**server, "size": 2}]
    size = ("f:spec", "f:servers", 'k:{"name":"a","protocol":"TCP"}', "f:size")
    assert size in owned(owners, "two")
    assert size not in owned(owners, "one")


def test_applied_items_keep_their_order_and_other_items_their_position() -> None:
    live = {"spec": {"tags": ["a", "x", "b"]}}
    assert merged(live, {"spec": {"tags": ["b", "a", "c"]}}, SCHEMA)["spec"]["tags"] == ["b", "x", "a", "c"]


def test_the_time_to_merge_lists_grows_linearly() -> None:
    """A set of 20,000 items in the opposite order took 4.8 s, in which headgate answered no other request."""
    comparisons = 0

    class Element(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            nonlocal comparisons
            comparisons += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    def items(numbers: Iterable[int]) -> list[Item]:
        return [Item(Element(f"v:{number}"), number, {}) for number in numbers]

    assert _merged_items(items(range(500)), items(reversed(range(500))), {}) == [*reversed(range(500))]
    assert comparisons <= 5_000  # a search in a list compares 125,000 times


def test_a_duplicate_item_is_rejected_with_its_path() -> None:
    config = {"spec": {"servers": [{"name": "a"}, {"name": "a", "protocol": "TCP"}]}}
    with pytest.raises(MergeError, match=r'^\.spec\.servers\[name="a",protocol="TCP"\]: the item is in the list twice'):
        fields_of(config, SCHEMA)


def test_an_item_without_keys_is_rejected_in_an_apply_and_compared_in_an_update() -> None:
    config = {"metadata": {"ownerReferences": [{"name": "a"}]}}
    schema = schemas()["", "v1", "ConfigMap"]
    with pytest.raises(MergeError, match=r"ownerReferences\[0\]: must be an object with uid"):
        fields_of(config, schema)
    assert compare({"metadata": {}}, config, schema).added
    assert not compare(config, config, schema).paths


def test_the_number_of_managers_is_limited() -> None:
    live: Any = EMPTY
    owners: Managers = {}
    for number in range(30):
        new = {**EMPTY, "spec": {"free": {f"f{index}": 1 for index in range(number + 1)}}}
        owners = updated(live, new, owners, update(f"manager-{number}")._replace(time=f"2026-01-01T00:00:{number:02}Z"))
        live = new
    assert len(owners) <= 11
    assert len(owned(owners, "ancient-changes")) >= 19


@pytest.mark.parametrize(
    ("element", "text"),
    [
        (("f:spec", "f:replicas"), ".spec.replicas"),
        (("f:ports", 'k:{"port":80,"protocol":"TCP"}'), '.ports[port=80,protocol="TCP"]'),
        (("f:finalizers", 'v:"a"'), '.finalizers[="a"]'),
    ],
)
def test_paths_are_formatted_as_in_kubernetes(element: Any, text: str) -> None:
    assert text_of(element) == text


@pytest.mark.parametrize("fields", [{"spec": {}}, {"f:a": 1}, {"k:{": {}}, {"x:1": {}}, []])
def test_malformed_fields_v1_raises_a_value_error(fields: Any) -> None:
    with pytest.raises(ValueError):
        read_field_set(fields)


def test_items_of_every_keyed_list_have_the_key_fields() -> None:
    def lists(schema: Any) -> Any:
        if schema.get("x-kubernetes-list-type") == "map":
            yield schema
        for part in (*schema.get("properties", {}).values(), schema.get("items")):
            if isinstance(part, Mapping):
                yield from lists(part)

    found = [one for schema in schemas().values() for one in lists(schema)]
    assert len(found) > 20
    for one in found:
        assert set(one["x-kubernetes-list-map-keys"]) <= set(one["items"]["properties"])
