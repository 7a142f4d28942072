"""JSON patch, merge patch and strategic merge patch, by the rules that kubectl relies on."""

import json
from typing import Any

import pytest

from headgate.api.status import ApiError
from headgate.errors import DecodeError
from headgate.resources.schema.catalog import schemas
from headgate.standalone.apiserver.patches import (
    MOST_COPIED_BYTES,
    MOST_OPERATIONS,
    json_patch,
    merge_patch,
    strategic_patch,
)

POD = schemas()["", "v1", "Pod"]
SERVICE = schemas()["", "v1", "Service"]


def containers(*items: Any, **more: Any) -> dict[str, Any]:
    return {"spec": {"containers": list(items), **more}}


A, B, C = ({"name": name, "image": "1"} for name in "abc")

STRATEGIC = {
    "a value sets a field, null removes a field": (
        {"metadata": {"labels": {"x": "1", "y": "2"}}},
        {"metadata": {"labels": {"x": None, "z": "3"}}},
        {"metadata": {"labels": {"y": "2", "z": "3"}}},
    ),
    "an item is merged by its key": (
        containers(A, B),
        containers({"name": "b", "image": "2"}),
        containers(A, {"name": "b", "image": "2"}),
    ),
    "an item with a new key is added": (containers(A), containers(C), containers(A, C)),
    "an item is deleted by its key": (containers(A, B), containers({"name": "a", "$patch": "delete"}), containers(B)),
    "$patch replace replaces a list": (containers(A, B), containers(C, {"$patch": "replace"}), containers(C)),
    "$patch replace replaces an object": (
        {"spec": {"nodeSelector": {"x": "1"}}},
        {"spec": {"nodeSelector": {"$patch": "replace", "y": "2"}}},
        {"spec": {"nodeSelector": {"y": "2"}}},
    ),
    "$patch delete empties an object": (
        {"spec": {"nodeSelector": {"x": "1"}}},
        {"spec": {"nodeSelector": {"$patch": "delete"}}},
        {"spec": {"nodeSelector": {}}},
    ),
    "$setElementOrder sets the order": (
        containers(A, B),
        {"spec": {"$setElementOrder/containers": [{"name": "c"}, {"name": "b"}, {"name": "a"}], "containers": [C]}},
        containers(C, B, A),
    ),
    "an unlisted item stays behind the item before it": (
        containers(A, B, C),
        {"spec": {"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}]}},
        containers(C, A, B),
    ),
    "only the listed fields are retained": (
        {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}},
        {"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/"}, "$retainKeys": ["name", "hostPath"]}]}},
        {"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}},
    ),
    "primitive items are merged as a set": (
        {"metadata": {"finalizers": ["x"]}},
        {"metadata": {"finalizers": ["y", "x"]}},
        {"metadata": {"finalizers": ["x", "y"]}},
    ),
    "primitive items are deleted": (
        {"metadata": {"finalizers": ["x", "y"]}},
        {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x"]}},
        {"metadata": {"finalizers": ["y"]}},
    ),
    "a list without a merge key is replaced": (
        containers({**A, "args": ["1"]}),
        containers({"name": "a", "args": ["2"]}),
        containers({**A, "args": ["2"]}),
    ),
}


@pytest.mark.parametrize(("before", "patch", "after"), STRATEGIC.values(), ids=STRATEGIC.keys())
def test_a_strategic_merge_patch_merges_by_the_schema(before: Any, patch: Any, after: Any) -> None:
    kept = json.dumps(before)
    assert strategic_patch(before, patch, POD) == after
    assert json.dumps(before) == kept  # the stored object is not modified in place


