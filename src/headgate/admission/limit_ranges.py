"""Fits the resources of a sidecar into the LimitRanges of its namespace, beyond which the API server refuses the pod.

Only limits of the type Container count. https://kubernetes.io/docs/concepts/policy/limit-range/
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from headgate.quantity import parse_quantity
from headgate.resources.meta import Object, part

REQUESTS, LIMITS = "requests", "limits"
RESOURCES = ("cpu", "memory")
Quantities = Mapping[str, Mapping[str, str]]


def fitted(resources: Quantities, ranges: Sequence[Object]) -> Quantities:
    """Return the requests and limits of a container, changed as little as the LimitRanges need.

    Missing values get the defaults of the LimitRanges, as from the API server. A value is raised to the minimum and lowered to
    the maximum. A request is raised if the limit is more than maxLimitRequestRatio times the request, since a lower limit
    could end the proxy. A missing limit is then that multiple of the request. Bounds that contradict each other can't be met.
    """
    entries = [
        entry for obj in ranges for entry in part(obj, "spec").get("limits") or () if entry.get("type") == "Container"
    ]
    if not entries:
        return resources
    result: dict[str, dict[str, str]] = {REQUESTS: dict(resources[REQUESTS]), LIMITS: dict(resources[LIMITS])}
    for resource in RESOURCES:
        request, limit = _fit(resource, resources, entries)
        for kind, text in ((REQUESTS, request), (LIMITS, limit)):
            if text:
                result[kind][resource] = text
    return result


def fit_warnings(before: Quantities, ranges: Sequence[Object]) -> Iterator[str]:
    """Yield a warning for each value of a sidecar that the LimitRanges change. Defaults for missing values are no changes."""
    after = fitted(before, ranges)
    names = ", ".join(part(obj, "metadata").get("name", "") for obj in ranges)
    for kind, word in ((REQUESTS, "request"), (LIMITS, "limit")):
        for resource, old in before[kind].items():
            if (new := after[kind][resource]) != old:
                yield (
                    f"the sidecar gets the {resource} {word} {new} instead of {old}, to fit into the LimitRange {names}; change the"
                    " LimitRange, or the proxy's resources"
                )


def _fit(resource: str, resources: Quantities, entries: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Return the request and the limit of a resource; empty for none."""

    def bounds(field: str) -> Iterable[str]:
        return [str(part(entry, field)[resource]) for entry in entries if resource in part(entry, field)]

    least = max(bounds("min"), key=parse_quantity, default="")
    most = min(bounds("max"), key=parse_quantity, default="")
    limit = resources[LIMITS].get(resource) or next(iter(bounds("default")), "") or most
    request = resources[REQUESTS].get(resource) or next(iter(bounds("defaultRequest")), "") or limit
    limit = _lower(_higher(limit, least) if limit else "", most)
    request = _lower(_lower(_higher(request, least), most), limit) if request else ""
    ratios = list(bounds("maxLimitRequestRatio"))
    if ratios and request and not limit:  # the API server refuses a container without the limit
        limit = _text(resource, parse_quantity(request) * min(map(parse_quantity, ratios)))
    for ratio in ratios if limit and request else ():
        smallest = parse_quantity(limit) / parse_quantity(ratio)
        if parse_quantity(request) < smallest:
            request = _text(resource, smallest)
    return request, limit


def _higher(text: str, bound: str) -> str:
    return bound if bound and parse_quantity(text) < parse_quantity(bound) else text


def _lower(text: str, bound: str) -> str:
    return bound if text and bound and parse_quantity(text) > parse_quantity(bound) else text


def _text(resource: str, value: Fraction) -> str:
    """Return a quantity, rounded up to a thousandth of a processor or a byte."""
    return f"{math.ceil(value * 1000)}m" if resource == "cpu" else str(math.ceil(value))
