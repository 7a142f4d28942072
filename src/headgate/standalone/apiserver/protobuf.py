"""Reads Kubernetes' protobuf form of an object, which current clients use for typed requests, into the JSON form.

Answers are always JSON. Zero values are left out, as in JSON, but where zero and absent differ.
"""

import base64
import functools
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from importlib import resources
from typing import Any, NamedTuple

import msgspec

from headgate.api.status import ApiError
from headgate.resources.definitions import catalogue
from headgate.resources.registry import split_api_version

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_TIMES = {_META + "Time": "seconds", _META + "MicroTime": "microseconds"}
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
_FIELDS = _META + "FieldsV1"
_EMPTY = "a message that is not read"
_EVICTION = "io.k8s.api.policy.v1beta1.Eviction"
_UNPUBLISHED = {  # kinds without a schema of ours
    ("policy/v1", "Eviction"): _EVICTION,
    ("policy/v1beta1", "Eviction"): _EVICTION,
    ("v1", "DeleteOptions"): _META + "DeleteOptions",
    ("meta.k8s.io/v1", "DeleteOptions"): _META + "DeleteOptions",
    ("authentication.k8s.io/v1", "SelfSubjectReview"): _EMPTY,
    ("authorization.k8s.io/v1", "SelfSubjectAccessReview"): "io.k8s.api.authorization.v1.SelfSubjectAccessReview",
    ("authorization.k8s.io/v1", "SelfSubjectRulesReview"): "io.k8s.api.authorization.v1.SelfSubjectRulesReview",
}
_ZERO_MEANS = frozenset(  # what is a pointer in Kubernetes' types: there, zero is not the same as nothing
    (
        "replicas",
        "terminationGracePeriodSeconds",
        "gracePeriodSeconds",
        "revisionHistoryLimit",
        "progressDeadlineSeconds",
        "activeDeadlineSeconds",
        "runAsUser",
        "runAsGroup",
        "fsGroup",
        "tolerationSeconds",
        "maxSurge",
        "maxUnavailable",
        "partition",
        "priority",
        "defaultMode",
        "mode",
        "automountServiceAccountToken",
        "immutable",
        "ready",
        "serving",
        "terminating",
        "enableServiceLinks",
        "optional",
        "allowPrivilegeEscalation",
        "readOnlyRootFilesystem",
        "runAsNonRoot",
        "privileged",
        "shareProcessNamespace",
        "controller",
        "blockOwnerDeletion",
        "orphanDependents",
        "emptyDir",
        "allocateLoadBalancerNodePorts",
    )
)


class _Field(NamedTuple):
    name: str
    type: str
    repeated: bool
    message: str


def decode(body: bytes) -> dict[str, Any]:
    """Return the object. Raises ApiError 400 when the bytes are no such object, 415 for one that JSON must carry."""
    if not body.startswith(_MAGIC):
        raise ApiError(400, f"the body is not {MEDIA_TYPE}: it must begin with k8s and a zero byte")
    try:
        envelope = dict(_parts(body[len(_MAGIC) :]))
        types = {number: bytes(part).decode() for number, part in _parts(envelope.get(1, b""))}
        api_version, kind = types.get(1, ""), types.get(2, "")
        fields = _message(_message_name(api_version, kind), envelope.get(2, b""))
    except (ValueError, IndexError, TypeError, OverflowError) as error:
        raise ApiError(400, f"the body is not {MEDIA_TYPE}: {error}") from error
    return {"apiVersion": api_version, "kind": kind, **fields}


def _message_name(api_version: str, kind: str) -> str:
    name = _UNPUBLISHED.get((api_version, kind)) or catalogue.names().get((*split_api_version(api_version), kind), "")
    if name not in _messages():
        raise ApiError(415, f"{kind} in {api_version} is not read in protobuf here; send JSON")
    return name


@functools.cache
def _messages() -> Mapping[str, Mapping[int, _Field]]:
    text = resources.files("headgate.resources").joinpath("schemas/messages.json").read_bytes()
    return {_EMPTY: {}, **msgspec.json.decode(text, type=dict[str, dict[int, _Field]])}


def _message(name: str, body: bytes) -> dict[str, Any]:
    fields = _messages()[name]
    result: dict[str, Any] = {}
    for number, part in _parts(body):
        field = fields.get(number)
        if field is None:
            if part and name != _EMPTY:
                raise ApiError(415, f"field {number} of {name} is newer than what is read in protobuf here; send JSON")
        elif field.repeated:
            result.setdefault(field.name, []).append(_value(field, part))
        elif field.type == "map":
            key, value = _entry(field, part)
            result.setdefault(field.name, {})[key] = value
        else:
            value = _value(field, part)
            if not field.name:
                result |= value  # JSON has the fields of this one in its parent
            elif value or (field.name in _ZERO_MEANS and value is not None):
                result[field.name] = value
    return result


def _entry(field: _Field, body: bytes) -> tuple[str, Any]:
    parts = dict(_parts(body))
    type, message = ("message", field.message) if "." in field.message else (field.message, "")
    value = parts.get(2, b"")
    item = field._replace(type=type, message=message)
    return bytes(parts.get(1, b"")).decode(), _value(item, value)


def _value(field: _Field, part: Any) -> Any:
    match field.type:
        case "text":
            return bytes(part).decode()
        case "bytes":
            return base64.b64encode(part).decode()
        case "bool":
            return bool(part)
        case "int":
            return part - (1 << 64) if part >> 63 else part
        case _:
            return _special(field.message, part)


def _special(name: str, body: bytes) -> Any:
    """Return a message's value; some messages are a plain value in JSON."""
    if name in _TIMES:
        return _time(dict(_parts(body)), _TIMES[name])
    if name == _QUANTITY:
        return bytes(dict(_parts(body)).get(1, b"")).decode()
    if name == _INT_OR_STRING:
        parts = dict(_parts(body))
        return bytes(parts.get(3, b"")).decode() if parts.get(1) else parts.get(2, 0)
    if name == _FIELDS:
        raw = dict(_parts(body)).get(1, b"")
        return msgspec.json.decode(raw) if raw else None
    return _message(name, body)


def _time(parts: Mapping[int, Any], precision: str) -> str | None:
    if not parts:
        return None
    instant = _EPOCH + timedelta(seconds=parts.get(1, 0), microseconds=parts.get(2, 0) // 1000)
    return instant.replace(tzinfo=None).isoformat(timespec=precision) + "Z"


def _parts(body: bytes) -> Iterator[tuple[int, Any]]:
    """Yield field numbers and contents: whole numbers, or bytes."""
    place = 0
    while place < len(body):
        tag, place = _varint(body, place)
        match tag & 7:
            case 0:
                value, place = _varint(body, place)
                yield tag >> 3, value
            case 2:
                length, place = _varint(body, place)
                if length > len(body) - place:
                    raise ValueError("it ends too early")
                yield tag >> 3, body[place : place + length]
                place += length
            case wire_type:
                raise ValueError(f"wire type {wire_type} does not occur in Kubernetes' messages")


def _varint(body: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 64:
        byte = body[place]
        value |= (byte & 0x7F) << shift
        place += 1
        if byte < 0x80:
            return value, place
        shift += 7
    raise ValueError("a number is too long")
