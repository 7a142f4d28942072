"""What can be wrong with a TrafficTarget, or with SMI's TCPRoute and UDPRoute, as they are written (2.2, 2.3)."""

from collections.abc import Iterator, Mapping
from typing import Any

from headgate.errors import Cause
from headgate.resources.checks.shared import namespace_of, part, rows
from headgate.resources.meta import Object
from headgate.resources.registry import ROUTE_GROUP, split_api_version
from headgate.resources.versions import FLAT_TARGET, PORTLESS_VERSIONS


def target_causes(obj: Object) -> Iterator[Cause]:
    """Yield what is wrong between the fields of a TrafficTarget, in the version that it is written in."""
    _, version = split_api_version(obj["apiVersion"])
    if version == FLAT_TARGET:
        if "spec" in obj:
            yield Cause("spec", f"is not a field of {version}: move its content to the top level, or write v1alpha3")
        yield from _rule_causes(obj.get("specs"), "specs")
        yield from _namespace_causes(obj, part(obj, "destination"), "destination.namespace")
        return
    spec = part(obj, "spec")
    if "specs" in spec:
        yield Cause("spec.specs", "is not a field; rules is its name since v1alpha2")
    yield from _rule_causes(spec.get("rules"), "spec.rules")
    yield from _namespace_causes(obj, part(spec, "destination"), "spec.destination.namespace")


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
    """Yield what the schema can't say about SMI's TCPRoute or UDPRoute, in the version that it is written in."""
    _, version = split_api_version(obj["apiVersion"])
    spec = part(obj, "spec")
    if version in PORTLESS_VERSIONS:
        yield from _portless_causes(spec, version)
    elif "matches" in spec and spec["matches"] is None:
        yield Cause("spec.matches", "is empty: write the ports under it; ports: [] means all of them")


def _portless_causes(spec: Mapping[str, Any], version: str) -> Iterator[Cause]:
    if "matches" in spec:
        yield Cause("spec.matches", f"is not a field of {version}; write the route in v1alpha4")
    if spec.keys() - {"matches"}:
        yield Cause("spec", f"has no fields in {version}, which means every connection; write the route in v1alpha4")
