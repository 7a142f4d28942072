"""Functions that build OpenAPI schemas.

The `format` of a text names its grammar in `schema.check`. Kubernetes' clients ignore it.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from headgate.quantity import SHARE, SHARE_LIMITS

Schema: TypeAlias = Mapping[str, Any]

REF = "#/definitions/"
META = "io.k8s.apimachinery.pkg.apis.meta.v1."
GVK = "x-kubernetes-group-version-kind"
"""The field of an OpenAPI definition or operation that names its kinds."""
LARGEST_PORT = 65535
PORT_LIMITS = {"minimum": 1, "maximum": LARGEST_PORT}
DURATION = "^([0-9]{1,5}(h|m|s|ms)){1,4}$"
RULES = "x-kubernetes-validations"
PERCENTILE = "^p[5-9][0-9]{1,3}$"
REQUEST_PATH = "^/[!-~]*$"
MATCH_NAME = "^[A-Za-z0-9]([-A-Za-z0-9_.]{0,251}[A-Za-z0-9])?$"  # names reach terminals, and resources of proxies


def record(description: str, required: str = "", /, **properties: Schema) -> Schema:
    """Return the schema of an object; `required` has the names of required fields, separated by spaces."""
    schema = {"type": "object", "description": description, "properties": properties}
    return {**schema, "required": required.split()} if required else schema


def listing(description: str, items: Schema, *, key: str = "", **limits: int) -> Schema:
    """Return the schema of a list; limits are minItems and maxItems.

    `key` has the names of the fields that identify an item, separated by spaces, or is `*` for a set of
    unique texts. Without a key the list is atomic in server-side apply.
    """
    schema = {"type": "array", "description": description, "items": items, **limits}
    if key == "*":
        return {**schema, "x-kubernetes-list-type": "set"}
    return {**schema, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": key.split()} if key else schema


def text(description: str, grammar: str = "", **limits: int) -> Schema:
    """Return the schema of a string; limits are minLength and maxLength."""
    schema = {"type": "string", "description": description, **limits}
    return {**schema, "format": grammar} if grammar else schema


def matching(description: str, pattern: str, **more: Any) -> Schema:
    """Return the schema of a string that matches a regular expression, whose message is in `schema.check`.

    `more` has limits, and the `default`.
    """
    return {"type": "string", "description": description, "pattern": pattern, **more}


def share(description: str) -> Schema:
    """Return the schema of a request share: a percentage above 0% and at most 100%."""
    schema = matching(description, SHARE, maxLength=len("100.000000%"))
    return ruled(schema, ("self.matches('[1-9]')", SHARE_LIMITS))


def choice(description: str, words: str) -> Schema:
    """Return the schema of a string that is one of some words, which are separated by spaces."""
    return {"type": "string", "description": description, "enum": words.split()}


def whole(description: str, **more: int) -> Schema:
    """Return the schema of an integer; `more` is the minimum, the maximum and the default."""
    return {"type": "integer", "format": "int64", "description": description, **more}


def flag(description: str, **default: bool) -> Schema:
    """Return the schema of a boolean, with its `default`."""
    return {"type": "boolean", "description": description, **default}


def words(description: str) -> Schema:
    """Return the schema of a map from string to string."""
    return {"type": "object", "description": description, "additionalProperties": {"type": "string"}}


def anything(description: str) -> Schema:
    """Return the schema of an object with any content."""
    return {"type": "object", "description": description, "x-kubernetes-preserve-unknown-fields": True}


def quantity(description: str) -> Schema:
    """Return the schema of a Kubernetes quantity, such as `1` or `500m`."""
    return {"type": "string", "format": "int-or-string", "description": description}


def ruled(schema: Schema, *rules: tuple[str, str]) -> Schema:
    """Return a schema with more rules, pairs of a CEL expression and the message when it is false.

    API servers of Kubernetes 1.25 and newer evaluate them, also while the webhook is away. `self` is the value. An API server
    rejects a definition whose rules may be too expensive, so a rule visits a list without `maxItems` only once, and
    compares texts there with short constants only. It estimates at most 3 MiB for each list, which are up to 262,144
    items with a name; of the allowed 10,000,000 units, 38 remain for an item.
    """
    return {**schema, RULES: [*schema.get(RULES, ()), *({"rule": rule, "message": message} for rule, message in rules)]}


def kind(description: str, required: str = "spec", /, **fields: Schema) -> Schema:
    """Return the schema of a kind: the fields that every object has, and `fields`."""
    return record(
        description,
        required,
        apiVersion=text("The API group and version that the object is written in."),
        kind=text("The kind of the object."),
        metadata={"$ref": f"{REF}{META}ObjectMeta", "description": "Name, namespace, labels and annotations."},
        **fields,
    )


def gvk(group: str, version: str, kind: str) -> dict[str, str]:
    """Return a kind as OpenAPI documents name it."""
    return {"group": group, "version": version, "kind": kind}


def operation(action: str, of: Mapping[str, str]) -> dict[str, Any]:
    """Return an operation of an OpenAPI document, reduced to what kubectl reads: its action and its kind (`gvk`)."""
    return {"responses": {"200": {"description": "OK"}}, "x-kubernetes-action": action, GVK: of}
