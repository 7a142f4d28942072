"""What can be wrong with a TrafficTarget, or with SMI's TCPRoute and UDPRoute, as they are written (2.2, 2.3)."""

from collections.abc import Iterator, Mapping
from typing import Any

from headgate.errors import Cause
from headgate.resources import crd_access
from headgate.resources.checks import TOP_LEVEL, common_causes, namespace_of, unknown_fields
from headgate.resources.gateway_checks import spec_causes
from headgate.resources.meta import Object
from headgate.resources.registry import ROUTE_GROUP, split_api_version
from headgate.resources.schema_checks import part, rows, schema_causes
from headgate.resources.schema_parts import Schema
from headgate.resources.versions import FLAT_TARGET, FLAT_TARGET_FIELDS, PORTLESS_VERSIONS

_FLAT: Schema = crd_access.traffic_target(FLAT_TARGET)["properties"]
_TARGET_SPEC: Schema = crd_access.traffic_target("v1alpha3")["properties"]["spec"]
_ROUTE_SPEC: Schema = crd_access.port_route("TCP", "v1alpha4")["properties"]["spec"]
_RENAMED = "is not a field; rules is its name since v1alpha2"


def target_causes(obj: Object) -> Iterator[Cause]:
    """Yield every structural mistake of a TrafficTarget, in the version that it is written in."""
    _, version = split_api_version(obj["apiVersion"])
    if version == FLAT_TARGET:
        yield from _flat_causes(obj)
        yield from _rule_causes(obj.get("specs"), "specs")
        yield from _namespace_causes(obj, part(obj, "destination"), "destination.namespace")
    else:
        for cause in spec_causes(obj, _TARGET_SPEC):
            yield Cause(cause.field, _RENAMED) if cause.field == "spec.specs" else cause
        yield from _rule_causes(part(obj, "spec").get("rules"), "spec.rules")
        yield from _namespace_causes(obj, part(part(obj, "spec"), "destination"), "spec.destination.namespace")


def _flat_causes(obj: Object) -> Iterator[Cause]:
    yield from common_causes(obj)
    if "spec" in obj:
        yield Cause("spec", f"is not a field of {FLAT_TARGET}: move its content to the top level, or write v1alpha3")
    yield from unknown_fields(obj, (*TOP_LEVEL, *FLAT_TARGET_FIELDS))
    for name in FLAT_TARGET_FIELDS:
        if obj.get(name) is None:
            yield Cause(name, "is missing")
        else:
            yield from schema_causes(obj[name], _FLAT[name], name)


def _rule_causes(rules: object, where: str) -> Iterator[Cause]:
    for index, rule in rows(rules):
        if rule.get("matches") is not None and rule.get("kind") != ROUTE_GROUP.kind:
            message = f"are of {ROUTE_GROUP.kind}s only: leave them out, a {rule.get('kind')} counts as a whole"
            yield Cause(f"{where}[{index}].matches", message)


def _namespace_causes(obj: Object, destination: Mapping[str, Any], where: str) -> Iterator[Cause]:
    """Yield a destination elsewhere: who may write in one namespace must not open, or close, pods of another."""
    own, written = namespace_of(obj), destination.get("namespace")
    if isinstance(written, str) and written and written != own:
        message = (
            f"is {written!r}, but a TrafficTarget is about pods of its own namespace, {own!r}: "
            f"set metadata.namespace to {written!r}, or leave this field out"
        )
        yield Cause(where, message)


def port_route_causes(obj: Object) -> Iterator[Cause]:
    """Yield every structural mistake of SMI's TCPRoute or UDPRoute, in the version that it is written in."""
    _, version = split_api_version(obj["apiVersion"])
    if version in PORTLESS_VERSIONS:
        yield from common_causes(obj)
        yield from unknown_fields(obj, TOP_LEVEL)
        yield from _portless_causes(obj.get("spec"), version)
        return
    yield from spec_causes(obj, _ROUTE_SPEC)
    spec = part(obj, "spec")
    if "matches" in spec and spec["matches"] is None:
        yield Cause("spec.matches", "is empty: write the ports under it; ports: [] means all of them")


def _portless_causes(spec: object, version: str) -> Iterator[Cause]:
    if isinstance(spec, Mapping) and "matches" in spec:
        yield Cause("spec.matches", f"is not a field of {version}; write the route in v1alpha4")
        spec = {name: value for name, value in spec.items() if name != "matches"}
    if spec:
        yield Cause("spec", f"has no fields in {version}, which means every connection; write the route in v1alpha4")
