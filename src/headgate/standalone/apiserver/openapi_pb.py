"""Writes a Swagger 2.0 document in the protobuf form (`openapi.v2.Document` of the gnostic project) of older kubectls.

Only what such a document of ours has is written. Field numbers are those of the published OpenAPIv2.proto.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from headgate.resources.definitions.parts import Schema

_SCHEMA_TEXTS = {"$ref": 1, "format": 2, "title": 3, "description": 4}


def document(swagger: Mapping[str, Any]) -> bytes:
    """Return the document in protobuf."""
    definitions = (_named(name, _schema(schema)) for name, schema in swagger["definitions"].items())
    paths = (_named(name, _path_item(item)) for name, item in swagger["paths"].items())
    return b"".join(
        (
            _text(1, swagger["swagger"]),
            _part(2, _text(1, swagger["info"]["title"]) + _text(2, swagger["info"]["version"])),
            _part(8, _parts(2, paths)),
            _part(9, _parts(1, definitions)),
        )
    )


def _schema(schema: Schema) -> bytes:
    out = [_text(number, schema[name]) for name, number in _SCHEMA_TEXTS.items() if name in schema]
    out += [_text(19, name) for name in schema.get("required", ())]
    extra = schema.get("additionalProperties")
    if isinstance(extra, Mapping):
        out.append(_part(21, _part(1, _schema(extra))))
    if "type" in schema:
        out.append(_part(22, _text(1, schema["type"])))
    if "items" in schema:
        out.append(_part(23, _part(1, _schema(schema["items"]))))
    if "properties" in schema:
        fields = (_named(name, _schema(part)) for name, part in schema["properties"].items())
        out.append(_part(25, _parts(1, fields)))
    out.append(_extensions(31, schema))
    return b"".join(out)


def _path_item(item: Mapping[str, Any]) -> bytes:
    numbers = {"get": 2, "patch": 8}
    return b"".join(_part(numbers[verb], _operation(operation)) for verb, operation in item.items())


def _operation(operation: Mapping[str, Any]) -> bytes:
    parameters = (_query_parameter(parameter) for parameter in operation.get("parameters", ()))
    responses = (
        _named(code, _part(1, _text(1, response["description"]))) for code, response in operation["responses"].items()
    )
    return _parts(8, parameters) + _part(9, _parts(1, responses)) + _extensions(13, operation)


def _query_parameter(parameter: Mapping[str, Any]) -> bytes:
    fields = _text(2, parameter["in"]) + _text(4, parameter["name"]) + _text(6, parameter["type"])
    return _part(1, _part(2, _part(3, fields)))


def _extensions(number: int, value: Mapping[str, Any]) -> bytes:
    """Vendor extensions are named values in YAML; JSON is YAML."""
    found = (_named(name, _text(2, json.dumps(part))) for name, part in value.items() if name.startswith("x-"))
    return _parts(number, found)


def _named(name: str, body: bytes) -> bytes:
    return _text(1, name) + _part(2, body)


def _parts(number: int, bodies: Iterable[bytes]) -> bytes:
    return b"".join(_part(number, body) for body in bodies)


def _text(number: int, text: str) -> bytes:
    return _part(number, text.encode())


def _part(number: int, body: bytes) -> bytes:
    """A length-delimited field: wire type 2."""
    return _varint(number << 3 | 2) + _varint(len(body)) + body


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
