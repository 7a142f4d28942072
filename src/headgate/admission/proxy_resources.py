"""The resource requests and limits of an injected proxy: the defaults, and a pod's annotations (`pods.PROXY_RESOURCES`)."""

from collections.abc import Mapping

from headgate.quantity import parse_quantity
from headgate.resources.core.pod_metadata import PROXY_RESOURCES

Resources = Mapping[str, Mapping[str, str]]
DEFAULTS: Resources = {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "1Gi"}}
"""Measured: 17 MiB with 10 Services, 114 MiB with 1,000; 0.15 ms of processor time for a request (docs/performance.md)."""


def proxy_resources(annotations: Mapping[str, str]) -> Resources:
    """Return the resources of the proxy of a pod with valid annotations.

    A default that contradicts an annotation takes the annotation's value, so that no request is above its limit.
    """
    written = {place: annotations[key] for place, key in PROXY_RESOURCES.items() if annotations.get(key)}
    resources = {kind: {**defaults} for kind, defaults in DEFAULTS.items()}
    for (kind, resource), value in written.items():
        resources[kind][resource] = value
    for resource in resources["limits"].keys() & resources["requests"].keys():
        request, limit = resources["requests"][resource], resources["limits"][resource]
        if parse_quantity(request) > parse_quantity(limit):
            stands = request if ("requests", resource) in written else limit
            resources["requests"][resource] = resources["limits"][resource] = stands
    return resources
