"""Decodes objects from Kubernetes' protobuf format to JSON. Current clients send built-in kinds in protobuf.

The message classes come from descriptors that `tools/core_messages.py` writes. Responses are always JSON. Zero values are
omitted, as in JSON; fields for which zero and absent differ are optional in the descriptors.
"""

import base64
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from headgate.api.status import ApiError
from headgate.protobuf_pools import message_class, read_pool
from headgate.resources.kind import split_api_version
from headgate.resources.schema import catalog
from headgate.resources.schema.builders import META

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_INLINE = "-"  # the JSON name that marks an embedded message, whose fields are part of the outer JSON object
_JSON = "application/json"
_MAGIC = b"k8s\x00"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EMPTY = "google.protobuf.Any"  # the message type to decode kinds whose fields headgate ignores
_EVICTION = "io.k8s.api.policy.v1beta1.Eviction"
_UNPUBLISHED = {  # the message types of kinds that our schema catalog does not contain
    ("policy/v1", "Eviction"): _EVICTION,
    ("policy/v1beta1", "Eviction"): _EVICTION,
    ("v1", "DeleteOptions"): META + "DeleteOptions",
    ("meta.k8s.io/v1", "DeleteOptions"): META + "DeleteOptions",
    ("authentication.k8s.io/v1", "SelfSubjectReview"): _EMPTY,
    ("authorization.k8s.io/v1", "SelfSubjectAccessReview"): "io.k8s.api.authorization.v1.SelfSubjectAccessReview",
    ("authorization.k8s.io/v1", "SelfSubjectRulesReview"): "io.k8s.api.authorization.v1.SelfSubjectRulesReview",
}


@cache
def kubernetes_class(name: str) -> Any:
    """Return the Python class of a message of Kubernetes or OpenAPI. Raises KeyError for an unknown name."""
    return message_class(_pool(), name)


@cache
def _pool() -> DescriptorPool:
    return read_pool(files(__package__).joinpath("messages.fds.z").read_bytes())


def decode(body: bytes) -> dict[str, Any]:
    """Decode an object. Raises ApiError 400 for malformed bytes, 415 for a kind or field that only JSON supports."""
    if not body.startswith(_MAGIC):
        raise ApiError(400, f"the body is not {MEDIA_TYPE}: it does not begin with the bytes `k8s` and zero")
    try:
        envelope = kubernetes_class("k8s.io.apimachinery.pkg.runtime.Unknown").FromString(body[len(_MAGIC) :])
        api_version, kind = envelope.typeMeta.apiVersion, envelope.typeMeta.kind
        fields = _object(_class_of(api_version, kind).FromString(envelope.raw))
    except (DecodeError, ValueError, OverflowError) as error:
        raise ApiError(400, f"the body is not {MEDIA_TYPE}: {error}") from error
    return {"apiVersion": api_version, "kind": kind, **fields}


def _class_of(api_version: str, kind: str) -> Any:
    name = _UNPUBLISHED.get((api_version, kind)) or catalog.names().get((*split_api_version(api_version), kind), "")
    try:
        return kubernetes_class(name.replace("io.k8s.", "k8s.io.", 1))
    except KeyError:
        raise ApiError(415, f"{kind} in {api_version} is not supported in protobuf; send {_JSON}") from None


def _object(message: Message) -> dict[str, Any]:
    name = message.DESCRIPTOR.full_name
    newer: Any = UnknownFieldSet(message)
    for unknown in newer:
        if unknown.data and name != _EMPTY:
            raise ApiError(415, f"field {unknown.field_number} of {name} is not supported in protobuf; send {_JSON}")
    result: dict[str, Any] = {}
    for field, part in message.ListFields():
        value = _whole(field, part)
        if field.json_name == _INLINE:
            result |= value
        elif value is not None and (value or field.containing_oneof or not field.message_type):
            result[field.name] = value
    return result


def _whole(field: FieldDescriptor, part: Any) -> Any:
    """Convert the value of a field to JSON: a single value, a list or a map."""
    if not field.is_repeated:
        return _value(part)
    if isinstance(part, Mapping):
        return {key: _value(part[key]) for key in part}
    return [_value(element) for element in part]


def _value(part: Any) -> Any:
    """Convert a single value to JSON. Some messages, such as Time, become plain values."""
    if isinstance(part, bytes):
        return base64.b64encode(part).decode()
    if not isinstance(part, Message):
        return part
    read: Callable[[Any], Any] = _PLAIN.get(part.DESCRIPTOR.name, _object)
    return read(part)


def _time(part: Any, precision: str = "seconds") -> str | None:
    if not part.ListFields():
        return None
    instant = _EPOCH + timedelta(seconds=part.seconds, microseconds=part.nanos // 1000)
    return instant.replace(tzinfo=None).isoformat(timespec=precision) + "Z"


_PLAIN: Mapping[str, Callable[[Any], Any]] = {
    "Time": _time,
    "MicroTime": lambda part: _time(part, "microseconds"),
    "Quantity": lambda part: part.string,
    "IntOrString": lambda part: part.strVal if part.type else part.intVal,
    "FieldsV1": lambda part: msgspec.json.decode(part.Raw) if part.Raw else None,
}
