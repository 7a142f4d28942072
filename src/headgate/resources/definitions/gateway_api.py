"""The Gateway API's kinds: the published definitions as data, and the one list of where headgate deviates from them.

`tools/gateway_api_schemas.py` writes the data, which names its source and version. Rules between fields, which are CEL in
the published definitions, are in `checks`; they deviate in one point: `percent` beside `fraction` is accepted (D3).
"""

from collections.abc import Mapping
from importlib import resources
from typing import Any

import msgspec

from headgate.resources.definitions.schema_builders import Schema, anything

PREFIX = "io.k8s.networking.gateway.v1."
_HOSTNAME = {"format": "hostname"}  # published: no more than a subdomain, which an address is too
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
    "HTTPHeaderFilter.remove.items": {"format": "header"},  # Envoy rejects a whole configuration for such a name
    "HTTPRequestRedirectFilter.hostname": _HOSTNAME,
    "HTTPURLRewriteFilter.hostname": _HOSTNAME,
}
_LOOSER: Mapping[str, Schema] = {
    "Fraction": {"required": []},  # a numerator that is absent is 100 (R48)
    "RouteNamespaces.from": {"enum": ["All", "Selector", "Same", "None"]},  # published for ListenerSets only
    "ListenerTLSConfig.frontendValidation": anything(
        "Certificates of clients; headgate does not read it."
    ),  # until v1.3
}
"""What is put in place of parts of a type or of a field."""
_TEXTS: Mapping[str, str] = {  # what the published definitions leave without a text
    "Fraction": "A part of all requests.",
    "SupportedFeature": "A feature that is covered by conformance tests.",
    "TLSPortConfig": "How TLS is spoken on one port.",
    "Fraction.numerator": "How many of the requests are mirrored; 100 when absent.",
    "Fraction.denominator": "Of how many requests; 100 when absent.",
}


def gateway_api() -> dict[str, Schema]:
    """Return the definitions of the Gateway API's kinds and their parts, with headgate's deviations."""
    data = resources.files("headgate.resources").joinpath("schemas/gateway_api.json").read_bytes()
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
