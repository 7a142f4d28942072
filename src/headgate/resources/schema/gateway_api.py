"""Schemas of the Gateway API's kinds: the published definitions, with the list of headgate's deviations from them.

`tools/gateway_api_schemas.py` writes the data file, which names its source and version. The rooms of the kinds have the
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
_STRICTER: Mapping[str, Schema] = {
    "HTTPRouteFilter.type": {
        "enum": [
            "RequestHeaderModifier",
            "ResponseHeaderModifier",
            "RequestMirror",
            "ExtensionRef",
            "RequestRedirect",
            "URLRewrite",
        ]  # without CORS, which headgate does not implement
    },
    # Envoy rejects the whole configuration if the name of a header is invalid.
    "HTTPHeaderFilter.remove.items": {"format": "header"},
    "HTTPRequestRedirectFilter.hostname": _HOSTNAME,
    "HTTPURLRewriteFilter.hostname": _HOSTNAME,
}
_LOOSER: Mapping[str, Schema] = {
    "Fraction": {"required": []},  # `numerator` may be missing; its default is 100 (R48).
    # The published API allows `None` for ListenerSets only.
    "RouteNamespaces.from": {"enum": ["All", "Selector", "Same", "None"]},
    "ListenerTLSConfig.frontendValidation": anything(
        "Validation of client certificates; headgate ignores it."
    ),  # a field of the API up to v1.3
}
"""Changes to the schema of a type or of a field, by its path."""
_TEXTS: Mapping[str, str] = {  # descriptions that the published definitions lack
    "Fraction": "A fraction of the requests.",
    "SupportedFeature": "A feature that is covered by conformance tests.",
    "TLSPortConfig": "TLS settings of one port.",
    "Fraction.numerator": "The number of requests that are mirrored out of `denominator` requests; 100 when absent.",
    "Fraction.denominator": "The number of requests that the numerator refers to; 100 when absent.",
}


def gateway_api() -> dict[str, Schema]:
    """Return the definitions of the Gateway API's kinds and types by name, with headgate's deviations."""
    data = Path(__file__).with_name("gateway_api.json").read_bytes()
    found: dict[str, Any] = msgspec.json.decode(data)["definitions"]
    for place, changes in {**_STRICTER, **_LOOSER}.items():
        _part(found, place).update(changes)
    for place, text in _TEXTS.items():
        _part(found, place)["description"] = text
    return found


def _part(definitions: Mapping[str, Any], place: str) -> Any:
    name, *path = place.split(".")
    part = definitions[PREFIX + name]
    for field in path:
        part = part["items"] if field == "items" else part["properties"].setdefault(field, {})
    return part
