"""The published definitions of Kubernetes' and the Gateway API's kinds."""

import functools
from collections.abc import Mapping
from pathlib import Path

import msgspec

from headgate.resources.schema.builders import META, REF, Schema
from headgate.resources.schema.gateway_api import gateway_api
from headgate.resources.selectors import SELECTOR
from headgate.resources.status import CONDITION

POD = "io.k8s.api.core.v1.Pod"
_WITH_DEFINITION = ("items", "additionalProperties")


@functools.cache
def published() -> Mapping[str, Schema]:
    """Return the published definitions by name. A `$ref` refers to another name of the same mapping."""
    core = msgspec.json.decode(Path(__file__).with_name("core.json").read_bytes())
    described = {META + "Condition": CONDITION, META + "LabelSelector": {**core[META + "LabelSelector"], **SELECTOR}}
    return {**core, **described, **gateway_api()}


@functools.cache
def pod_schema() -> Schema:
    """Return the schema of Pods, which has the fields of containers and volumes."""
    return linked(published(), POD, {})


def linked(definitions: Mapping[str, Schema], name: str, done: dict[str, Schema]) -> Schema:
    """Return a definition with each `$ref` replaced by the schema that it refers to; `done` collects the results by name."""
    if name not in done:
        done[name] = _linked(definitions, definitions[name], done)
    return done[name]


def linked_schema(definitions: Mapping[str, Schema], schema: Schema) -> Schema:
    """Return a schema with each `$ref` replaced by the schema that it refers to."""
    return _linked(definitions, schema, {})


def _linked(definitions: Mapping[str, Schema], schema: Schema, done: dict[str, Schema]) -> Schema:
    """Replace the references in a schema. Fields beside a `$ref` override those of the definition."""
    own = {key: value for key, value in schema.items() if key != "$ref"}
    if "properties" in schema:
        fields = schema["properties"]
        own["properties"] = {field: _linked(definitions, inner, done) for field, inner in fields.items()}
    inner_schemas = {key: schema[key] for key in _WITH_DEFINITION if isinstance(schema.get(key), Mapping)}
    own |= {key: _linked(definitions, inner, done) for key, inner in inner_schemas.items()}
    if "$ref" not in schema:
        return own
    return {**linked(definitions, schema["$ref"].removeprefix(REF), done), **own}
