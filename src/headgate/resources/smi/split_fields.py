"""What TrafficSplits and Canaries share: annotations, fields, rules and checks of the root and its backends (R6, R8, R9; requirements 2.1, D9, D12)."""

import re
from collections.abc import Iterator
from enum import Enum
from fractions import Fraction
from typing import Annotated, ClassVar

from headgate.errors import Cause, DecodeError
from headgate.quantity import SHARE_LIMITS, parse_percentage
from headgate.resources.grammars import HEADER_CHARACTER
from headgate.resources.meta import (
    Input,
    Object,
    annotation,
    is_dns_label,
    is_dns_subdomain,
    namespace_of,
    part,
    rows,
    type_name,
)
from headgate.resources.schema.declared import Field, FieldRule
from headgate.resources.weights import LARGEST_SUM, quantity, whole_weights

ALLOW_SELF_REFERENCE = "headgate.dev/allow-self-reference"
NO_ENDPOINTS = "headgate.dev/no-endpoints"
STICKY = "headgate.dev/sticky"
MIRROR = "headgate.dev/mirror"
"""The annotation of a split that names a backend for copies of some requests: `website-v2=20%`."""


class StickyBy(Enum):
    """What identifies the users of a sticky split."""

    COOKIE = "Cookie"
    HEADER = "Header"
    SOURCE = "Source"


BackendName = Annotated[str, Field("The Service; name.namespace when it is in another namespace that grants this.")]
WEIGHT = "The relative share of the root's traffic; 0 for none. Shares need not add up to 100."


class RootSpec(Input, frozen=True, kw_only=True):
    """What `spec` of TrafficSplits and Canaries have: the root `service`. Their `backends` differ."""

    __rules__: ClassVar[tuple[FieldRule, ...]] = (
        FieldRule("service", "is missing", cel="self.service != ''", broken=lambda spec: spec.get("service") == ""),
        FieldRule(
            "backends",
            "is empty: name at least one Service and its weight",
            cel="size(self.backends) > 0",
            broken=lambda spec: spec.get("backends") == [],
        ),
    )

    service: Annotated[str, Field("The root: the Service that clients call, as a short name or a full domain name.")]


_ALLOWED = {NO_ENDPOINTS: ("fail", "skip"), ALLOW_SELF_REFERENCE: ("true", "false")}
_STICKY = re.compile(f"source|(cookie|header):{HEADER_CHARACTER}+")


def annotation_causes(obj: Object) -> Iterator[Cause]:
    """Yield the mistakes in the annotations of a TrafficSplit."""
    for name, allowed in _ALLOWED.items():
        value = annotation(obj, name)
        if isinstance(value, str) and value not in allowed:
            yield Cause(f"metadata.annotations.{name}", f"must be {' or '.join(allowed)}, not {value!r}")
    sticky = annotation(obj, STICKY)
    if isinstance(sticky, str) and not _STICKY.fullmatch(sticky):
        yield Cause(f"metadata.annotations.{STICKY}", f"must be cookie:NAME, header:NAME or source, not {sticky!r}")
    mirror = annotation(obj, MIRROR)
    if isinstance(mirror, str) and (fault := _mirror_fault(mirror, part(obj, "spec").get("backends"))):
        yield Cause(f"metadata.annotations.{MIRROR}", fault)


def shared_causes(obj: Object, *, quantities: bool) -> Iterator[Cause]:
    """Yield the mistakes in the root and the backends of a TrafficSplit or Canary, except broken rules.

    `quantities` says whether weights are quantities.
    """
    spec = part(obj, "spec")
    root = spec.get("service")
    if root and isinstance(root, str) and not _is_root(root):
        message = f"{root!r} does not name a Service: write website, website.namespace or its FQDN"
        yield Cause("spec.service", message)
    yield from _backends_causes(spec.get("backends"), namespace_of(obj), quantities=quantities)


def _mirror_fault(text: str, backends: object) -> str:
    """Return what is wrong with the annotation for copies; empty if nothing is."""
    service, _, percentage = text.partition("=")
    services = [str(row.get("service")) for _, row in rows(backends)]
    try:
        share = parse_percentage(percentage)
    except ValueError as error:
        return f"must be SERVICE=PERCENTAGE, for example {services[-1] if services else 'website-v2'}=20%: {error}"
    if service not in services:
        return f"{service!r} is not one of spec.backends: {' or '.join(services)}"
    return "" if 0 < share <= 1 else f"{SHARE_LIMITS}, not {percentage}"


def _is_root(name: str) -> bool:
    parts = name.removesuffix(".").split(".", 3)
    if not all(map(is_dns_label, parts[:3])) or parts[2:3] not in ([], ["svc"]):
        return False
    return len(parts) < 4 or is_dns_subdomain(parts[3])


def _backends_causes(backends: object, namespace: str, *, quantities: bool) -> Iterator[Cause]:
    weights: list[Fraction] = []
    seen: dict[str, tuple[int, str]] = {}
    for index, backend in rows(backends):
        where = f"spec.backends[{index}]"
        yield from _backend_causes(backend.get("service"), index, namespace, seen)
        try:
            weights.append(_weight(backend.get("weight"), f"{where}.weight", quantities=quantities))
        except DecodeError as error:
            yield from error.causes
    if sum(whole_weights(weights)) > LARGEST_SUM:
        yield Cause("spec.backends", f"have weights that add up to more than {LARGEST_SUM}; use fewer digits")


def _backend_causes(name: object, index: int, namespace: str, seen: dict[str, tuple[int, str]]) -> Iterator[Cause]:
    where = f"spec.backends[{index}].service"
    if name == "":
        yield Cause(where, "is missing")
    if not isinstance(name, str) or not name:
        return
    parts = name.split(".")
    if len(parts) > 2 or not all(map(is_dns_label, parts)):
        yield Cause(where, f"{name!r} does not name a Service: write its name, or name.namespace")
        return
    full = name if len(parts) == 2 else f"{name}.{namespace}"
    first, written = seen.setdefault(full, (index, name))
    if first != index:
        other = f"spec.backends[{first}]" + (f", where it is written {written!r}" if written != name else "")
        yield Cause(where, f"{name!r} is the same Service as in {other}: name it once, with one weight")


def _weight(value: object, where: str, *, quantities: bool) -> Fraction:
    """Return the exact weight of a backend. Raises DecodeError."""
    if value is None:
        raise DecodeError(Cause(where, "is missing; 0 means no traffic"))
    if quantities:
        return quantity(value, where)
    if type(value) is int and value >= 0:
        return Fraction(value)
    if isinstance(value, str):
        hint = "; write it without quotes" if value.isdecimal() else ""
        message = f"must be a whole number, not the text {value!r}{hint}"
    elif isinstance(value, float):
        message = f"must be a whole number, not {value}; only the ratio of the weights counts, so scale them all up"
    elif isinstance(value, bool) or not isinstance(value, int):
        message = f"must be a whole number, not {type_name(value)}"
    else:
        message = f"must be 0 or more, not {value}"
    raise DecodeError(Cause(where, message))