def test_the_ports_of_a_service_are_merged_by_number() -> None:
    before = {"spec": {"ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}]}}
    after = strategic_patch(before, {"spec": {"ports": [{"port": 81, "targetPort": 8081}]}}, SERVICE)
    assert after["spec"]["ports"] == [{"port": 80, "name": "a"}, {"port": 81, "name": "b", "targetPort": 8081}]


@pytest.mark.parametrize(
    "patch",
    [
        {"$patch": "explode"},
        {"spec": {"containers": [{"image": "x"}]}},
        {"spec": {"containers": ["x"]}},
        {"spec": {"$unknown/containers": []}},
        [],
    ],
)
def test_a_malformed_strategic_merge_patch_is_a_bad_request(patch: Any) -> None:
    with pytest.raises(ApiError) as caught:
        strategic_patch(containers(A), patch, POD)
    assert caught.value.code == 400


def test_merge_patch_follows_rfc_7386() -> None:
    before = {"a": "b", "c": {"d": "e", "f": "g"}, "l": [1, 2]}
    assert merge_patch(before, {"a": "z", "c": {"f": None}, "l": [3], "n": {"x": None, "y": 1}}) == {
        "a": "z",
        "c": {"d": "e"},
        "l": [3],
        "n": {"y": 1},
    }
    with pytest.raises(ApiError):
        merge_patch(before, ["a"])


def test_a_json_patch_applies_all_operations_or_none() -> None:
    before = {"spec": {"a": 1}}
    assert json_patch(before, [{"op": "test", "path": "/spec/a", "value": 1}, {"op": "remove", "path": "/spec/a"}]) == {
        "spec": {}
    }
    assert before == {"spec": {"a": 1}}
    for misfit in ([{"op": "test", "path": "/spec/a", "value": 2}], [{"op": "remove", "path": "/x"}]):
        with pytest.raises(DecodeError):
            json_patch(before, misfit)
    for malformed in ({}, [{}], ["x"], [{"op": "fly", "path": "/a"}], [{"op": "replace", "path": "", "value": 1}]):
        with pytest.raises(ApiError):
            json_patch(before, malformed)


def test_the_operations_of_a_json_patch_are_limited() -> None:
    test = {"op": "test", "path": "/a", "value": 1}
    assert json_patch({"a": 1}, [test] * MOST_OPERATIONS) == {"a": 1}
    with pytest.raises(ApiError) as caught:
        json_patch({"a": 1}, [test] * (MOST_OPERATIONS + 1))
    assert caught.value.code == 413


def test_the_bytes_that_a_json_patch_copies_are_limited() -> None:
    """With each pair of operations the object doubles: 60 operations would fill any memory."""
    text = "a" * (MOST_COPIED_BYTES // 2 - 2)
    once = [{"op": "copy", "from": "/a", "path": "/b"}]
    assert json_patch({"a": text}, once * 2) == {"a": text, "b": text}
    with pytest.raises(DecodeError, match="copies more than 3145728 bytes"):
        json_patch({"a": text}, once * 3)
    doubling = [{"op": "copy", "from": f"/{number}", "path": f"/{number}/-"} for number in "ab" for _ in range(30)]
    with pytest.raises(DecodeError, match="copies more than"):
        json_patch({"a": ["x"], "b": ["x"]}, doubling)


class Counted(str):
    """A text that counts how often it is compared with another."""

    __slots__ = ()
    comparisons = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return str.__eq__(self, other)


@pytest.mark.parametrize(
    ("field", "items", "directives"),
    [
        ("finalizers", list, {"$setElementOrder/finalizers": list}),
        ("finalizers", list, {"$deleteFromPrimitiveList/finalizers": list}),
        ("ownerReferences", lambda names: [{"uid": name} for name in names], {}),
        (
            "ownerReferences",
            lambda names: [{"uid": name} for name in names],
            {"$setElementOrder/ownerReferences": lambda names: [{"uid": name} for name in names]},
        ),
        ("ownerReferences", lambda names: [{"uid": name, "$patch": "delete"} for name in names], {}),
    ],
)
def test_the_comparisons_of_a_strategic_merge_patch_grow_with_the_length_of_its_lists(
    field: str, items: Any, directives: Any
) -> None:
    number = 2000
    old, new = ([Counted(index) for index in range(start, start + number)] for start in (0, number // 2))
    stored = [
        {name: value for name, value in item.items() if name == "uid"} if isinstance(item, dict) else item
        for item in items(old)
    ]
    patch = {field: items(new), **{name: listed(new[::-1]) for name, listed in directives.items()}}
    Counted.comparisons = 0
    strategic_patch({"metadata": {field: stored}}, {"metadata": patch}, POD)
    assert Counted.comparisons < 10 * number
