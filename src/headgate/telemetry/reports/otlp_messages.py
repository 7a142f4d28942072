"""Message classes for OpenTelemetry's metrics that leave attributes and numbers undecoded, as bytes.

A report of 20 edges has 200 attributes and 7,000 numbers, of which nearly all are as in the report before. Bytes are compared,
and counts added, in one operation; decoding a Python object for each would take three times as long as all the rest.
"""

from functools import cache
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from headgate.envoy import pb

_PAIRS = "Pairs"
_ATTRIBUTES = frozenset({"attributes"})
_NUMBERS = frozenset({"bucket_counts", "explicit_bounds"})  # packed: 8 bytes each, little-endian
_POINTS = frozenset({"NumberDataPoint", "HistogramDataPoint"})


def request() -> Any:
    """Return the class of `ExportMetricsServiceRequest` whose points have `attributes` as bytes, each a `KeyValue`.

    `bucket_counts` and `explicit_bounds` are bytes too, as they are in memory.
    """
    return _class(pb.ExportMetricsServiceRequest.DESCRIPTOR.full_name)


def pairs(attributes: bytes) -> dict[str, str]:
    """Decode `KeyValue`s that follow each other; return those with text. Malformed bytes have none.

    Messages in a row parse as one message with repeated fields.
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
    """Add a file, and first those that it imports."""
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
