"""What can be wrong with a TrafficSplit as it is written, whatever else exists (R6, R8, R9; requirements 2.1, D9, D12)."""

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from headgate.errors import Cause
from headgate.quantity import parse_quantity, whole_weights
from headgate.resources.checks import (
    TOP_LEVEL,
    annotation,
    common_causes,
    list_at,
    namespace_of,
    object_at,
    text_at,
    unknown_fields,
)
from headgate.resources.meta import Object
from headgate.resources.names import is_dns_label, is_dns_subdomain, type_name
from headgate.resources.registry import split_api_version
from headgate.resources.smi import ALLOW_SELF_REFERENCE, NO_ENDPOINTS, STICKY
from headgate.resources.versions import MATCHLESS_VERSIONS, QUANTITY_VERSIONS

LARGEST_SUM = 2**32 - 1  # Envoy adds weights up in 32 bits
_ALLOWED = {NO_ENDPOINTS: ("fail", "skip"), ALLOW_SELF_REFERENCE: ("true", "false")}
_STICKY = re.compile(r"source|(cookie|header):[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_MATCH_KIND = "HTTPRouteGroup"


def split_causes(obj: Object) -> Iterator[Cause]:
    """Yield every structural mistake of a TrafficSplit, in the version that it is written in."""
    yield from common_causes(obj)
    yield from unknown_fields(obj, TOP_LEVEL)
    for name, allowed in _ALLOWED.items():
        value = annotation(obj, name)
        if isinstance(value, str) and value not in allowed:
            yield Cause(f"metadata.annotations.{name}", f"must be {' or '.join(allowed)}, not {value!r}")
    sticky = annotation(obj, STICKY)
    if isinstance(sticky, str) and not _STICKY.fullmatch(sticky):
        yield Cause(f"metadata.annotations.{STICKY}", f"must be cookie:NAME, header:NAME or source, not {sticky!r}")
    causes: list[Cause] = []
    spec = object_at(obj.get("spec"), "spec", causes)
    if spec is not None:
        _, version = split_api_version(obj["apiVersion"])
        causes += _spec_causes(spec, version, namespace_of(obj))
    yield from causes


def _spec_causes(spec: Mapping[str, Any], version: str, namespace: str) -> list[Cause]:
    causes: list[Cause] = []
    root = text_at(spec.get("service"), "spec.service", causes)
    if root and not _is_root(root):
        causes.append(
            Cause("spec.service", f"{root!r} does not name a Service: write website, website.namespace or its FQDN")
        )
    if version in MATCHLESS_VERSIONS:
        if "matches" in spec:
            causes.append(Cause("spec.matches", f"is not a field of {version}; write the split in v1alpha4"))
    elif spec.get("matches") is not None:
        causes += _match_causes(spec["matches"])
    known = ("service", "backends", "matches")
    causes += unknown_fields(spec, known, "spec")
    return causes + _backends_causes(spec.get("backends"), version, namespace)


def _is_root(name: str) -> bool:
    parts = name.removesuffix(".").split(".", 3)
    if not all(map(is_dns_label, parts[:3])) or parts[2:3] not in ([], ["svc"]):
        return False
    return len(parts) < 4 or is_dns_subdomain(parts[3])


def _backends_causes(value: object, version: str, namespace: str) -> list[Cause]:
    causes: list[Cause] = []
    backends = list_at(value, "spec.backends", causes)
    if not backends and not causes:
        causes.append(Cause("spec.backends", "is empty: name at least one Service and its weight"))
    weights: list[Fraction] = []
    seen: dict[str, tuple[int, str]] = {}
    for index, item in enumerate(backends):
        where = f"spec.backends[{index}]"
        backend = object_at(item, where, causes)
        if backend is None:
            continue
        causes += unknown_fields(backend, ("service", "weight"), where)
        causes += _backend_causes(backend.get("service"), index, namespace, seen)
        weight = _weight(backend.get("weight"), f"{where}.weight", quantity=version in QUANTITY_VERSIONS)
        if isinstance(weight, Cause):
            causes.append(weight)
        else:
            weights.append(weight)
    if sum(whole_weights(weights)) > LARGEST_SUM:
        causes.append(Cause("spec.backends", f"have weights that add up to more than {LARGEST_SUM}; use fewer digits"))
    return causes


def _backend_causes(value: object, index: int, namespace: str, seen: dict[str, tuple[int, str]]) -> list[Cause]:
    where = f"spec.backends[{index}].service"
    causes: list[Cause] = []
    name = text_at(value, where, causes)
    if not name:
        return causes
    parts = name.split(".")
    if len(parts) > 2 or not all(map(is_dns_label, parts)):
        return [Cause(where, f"{name!r} does not name a Service: write its name, or name.namespace")]
    full = name if len(parts) == 2 else f"{name}.{namespace}"
    first, written = seen.setdefault(full, (index, name))
    if first != index:
        other = f"spec.backends[{first}]" + (f", there written {written!r}" if written != name else "")
        return [Cause(where, f"{name!r} is the same Service as in {other}: name it once, with one weight")]
    return []


def _weight(value: object, where: str, *, quantity: bool) -> Fraction | Cause:
    if value is None:
        return Cause(where, "is missing; 0 means no traffic")
    if quantity:
        return _quantity(value, where)
    if isinstance(value, str):
        return Cause(where, f"must be a whole number, not the text {value!r}; write it without quotes")
    if isinstance(value, float):
        return Cause(
            where, f"must be a whole number, not {value}; only the ratio of the weights counts, so scale them all up"
        )
    if isinstance(value, bool) or not isinstance(value, int):
        return Cause(where, f"must be a whole number, not {type_name(value)}")
    return Fraction(value) if value >= 0 else Cause(where, f"must be 0 or more, not {value}")


def _quantity(value: object, where: str) -> Fraction | Cause:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return Cause(where, f"must be a quantity such as 1, 500m or 1.5, not {type_name(value)}")
    try:
        weight = parse_quantity(str(value))
    except ValueError as error:
        return Cause(where, str(error))
    return weight if weight >= 0 else Cause(where, f"must be 0 or more, not {value}")


def _match_causes(value: object) -> list[Cause]:
    causes: list[Cause] = []
    for index, item in enumerate(list_at(value, "spec.matches", causes)):
        where = f"spec.matches[{index}]"
        match = object_at(item, where, causes)
        if match is None:
            continue
        causes += unknown_fields(match, ("kind", "name", "apiGroup"), where)
        kind = text_at(match.get("kind"), f"{where}.kind", causes)
        if kind and kind != _MATCH_KIND:
            causes.append(Cause(f"{where}.kind", f"must be {_MATCH_KIND}, not {kind!r}"))
        name = text_at(match.get("name"), f"{where}.name", causes)
        if name and not is_dns_subdomain(name):
            causes.append(Cause(f"{where}.name", f"{name!r} is not the name of an object"))
        if match.get("apiGroup") is not None:
            causes += _api_group(match["apiGroup"], f"{where}.apiGroup")
    return causes


def _api_group(value: object, where: str) -> list[Cause]:
    if not isinstance(value, str):
        return [Cause(where, f"must be text, not {type_name(value)}")]
    if value.partition("/")[0] in ("", "specs.smi-spec.io"):
        return []
    return [Cause(where, f"must be specs.smi-spec.io, not {value!r}")]
