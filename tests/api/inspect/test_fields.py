"""The fields of the inspect API follow the conventions of Kubernetes APIs: names, times, numbers, lists and sentences."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from headgate.api.inspect.registry import RESOURCES
from headgate.api.inspect.schema import shapes
from headgate.resources.call_records import CallRecordList
from headgate.resources.inspect import FindingList, ProxyList, TapEvent, TapNotice
from headgate.resources.mesh_status import MeshStatusList
from headgate.resources.revisions import RevisionList
from headgate.resources.traffic_graphs import TrafficGraphList
from headgate.resources.workload_sidecars import WorkloadSidecarsList

LISTS: tuple[type[msgspec.Struct], ...] = (
    ProxyList,
    MeshStatusList,
    FindingList,
    CallRecordList,
    RevisionList,
    WorkloadSidecarsList,
    TrafficGraphList,
)
CAMEL_CASE = re.compile("[a-z][a-zA-Z0-9]*")


def field_types(shape: type[msgspec.Struct]) -> Iterator[tuple[str, msgspec.inspect.Type]]:
    """Yield each field of a type and of the types in it, as `TYPE.FIELD` with its type."""
    (info,) = msgspec.inspect.multi_type_info([shape])
    waiting, done = [info], set()
    while waiting:
        match waiting.pop():
            case msgspec.inspect.StructType(cls=cls, fields=fields) if cls not in done:
                done.add(cls)
                for field in fields:
                    yield f"{cls.__name__}.{field.encode_name}", field.type
                    waiting.append(field.type)
            case msgspec.inspect.Metadata(type=inner) | msgspec.inspect.VarTupleType(item_type=inner):
                waiting.append(inner)
            case msgspec.inspect.UnionType(types=types):
                waiting.extend(types)


def every_field() -> dict[str, msgspec.inspect.Type]:
    types = (*shapes().values(), *LISTS, TapEvent, TapNotice)
    return {name: found for shape in types for name, found in field_types(shape)}


FIELDS = every_field()


def parts_of(found: msgspec.inspect.Type) -> Iterator[msgspec.inspect.Type]:
    """Yield a type and the types of its members, without those of the fields of objects."""
    yield found
    match found:
        case msgspec.inspect.UnionType(types=types):
            yield from (part for one in types for part in parts_of(one))
        case (
            msgspec.inspect.VarTupleType(item_type=inner)
            | msgspec.inspect.Metadata(type=inner)
            | msgspec.inspect.DictType(value_type=inner)
        ):
            yield from parts_of(inner)


def is_time(found: msgspec.inspect.Type) -> bool:
    return isinstance(found, msgspec.inspect.Metadata) and found.extra_json_schema == {"format": "date-time"}


def test_the_fields_of_every_resource_are_known() -> None:
    assert {"Proxy.status", "ExplanationStatus.backends", "Differences.requests", "TapEvent.startTime"} <= FIELDS.keys()
    assert {resource.kind for resource in RESOURCES.values() if resource.verbs} <= shapes().keys()


@pytest.mark.parametrize("name", FIELDS)
def test_each_field_is_camel_case_is_no_float_and_a_time_says_so(name: str) -> None:
    field = name.partition(".")[2]
    assert CAMEL_CASE.fullmatch(field)
    assert not any(isinstance(part, msgspec.inspect.FloatType) for part in parts_of(FIELDS[name]))
    assert field.endswith("Time") == is_time(FIELDS[name])


@pytest.mark.parametrize("shape", LISTS, ids=lambda shape: shape.__name__)
def test_a_list_has_its_kind_and_items(shape: type[msgspec.Struct]) -> None:
    fields = {field.name: field for field in msgspec.structs.fields(shape)}
    assert fields["kind"].default == shape.__name__
    assert {"items", "metadata", "api_version"} <= fields.keys()


def test_each_listed_resource_has_a_list() -> None:
    listed = {f"{resource.kind}List" for resource in RESOURCES.values() if resource.list}
    assert listed == {shape.__name__ for shape in LISTS}


def test_a_question_has_a_spec_and_a_status() -> None:
    questions: dict[str, Any] = {resource.kind: resource.shape for resource in RESOURCES.values() if resource.create}
    assert questions.keys() == {"Explanation", "Plan"}
    for shape in questions.values():
        assert {"metadata", "spec", "status"} <= {field.name for field in msgspec.structs.fields(shape)}


def test_each_type_has_the_kind_of_its_resource() -> None:
    for kind, shape in shapes().items():
        defaults = {field.name: field.default for field in msgspec.structs.fields(shape)}
        assert (defaults["kind"], defaults["api_version"]) == (kind, "inspect.headgate.dev/v1beta1")
