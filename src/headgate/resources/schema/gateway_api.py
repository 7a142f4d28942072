"""Schemas of the Gateway API's kinds: the published definitions, with the list of headgate's deviations from them.

`tools/gateway_api_schemas.py` writes the data file, which names its source and version: types and limits. The descriptions
are in `gateway_api_texts.json`, by type and field. The rooms of the kinds have the
rules between fields, which are CEL in the published definitions. They deviate from CEL in one point: `percent` and
`fraction` may both be set (D3).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from headgate.resources.schema.builders import Schema, anything

PREFIX = "io.k8s.networking.gateway.v1."
_HOSTNAME = {"format": "hostname"}  # the published grammar, a DNS subdomain, also allows IP addresses
_HEADER = {"format": "header"}
_STRICTER: Mapping[str, Schema] = {
    "BackendTLSPolicyValidation.hostname": _HOSTNAME,
    # Envoy rejects the whole configuration if the name of a header is invalid.
    "HTTPHeaderFilter.remove.items": _HEADER,
    "GRPCAuthConfig.allowedHeaders.items": _HEADER,
    "HTTPAuthConfig.allowedHeaders.items": _HEADER,
    "HTTPAuthConfig.allowedResponseHeaders.items": _HEADER,
    "HTTPRequestRedirectFilter.hostname": _HOSTNAME,
    "HTTPURLRewriteFilter.hostname": _HOSTNAME,
}
_LOOSER: Mapping[str, Schema] = {
    # Clusters with earlier releases have objects that v1.6 rejects.
    "HTTPHeader.value": {"pattern": None},
    "HTTPHeaderMatch.value": {"pattern": None},
    "HTTPRouteRetry.attempts": {"minimum": 0},
    "TCPRouteSpec.rules": {"maxItems": 16},
    "TLSRouteSpec": {"required": ["rules"]},  # v1alpha2 allows a route without `hostnames`
    "TLSRouteSpec.rules": {"maxItems": 16},
    "UDPRouteSpec.rules": {"maxItems": 16},
    "Fraction": {"required": []},  # `numerator` may be missing; its default is 100 (R48).
    # The published API allows `None` for ListenerSets only.
    "RouteNamespaces.from": {"enum": ["All", "Selector", "Same", "None"]},
    "ListenerTLSConfig.frontendValidation": anything(
        "Validation of client certificates; headgate ignores it."
    ),  # a field of the API up to v1.3
}
"""Changes to the schema of a type or of a field, by its path. A value of None removes a key."""
_COMMON, _REFERENCE = "*", "reference"
_REFERENCES = ("Reference", "BackendRef", "ReferenceGrantTo", "ReferenceWithSectionName")
"""How the names of types end whose objects refer to other objects."""


def gateway_api() -> dict[str, Schema]:
    """Return the definitions of the Gateway API's kinds and types by name, with headgate's deviations."""
    data = Path(__file__).with_name("gateway_api.json").read_bytes()
    definitions: dict[str, Any] = msgspec.json.decode(data)["definitions"]
    for place, changes in {**_STRICTER, **_LOOSER}.items():
        part = _part(definitions, place)
        part.update(changes)
        for key in [key for key, value in changes.items() if value is None]:
            del part[key]
    texts = msgspec.json.decode(Path(__file__).with_name("gateway_api_texts.json").read_bytes())
    for name, schema in definitions.items():
        _describe(name.rpartition(".")[2], schema, texts)
    return definitions


def _describe(name: str, schema: dict[str, Any], texts: Mapping[str, Mapping[str, str]]) -> None:
    """Add the descriptions to the schema of a type and its fields. A field without one of its own has that of its name."""
    own = texts[name]
    schema["description"] = own[""]
    common = {**texts[_COMMON], **(texts[_REFERENCE] if name.endswith(_REFERENCES) else {})}
    for field, part in schema["properties"].items():
        part["description"] = own.get(field) or common[field]
        for inner, suffix in (("items", "items"), ("additionalProperties", "*")):
            if (text := own.get(f"{field}.{suffix}")) is not None:
                part[inner]["description"] = text


def _part(definitions: Mapping[str, Any], place: str) -> Any:
    name, *path = place.split(".")
    part = definitions[PREFIX + name]
    for field in path:
        part = part["items"] if field == "items" else part["properties"].setdefault(field, {})
    return part
