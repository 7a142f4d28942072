"""The pieces that schemas are written with: OpenAPI, in few words.

`format` of a text names its grammar (`checks.schema`); Kubernetes' own readers take no notice of it.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

Schema: TypeAlias = Mapping[str, Any]

REF = "#/definitions/"
META = "io.k8s.apimachinery.pkg.apis.meta.v1."
LARGEST_PORT = 65535


def record(description: str, required: str = "", /, **properties: Schema) -> Schema:
    """Return an object's schema; `required` are names of fields, with spaces between."""
    found = {"type": "object", "description": description, "properties": properties}
    return {**found, "required": required.split()} if required else found


def listing(description: str, items: Schema, *, key: str = "", **limits: int) -> Schema:
    """Return a list's schema; limits are minItems and maxItems.

    `key` names the fields that identify an item, with spaces between, or is `*` where the whole item does. Without it,
    server-side apply takes the list as one value.
    """
    found = {"type": "array", "description": description, "items": items, **limits}
    if key == "*":
        return {**found, "x-kubernetes-list-type": "set"}
    return {**found, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": key.split()} if key else found


def text(description: str, grammar: str = "", **limits: int) -> Schema:
    """Return a text's schema; limits are minLength and maxLength."""
    found = {"type": "string", "description": description, **limits}
    return {**found, "format": grammar} if grammar else found


def choice(description: str, words: str) -> Schema:
    """Return the schema of a text that is one of a few words, given with spaces between."""
    return {"type": "string", "description": description, "enum": words.split()}


def whole(description: str, **limits: int) -> Schema:
    """Return a whole number's schema; limits are minimum and maximum."""
    return {"type": "integer", "format": "int64", "description": description, **limits}


def port(description: str) -> Schema:
    """Return the schema of a port's number."""
    return whole(description, minimum=1, maximum=LARGEST_PORT)


def flag(description: str) -> Schema:
    """Return the schema of true or false."""
    return {"type": "boolean", "description": description}


def words(description: str) -> Schema:
    """Return the schema of a map from text to text."""
    return {"type": "object", "description": description, "additionalProperties": {"type": "string"}}


def anything(description: str) -> Schema:
    """Return the schema of an object that is kept and not looked at."""
    return {"type": "object", "description": description, "x-kubernetes-preserve-unknown-fields": True}


def kind(description: str, required: str = "spec", /, **fields: Schema) -> Schema:
    """Return the schema of a kind: what every object has, and `fields`."""
    return record(
        description,
        required,
        apiVersion=text("The API group and version that the object is written in."),
        kind=text("The kind of the object."),
        metadata={"$ref": f"{REF}{META}ObjectMeta", "description": "Name, namespace, labels and the like."},
        **fields,
    )


CONDITION = record(
    "One statement about the object.",
    "type status lastTransitionTime reason message",
    type=text("What the statement is about, for example Programmed."),
    status=text("True, False or Unknown."),
    observedGeneration=whole("The metadata.generation that the statement was made about."),
    lastTransitionTime={"type": "string", "format": "date-time", "description": "When the status last changed."},
    reason=text("One word that programs can rely on."),
    message=text("The same for people, with what to do next."),
)
CONDITIONS = listing(
    "What holds for the object now, one entry a type: Accepted, ResolvedRefs, Programmed and others.",
    CONDITION,
    key="type",
)
SELECTOR = record(
    "Labels that an object must have; every part must hold.",
    matchLabels=words("Labels and their values."),
    matchExpressions=listing(
        "Conditions on labels.",
        record(
            "One condition.",
            "key operator",
            key=text("The label."),
            operator=choice("How its value is compared.", "In NotIn Exists DoesNotExist"),
            values=listing("The values to compare with.", text("A value.")),
        ),
    ),
)
