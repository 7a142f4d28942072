"""ResourceQuotas and the pods with sidecars in their namespaces: what a quota demands of the sidecar, and whether a pod fits.

https://kubernetes.io/docs/concepts/policy/resource-quotas/
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from headgate.admission.limit_ranges import LIMITS, REQUESTS, Quantities
from headgate.quantity import parse_quantity
from headgate.resources.core.proxy_annotations import DEFAULTS, RESOURCES
from headgate.resources.meta import Object, part

_FIELDS: Mapping[str, tuple[str, str]] = {
    "cpu": (REQUESTS, "cpu"),
    "memory": (REQUESTS, "memory"),
    "requests.cpu": (REQUESTS, "cpu"),
    "requests.memory": (REQUESTS, "memory"),
    "limits.cpu": (LIMITS, "cpu"),
    "limits.memory": (LIMITS, "memory"),
}
"""What a quota limits that each container must state: the field of its resources, and the resource."""
_PODS = ("pods", "count/pods")
_ANNOTATIONS = {field: annotation for annotation, field in RESOURCES.items()}
_MIB = 1024**2


_NONE: Quantities = {}


def applying(quotas: Iterable[Object], pod: Object, sidecar: Quantities = _NONE) -> Sequence[Object]:
    """Return the quotas that count a pod by their scopes. `sidecar` has the resources of a sidecar that it does not have yet."""
    best_effort = not any(_has_values(resources) for resources in (sidecar, *_resources(pod)))
    return [
        quota for quota in quotas if all(_is_in_scope(pod, scope, best_effort=best_effort) for scope in _scopes(quota))
    ]


def states_resources(pod: Object) -> bool:
    """Return whether a pod has requests or limits of its own; then quotas demand none of its containers."""
    resources = part(part(pod, "spec"), "resources")
    return bool(part(resources, REQUESTS) or part(resources, LIMITS))


def completed(resources: Quantities, quotas: Iterable[Object], concurrency: str) -> Quantities:
    """Return the requests and limits of a sidecar with those that the quotas demand, and that it does not have.

    The API server refuses a pod if a container has no value for what a quota limits. A proxy can't use more processors than it
    has threads (`concurrency`), so this limit of processor time never slows it. Other values are the defaults of sidecars.
    """
    demanded = {_FIELDS[key] for quota in quotas for key in _hard(quota) if key in _FIELDS}
    requests, limits = dict(resources[REQUESTS]), dict(resources[LIMITS])
    for kind, resource in sorted(demanded):
        default = DEFAULTS[_ANNOTATIONS[REQUESTS, resource]]
        if kind == LIMITS and resource not in limits:
            limit = concurrency if resource == "cpu" else DEFAULTS[_ANNOTATIONS[LIMITS, resource]]
            # Without a request, the API server would use the limit as the request.
            limits[resource] = max(limit, requests.setdefault(resource, default), key=parse_quantity)
        elif resource not in limits:
            requests.setdefault(resource, default)
    return {REQUESTS: requests, LIMITS: limits}


def completion_warnings(before: Quantities, after: Quantities, quotas: Iterable[Object]) -> Iterator[str]:
    """Yield a warning for each value of a sidecar that quotas demand: `after` has it, and `before` does not."""
    demanding: dict[tuple[str, str], list[str]] = {field: [] for field in _ANNOTATIONS}
    for quota in quotas:
        for field in dict.fromkeys(_FIELDS[key] for key in _hard(quota) if key in _FIELDS):
            demanding[field].append(_name(quota))
    for (kind, resource), annotation in _ANNOTATIONS.items():
        if resource in after[kind] and resource not in before[kind]:
            # A request that no quota needs comes with the limit that one needs.
            names = ", ".join(demanding[kind, resource] or demanding[LIMITS, resource])
            what = "one" if demanding[kind, resource] else "a limit"
            yield (
                f"the sidecar gets the {resource} {kind.removesuffix('s')} {after[kind][resource]}, because the ResourceQuota {names}"
                f" needs {what} of each container; set {annotation} for another value"
            )


def excess_warnings(pod: Object, quotas: Iterable[Object]) -> Iterator[str]:
    """Yield a warning for each quota that has no room for a pod, which has its sidecar already."""
    for quota in applying(quotas, pod):
        used = part(part(quota, "status"), "used")
        for key, hard in sorted(_hard(quota).items()):
            if key not in _FIELDS and key not in _PODS:
                continue
            needed = _needed(pod, key)
            left = max(parse_quantity(hard) - parse_quantity(str(used.get(key, 0))), Fraction(0))
            if needed > left:
                annotation = f", or set {_ANNOTATIONS[_FIELDS[key]]} lower" if key in _FIELDS else ""
                yield (
                    f"the ResourceQuota {_name(quota)} has {_text(key, left, math.floor)} of {hard} {key} left, and a pod with its"
                    f" sidecar needs {_text(key, needed, math.ceil)}: meanwhile the API server refuses new pods; raise the"
                    f" quota{annotation}"
                )


def pod_range_warnings(pod: Object, ranges: Iterable[Object]) -> Iterator[str]:
    """Yield a warning for each maximum for pods in a LimitRange that a pod with its sidecar exceeds.

    Sidecars are not fitted to it, because the containers of the application count too.
    """
    entries = [(_name(obj), entry) for obj in ranges for entry in part(obj, "spec").get("limits") or ()]
    for name, entry in entries:
        for resource, most in sorted(part(entry, "max").items()) if entry.get("type") == "Pod" else ():
            if (LIMITS, resource) not in _ANNOTATIONS:
                continue
            needed, annotation = _needed(pod, f"{LIMITS}.{resource}"), _ANNOTATIONS[LIMITS, resource]
            amount = f"limits of {_text(f'{LIMITS}.{resource}', needed, math.ceil)}" if needed else "no limit"
            if not needed or needed > parse_quantity(str(most)):
                yield (
                    f"the LimitRange {name} allows pods with at most {most} of {resource}, and a pod with its sidecar has {amount}:"
                    f" the API server refuses new pods; change the LimitRange, or set {annotation}{' lower' if needed else ''}"
                )


def _needed(pod: Object, key: str) -> Fraction:
    """Return how much of a quota a pod uses: its containers together, or one of its init containers that needs more.

    A value of the whole pod replaces those of its containers.
    """
    if key in _PODS:
        return Fraction(1)
    kind, resource = _FIELDS[key]
    spec = part(pod, "spec")
    overhead = parse_quantity(str(part(spec, "overhead").get(resource, 0)))
    whole = part(part(spec, "resources"), kind).get(resource)
    if whole is not None:
        return parse_quantity(str(whole)) + overhead
    sidecars, highest = Fraction(0), Fraction(0)
    for container in spec.get("initContainers") or ():
        value = _value(container, kind, resource)
        highest = max(highest, sidecars + value)
        sidecars += value if container.get("restartPolicy") == "Always" else 0
    together = sum((_value(container, kind, resource) for container in spec.get("containers") or ()), sidecars)
    return max(together, highest) + overhead


def _resources(pod: Object) -> Iterator[Mapping[str, Any]]:
    """Yield the resources of a pod and of each of its containers."""
    spec = part(pod, "spec")
    for holder in (spec, *(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        yield part(holder, "resources")


def _has_values(resources: Mapping[str, Any]) -> bool:
    """Return whether resources have any cpu or memory above 0."""
    return any(
        parse_quantity(str(part(resources, kind).get(resource, 0))) > 0
        for kind in (REQUESTS, LIMITS)
        for resource in ("cpu", "memory")
    )


def _value(container: Mapping[str, Any], kind: str, resource: str) -> Fraction:
    resources = part(container, "resources")
    limit = part(resources, LIMITS).get(resource, 0)
    return parse_quantity(str(limit if kind == LIMITS else part(resources, REQUESTS).get(resource, limit)))


def _hard(quota: Object) -> Mapping[str, str]:
    return {key: str(value) for key, value in part(part(quota, "spec"), "hard").items()}


def _name(quota: Object) -> str:
    return str(part(quota, "metadata").get("name", ""))


def _scopes(quota: Object) -> Iterator[Mapping[str, Any]]:
    spec = part(quota, "spec")
    yield from ({"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ())
    yield from part(spec, "scopeSelector").get("matchExpressions") or ()


def _is_in_scope(pod: Object, scope: Mapping[str, Any], *, best_effort: bool) -> bool:
    """Return whether a pod is in a scope.

    The scope of affinity to pods of other namespaces can't limit processor time or memory.
    """
    spec = part(pod, "spec")
    match scope.get("scopeName"):
        case "Terminating":
            return spec.get("activeDeadlineSeconds") is not None
        case "NotTerminating":
            return spec.get("activeDeadlineSeconds") is None
        case "BestEffort":
            return best_effort
        case "NotBestEffort":
            return not best_effort
        case "PriorityClass":
            return _has_class(spec.get("priorityClassName") or "", scope)
        case _:
            return False


def _has_class(name: str, scope: Mapping[str, Any]) -> bool:
    match scope.get("operator"):
        case "In":
            return name in scope["values"]
        case "NotIn":
            return name not in scope["values"]
        case "DoesNotExist":
            return not name
        case _:
            return bool(name)


def _text(key: str, value: Fraction, rounded: Callable[[Fraction], int]) -> str:
    """Return an amount in the unit of its resource: 1250m, 1088Mi, or a number of pods."""
    if key in _PODS:
        return str(rounded(value))
    return f"{rounded(value * 1000)}m" if _FIELDS[key][1] == "cpu" else f"{rounded(value / _MIB)}Mi"
