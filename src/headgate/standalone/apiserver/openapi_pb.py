"""Encodes our Swagger 2.0 document in protobuf (`openapi.v2.Document` of gnostic), for older versions of kubectl.

It supports only the parts of Swagger that our document uses.
"""

import json
from collections.abc import Mapping
from typing import Any

from headgate.resources.schema.builders import Schema
from headgate.standalone.apiserver.protobuf import kubernetes_class

_SCHEMA_TEXTS = {"$ref": "_ref", "format": "format", "title": "title", "description": "description"}


def document(swagger: Mapping[str, Any]) -> bytes:
    """Encode a Swagger 2.0 document in protobuf."""
    made = _make("Document", swagger=swagger["swagger"], info=swagger["info"])
    for name, operations in swagger["paths"].items():
        made.paths.path.add(
            name=name, value=_make("PathItem", **{verb: _operation(operations[verb]) for verb in operations})
        )
    for name, schema in swagger["definitions"].items():
        made.definitions.additional_properties.add(name=name, value=_schema(schema))
    return bytes(made.SerializeToString(deterministic=True))


def _make(name: str, /, **fields: Any) -> Any:
    return kubernetes_class(f"openapi.v2.{name}")(**fields)


def _schema(schema: Schema) -> Any:
    made = _make("Schema", required=schema.get("required", ()), vendor_extension=_extensions(schema))
    for name, field in _SCHEMA_TEXTS.items():
        setattr(made, field, schema.get(name, ""))
    if "type" in schema:
        made.type.value.append(schema["type"])
    if isinstance(extra := schema.get("additionalProperties"), Mapping):
        made.additional_properties.schema.CopyFrom(_schema(extra))
    if "items" in schema:
        made.items.schema.append(_schema(schema["items"]))
    if "properties" in schema:
        made.properties.SetInParent()
    for name, part in schema.get("properties", {}).items():
        made.properties.additional_properties.add(name=name, value=_schema(part))
    return made


def _operation(operation: Mapping[str, Any]) -> Any:
    made = _make("Operation", vendor_extension=_extensions(operation))
    for parameter in operation.get("parameters", ()):
        made.parameters.add(parameter={"non_body_parameter": {"query_parameter_sub_schema": parameter}})
    for code, response in operation["responses"].items():
        made.responses.response_code.add(name=code, value={"response": response})
    return made


def _extensions(value: Mapping[str, Any]) -> list[Any]:
    """Return the vendor extensions (`x-...`). Their values are YAML text; JSON is valid YAML."""
    extensions = {name: json.dumps(part) for name, part in value.items() if name.startswith("x-")}
    return [_make("NamedAny", name=name, value={"yaml": text}) for name, text in extensions.items()]
