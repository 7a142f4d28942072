"""OpenTelemetry's metrics as headgate reads them: what it does not look into stays bytes.

A report of 20 edges has 200 attributes and 7,000 numbers, and nearly all are as they were in the last one. As bytes they
are compared, and counts are added, at once; a Python object for each takes three times as long as all the rest.
"""

from functools import cache
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from headgate.envoy import pb
from headgate.envoy.reporting import BOUNDS
from headgate.telemetry import lanes

_PAIRS = "Pairs"
_ATTRIBUTES = frozenset({"attributes"})
_NUMBERS = frozenset({"bucket_counts", "explicit_bounds"})  # packed: 8 bytes each, little-endian
_POINTS = frozenset({"NumberDataPoint", "HistogramDataPoint"})
_TOPS = sum(1 << lanes.BITS[lanes.LONG] * (bucket + 1) - 1 for bucket in range(len(BOUNDS) + 1))  # of each lane


def growth(counts: int, old: int) -> int | None:
    """Return by how much each count of a histogram grew; None when one shrank. All are long `lanes`."""
    if not old:
        return counts
    rest = (counts | _TOPS) - old
    return rest ^ _TOPS if rest & _TOPS == _TOPS else None


def request() -> Any:
    """Return the class of `ExportMetricsServiceRequest` whose points have `attributes` as bytes, each a `KeyValue`.

    `bucket_counts` and `explicit_bounds` are bytes too, as they are in memory.
    """
    return _class(pb.ExportMetricsServiceRequest.DESCRIPTOR.full_name)


def pairs(attributes: bytes) -> dict[str, str]:
    """Return keys and values, those that are text, of `KeyValue`s one after the other; nothing of what is no such thing.

    Several messages in a row are one message, whose fields are there several times.
    """
    try:
        found = _class(_PAIRS).FromString(attributes)
    except DecodeError:
        return {}
    if len(found.key) != len(found.value):
        return {}
    return {key: value.string_value for key, value in zip(found.key, found.value, strict=True)}


@cache
def _class(name: str) -> Any:
    return GetMessageClass(_pool().FindMessageTypeByName(name))


@cache
def _pool() -> DescriptorPool:
    pool = DescriptorPool()
    _copy(pb.ExportMetricsServiceRequest.DESCRIPTOR.file, pool)
    original = pb.KeyValue.DESCRIPTOR
    several = FileDescriptorProto(name=_PAIRS, dependency=[original.file.name], syntax="proto3")
    original.CopyToProto(several.message_type.add())
    several.message_type[0].name = _PAIRS
    for field in several.message_type[0].field:
        field.label = FieldDescriptorProto.LABEL_REPEATED
    pool.AddSerializedFile(several.SerializeToString())
    return pool


def _copy(file: Any, pool: DescriptorPool) -> None:
    """Take over a file, and before it those that it needs."""
    for needed in file.dependencies:
        _copy(needed, pool)
    found = FileDescriptorProto()
    file.CopyToProto(found)
    for message in found.message_type:
        if message.name in _POINTS:
            _leave_as_bytes(message)
    pool.AddSerializedFile(found.SerializeToString())


def _leave_as_bytes(message: DescriptorProto) -> None:
    for field in message.field:
        if field.name in _ATTRIBUTES | _NUMBERS:
            field.type = FieldDescriptorProto.TYPE_BYTES
            field.ClearField("type_name")
            field.ClearField("options")
        if field.name in _NUMBERS:
            field.label = FieldDescriptorProto.LABEL_OPTIONAL
