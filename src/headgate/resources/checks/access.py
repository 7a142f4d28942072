"""Checks of TrafficTargets, SMI's TCPRoutes and UDPRoutes (requirements 2.2, 2.3), and TLSConfigs (004)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headgate.errors import Cause
from headgate.resources.meta import Object, annotation, label_causes, namespace_of, part, rows
from headgate.resources.registry import ROUTE_GROUP, split_api_version
from headgate.resources.smi import MODE, MODES
from headgate.resources.versions import FLAT_TARGET, PORTLESS_VERSIONS

_LONGEST_LABEL = 63
_LABELS = "spec.selector.matchLabels"
_UNSELECTED = (
    "is missing: select pods, for example by matchLabels: {app: web}; matchLabels: {} selects all pods of the namespace"
)


def target_causes(obj: Object) -> Iterator[Cause]:
    """Yield the mistakes in a TrafficTarget, in any version, that its schema can't express."""
    mode = annotation(obj, MODE)
    if isinstance(mode, str) and mode not in MODES:
        yield Cause(f"metadata.annotations.{MODE}", f"must be {' or '.join(MODES)}, not {mode!r}")
    _, version = split_api_version(obj["apiVersion"])
    if version == FLAT_TARGET:
        if "spec" in obj:
            yield Cause(
                "spec",
                f"is not a field of {version}: move its content to the top level, or write the TrafficTarget in v1alpha3",
            )
        yield from _rule_causes(obj.get("specs"), "specs")
        yield from _namespace_causes(obj, part(obj, "destination"), "destination.namespace")
        return
    spec = part(obj, "spec")
    if "specs" in spec:
        yield Cause("spec.specs", "is no longer a field as of v1alpha2; rename it to rules")
    yield from _rule_causes(spec.get("rules"), "spec.rules")
    yield from _namespace_causes(obj, part(spec, "destination"), "spec.destination.namespace")


def _rule_causes(rules: object, where: str) -> Iterator[Cause]:
    for index, rule in rows(rules):
        if rule.get("matches") is not None and rule.get("kind") != ROUTE_GROUP.kind:
            message = f"is only possible for an {ROUTE_GROUP.kind}: leave it out to allow the whole {rule.get('kind')}"
            yield Cause(f"{where}[{index}].matches", message)


def _namespace_causes(obj: Object, destination: Mapping[str, Any], where: str) -> Iterator[Cause]:
    """Yield a mistake if the destination is not in the TrafficTarget's own namespace.

    Write access to one namespace must not be enough to allow or deny requests to pods of another namespace.
    """
    own, written = namespace_of(obj), destination.get("namespace")
    if isinstance(written, str) and written and written != own:
        message = (
            f"is {written!r}, but a TrafficTarget is about pods of its own namespace, {own!r}: "
            f"set metadata.namespace to {written!r}, or leave this field out"
        )
        yield Cause(where, message)


def port_route_causes(obj: Object) -> Iterator[Cause]:
    """Yield the mistakes in SMI's TCPRoute or UDPRoute, in any version, that its schema can't express."""
    _, version = split_api_version(obj["apiVersion"])
    spec = part(obj, "spec")
    if version in PORTLESS_VERSIONS:
        yield from _portless_causes(spec, version)
    elif "matches" in spec and spec["matches"] is None:
        yield Cause("spec.matches", "is empty: write a list of ports, or ports: [] for all ports")


def _portless_causes(spec: Mapping[str, Any], version: str) -> Iterator[Cause]:
    if "matches" in spec:
        yield Cause("spec.matches", f"is not a field of {version}; write the route in v1alpha4")
    if spec.keys() - {"matches"}:
        yield Cause(
            "spec",
            f"has no fields in {version}, so it selects every connection; to select ports, write the route in v1alpha4",
        )


def tls_config_causes(obj: Object) -> Iterator[Cause]:
    """Yield the mistakes in a TLSConfig that its schema can't express (R72 to R75).

    The selector and its labels are required, so that a forgotten selector does not select all pods.
    """
    if "name" in obj:
        yield Cause("name", "is not a field; write the name in metadata.name only")
    spec = part(obj, "spec")
    if isinstance(obj.get("spec"), Mapping) and spec.get("selector") is None:
        yield Cause("spec.selector", _UNSELECTED)
    elif isinstance(spec.get("selector"), Mapping) and spec["selector"].get("matchLabels") is None:
        yield Cause(_LABELS, _UNSELECTED)
    yield from _label_causes(part(part(spec, "selector"), "matchLabels"))
    names = spec.get("subjectNames")
    listed = [str(name) for name in names] if isinstance(names, list | tuple) else []
    yield from _long_names(listed)
    yield from _foreign_names(listed, namespace_of(obj))


def _label_causes(labels: Mapping[str, object]) -> Iterator[Cause]:
    """Yield a mistake for each invalid label of the selector. The schema's check reports values that are not text."""
    yield from label_causes({key: value for key, value in labels.items() if isinstance(value, str)}, _LABELS)


def _long_names(names: Sequence[str]) -> Iterator[Cause]:
    for index, name in enumerate(names):
        longest = max(map(len, name.split(".")))
        if longest > _LONGEST_LABEL:
            message = f"has a label of {longest} characters; each label of a DNS name has at most {_LONGEST_LABEL}"
            yield Cause(f"spec.subjectNames[{index}]", message)


def _foreign_names(names: Sequence[str], namespace: str) -> Iterator[Cause]:
    """Yield a mistake for each Service name of another namespace: pods with this name could impersonate the Service."""
    for index, name in enumerate(names):
        match name.split("."):
            case [_, other, "svc", *_] if other != namespace:
                message = (
                    f"is the name of a Service in the namespace {other}; only a TLSConfig in that namespace can list it"
                )
                yield Cause(f"spec.subjectNames[{index}]", message)
