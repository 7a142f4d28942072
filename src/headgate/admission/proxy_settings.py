"""What an injected proxy may use: the resources of its container, its threads, and its log level."""

from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from headgate.quantity import parse_quantity
from headgate.resources.core.proxy_annotations import (
    CONCURRENCY,
    DEFAULTS,
    LOG_LEVEL,
    PROXY_ANNOTATIONS,
    RESOURCES,
    checked,
)

Resources = Mapping[str, Mapping[str, str]]
_OPTIONS = 1
"""The number of the layer with the mesh's options, after the defaults."""


class ProxySettings(NamedTuple):
    """The resources of the container, and the number of Envoy's worker threads."""

    resources: Resources
    concurrency: str
    log_level: str


def proxy_settings(*layers: Mapping[str, str]) -> ProxySettings:
    """Return the settings of a pod's proxy.

    The first of the `layers` has the mesh's options by the annotations that replace them; a later layer is stronger. An empty
    option removes a default. Wrong annotations have no effect: those of Namespaces may be older than the mesh.

    A request above its limit would be refused by the API server. Of two that contradict each other, both get the value of the
    stronger layer, and the limit if the layer is the same.
    """
    texts: dict[str, str] = {}
    strength: dict[tuple[str, str], int] = {}
    for number, layer in enumerate((DEFAULTS, *layers)):
        for key in PROXY_ANNOTATIONS:
            text = layer.get(key)
            if text is None or (number == _OPTIONS and text == texts.get(key)):
                continue  # the options have all keys: an equal value is a default
            with suppress(ValueError):
                texts[key] = text if number == _OPTIONS and not text else checked(key, text)
                if key in RESOURCES:
                    strength[RESOURCES[key]] = number
    resources: dict[str, dict[str, str]] = {"requests": {}, "limits": {}}
    for key, (kind, resource) in RESOURCES.items():
        if text := texts.get(key):
            resources[kind][resource] = text
    for resource in resources["requests"].keys() & resources["limits"].keys():
        request, limit = resources["requests"][resource], resources["limits"][resource]
        if parse_quantity(request) > parse_quantity(limit):
            stands = request if strength["requests", resource] > strength["limits", resource] else limit
            resources["requests"][resource] = resources["limits"][resource] = stands
    return ProxySettings(resources, texts[CONCURRENCY], texts[LOG_LEVEL])
