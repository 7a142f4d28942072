"""Conversion between the versions of a kind: `to_hub` reads any version, `from_hub` writes any (R9, R10, D2, D24).

The hub is the version that the store holds. Conversion loses nothing: as with
a conversion webhook, annotations store the values for which a version has no field:

- `conversion.headgate.dev/weights`, on the hub: the weights as the user wrote them (`500m`), as a JSON object from
  backend to quantity. It is dropped when the weights of the hub change.
- `conversion.headgate.dev/matches`, on versions of TrafficSplit and TCPRoute without `spec.matches`: this field as JSON.

The port of a TrafficTarget's destination is not in the released v1alpha3, but the hub keeps it in the same field.
"""

import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headgate.errors import Cause, DecodeError
from headgate.kinds import ACCESS, SPECS, SPLIT
from headgate.resources.meta import Object, type_name
from headgate.resources.registry import KINDS, Kind, api_version, find, find_written, split_api_version
from headgate.resources.weights import integer_weights, quantity

WEIGHTS = "conversion.headgate.dev/weights"
MATCHES = "conversion.headgate.dev/matches"
QUANTITY_VERSIONS = frozenset({"v1alpha1", "v1beta1"})
MATCHLESS_VERSIONS = frozenset({"v1alpha1", "v1alpha2", "v1beta1"})
PORTLESS_VERSIONS = frozenset({"v1alpha1", "v1alpha2", "v1alpha3"})  # versions of TCPRoute with an empty `spec`
SPECLESS_VERSIONS = frozenset({"v1alpha1", "v1alpha2"})
FLAT_TARGET = "v1alpha1"  # The version of TrafficTarget that has no `spec`.
FLAT_TARGET_FIELDS = {  # The top-level fields of a v1alpha1 TrafficTarget, and their names in `spec` of later versions.
    "destination": "destination",
    "sources": "sources",
    "specs": "rules",
}
TOP_LEVEL_MATCHES = frozenset({"v1alpha1", "v1alpha2"})  # The versions of HTTPRouteGroup without `spec`.
BARE = "v1beta1"  # The apiVersion of the early SMI (004), which has no group.
_DRAFT = "; v1alpha4 is a draft: write a TrafficTarget in v1alpha3, whose destination and sources are ServiceAccounts"
_DRAFTS = {"access.smi-spec.io/v1alpha4 TrafficTarget": _DRAFT, "IdentityBinding": _DRAFT}
_HOSTNAME = "kubernetes.io/hostname"
_ZONE = "topology.kubernetes.io/zone"


def kind_written(obj: Object) -> Kind:
    """Return the kind of an object in any version. Raises DecodeError for an unknown kind or version."""
    if not isinstance(obj, Mapping):
        raise DecodeError(Cause("", f"must be an object with apiVersion, kind and metadata, not {type_name(obj)}"))
    for field in ("apiVersion", "kind"):
        if not isinstance(obj.get(field), str) or not obj[field]:
            raise DecodeError(Cause(field, f"is missing: every object needs it, as text{_hubs(obj.get('kind'))}"))
    kind = find_written(obj["apiVersion"], obj["kind"])
    if kind is None:
        raise DecodeError(_unknown(obj["apiVersion"], obj["kind"]))
    return kind


def _hubs(name: object) -> str:
    """Return a hint with the preferred `apiVersion` of a kind; empty if the kind is unknown."""
    hubs = [kind.hub for kind in KINDS if kind.kind == name]
    return f"; for {name} write {' or '.join(hubs)}" if hubs else ""


def _unknown(version: str, name: str) -> Cause:
    named = [kind for kind in KINDS if kind.kind == name]
    if not named:
        kinds = sorted({kind.kind for kind in KINDS})
        nearest = difflib.get_close_matches(name, kinds, n=1)
        hint = (
            f"did you mean {nearest[0]}?" if nearest else f"known kinds are {', '.join(kinds)}{_DRAFTS.get(name, '')}"
        )
        return Cause("kind", f"{name!r} is not a kind that headgate knows; {hint}")
    known = ", ".join(api_version(*pair) for kind in named for pair in kind.served_versions)
    group, _ = split_api_version(version)
    if all(group != served for kind in named for served, _ in kind.served_versions):  # such as a Canary of Flagger
        message = (
            f"{name!r} of {group or 'the core group'} is not a kind that headgate knows; known versions are {known}"
        )
        return Cause("apiVersion", message)
    draft = _DRAFTS.get(f"{version} {name}", "")
    return Cause("apiVersion", f"{version!r} is not a version of {name}; known versions are {known}{draft}")


def with_metadata_name(obj: Object) -> Object:
    """Return an object with its name in `metadata`. The early SMI allows a top-level `name` instead (R72)."""
    metadata = obj.get("metadata") or {}
    if obj.get("apiVersion") != BARE or "name" not in obj or not isinstance(metadata, Mapping) or metadata.get("name"):
        return obj
    rest = {field: value for field, value in obj.items() if field != "name"}
    return {**rest, "metadata": {**metadata, "name": obj["name"]}}


def to_hub(obj: Object) -> Object:
    """Convert an object of any known version to the hub version. Raises DecodeError."""
    kind = kind_written(obj)
    _, version = split_api_version(obj["apiVersion"])
    convert = _TO_HUB.get((kind.group, kind.kind))
    hub = {**obj, "apiVersion": kind.hub}
    return convert(hub, version) if convert else hub


def from_hub(obj: Object, group: str, version: str) -> Object:
    """Convert an object in hub version to another version. Raises DecodeError if its kind has no such version."""
    kind = find(split_api_version(obj["apiVersion"])[0], obj["kind"])
    if kind is None or (group, version) not in kind.served_versions:
        raise DecodeError(_unknown(api_version(group, version), obj["kind"]))
    convert = _FROM_HUB.get((kind.group, kind.kind))
    written = {**obj, "apiVersion": api_version(group, version)}
    return convert(written, version) if convert else written


def _mapping(value: object, field: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise DecodeError(Cause(field, f"must be an object, not {type_name(value)}"))
    return dict(value)


def _sequence(value: object, field: str) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise DecodeError(Cause(field, f"must be a list, not {type_name(value)}"))
    return value


def _rows(value: object, field: str) -> list[dict[str, Any]]:
    return [_mapping(row, f"{field}[{index}]") for index, row in enumerate(_sequence(value, field))]


def _annotations(obj: Object) -> dict[str, Any]:
    metadata = _mapping(obj.get("metadata", {}), "metadata")
    return _mapping(metadata.get("annotations") or {}, "metadata.annotations")


def _annotated(obj: Object, **changes: str | None) -> Object:
    """Return the object with the annotations for `weights` and `matches` set, or removed if None."""
    names = {"weights": WEIGHTS, "matches": MATCHES}
    before = _annotations(obj)
    after = {**before, **{names[name]: text for name, text in changes.items()}}
    after = {name: text for name, text in after.items() if text is not None}
    if after == before:
        return obj
    metadata = {**obj.get("metadata", {}), "annotations": after}
    if not after:
        del metadata["annotations"]
    return {**obj, "metadata": metadata}


def _split_to_hub(obj: Object, version: str) -> Object:
    spec = _mapping(obj.get("spec"), "spec")
    if version in MATCHLESS_VERSIONS:
        spec = _with_matches(spec, obj, version)
    kept = _annotations(obj).get(WEIGHTS)
    if version in QUANTITY_VERSIONS:
        spec["backends"], kept = _whole_backends(_rows(spec.get("backends"), "spec.backends"))
    elif _restored(kept, spec.get("backends")) is None:
        kept = None
    return _annotated({**obj, "spec": spec}, weights=kept, matches=None)


def _with_matches(spec: dict[str, Any], obj: Object, version: str) -> dict[str, Any]:
    """Return the spec with the matches from the annotation: a list for a TrafficSplit, an object for a route."""
    wanted, word = (list, "a list") if obj["kind"] == "TrafficSplit" else (dict, "an object")
    if "matches" in spec:
        raise DecodeError(Cause("spec.matches", f"is not a field of {version}; write the {obj['kind']} in v1alpha4"))
    kept = _annotations(obj).get(MATCHES)
    if kept is None:
        return spec
    matches = _json(kept)
    if not isinstance(matches, wanted):
        raise DecodeError(
            Cause(
                f"metadata.annotations.{MATCHES}",
                f"must be {word} in JSON; headgate writes this annotation, so do not edit it",
            )
        )
    return {**spec, "matches": matches}


def _whole_backends(rows: Sequence[Mapping[str, Any]]) -> tuple[list[Any], str | None]:
    """Return the backends with integer weights, and the JSON annotation that preserves their quantities (`500m`).

    The annotation is None if it is not needed.
    """
    weights = integer_weights([quantity(row.get("weight"), f"spec.backends[{i}].weight") for i, row in enumerate(rows)])
    whole = [{**row, "weight": weight} for row, weight in zip(rows, weights, strict=True)]
    if all(type(row["weight"]) is int for row in rows):
        return whole, None
    kept = json.dumps({str(row.get("service")): row["weight"] for row in rows}, separators=(",", ":"))
    return whole, None if _restored(kept, whole) is None else kept


def _restored(kept: object, backends: object) -> list[Any] | None:
    """Return the backends with the quantities from the annotation; None if the quantities do not match the weights."""
    texts = _json(kept)
    if not isinstance(texts, dict) or not isinstance(backends, list | tuple) or len(texts) != len(backends):
        return None
    if not all(isinstance(row, Mapping) and texts.get(str(row.get("service"))) is not None for row in backends):
        return None
    rows = [{**row, "weight": texts[str(row.get("service"))]} for row in backends]
    try:
        weights = integer_weights([quantity(row["weight"], "") for row in rows])
    except DecodeError:  # a client edited the annotation, so it is ignored
        return None
    return rows if list(weights) == [row.get("weight") for row in backends] else None


def _json(text: object) -> Any:
    """Return the value of a JSON text; None if it is malformed or no text."""
    try:
        return json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None


def _split_from_hub(obj: Object, version: str) -> Object:
    spec = _mapping(obj.get("spec"), "spec")
    kept = _annotations(obj).get(WEIGHTS)
    matches = None
    if version in MATCHLESS_VERSIONS and "matches" in spec:
        matches = json.dumps(spec.pop("matches"), separators=(",", ":"))
    if version in QUANTITY_VERSIONS:
        spec["backends"] = _restored(kept, spec.get("backends")) or spec.get("backends")
        kept = None
    return _annotated({**obj, "spec": spec}, weights=kept, matches=matches)


def _slice_to_hub(obj: Object, version: str) -> Object:
    if version != "v1beta1" or obj.get("endpoints") is None:
        return obj
    rows = enumerate(_rows(obj["endpoints"], "endpoints"))
    return {**obj, "endpoints": [_endpoint_to_hub(row, f"endpoints[{index}].topology") for index, row in rows]}


def _endpoint_to_hub(endpoint: dict[str, Any], field: str) -> dict[str, Any]:
    """Move the zone out of `topology`, as Kubernetes does. Remove the hostname if `nodeName` has it too."""
    topology = _mapping(endpoint.pop("topology", None) or {}, field)
    if _ZONE in topology:
        endpoint["zone"] = topology.pop(_ZONE)
    if topology.get(_HOSTNAME) is not None and topology[_HOSTNAME] == endpoint.get("nodeName"):
        del topology[_HOSTNAME]
    return {**endpoint, "deprecatedTopology": topology} if topology else endpoint


def _slice_from_hub(obj: Object, version: str) -> Object:
    if version != "v1beta1" or not obj.get("endpoints"):
        return obj
    return {**obj, "endpoints": [_endpoint_from_hub(row) for row in _rows(obj["endpoints"], "endpoints")]}


def _endpoint_from_hub(endpoint: dict[str, Any]) -> dict[str, Any]:
    topology = _mapping(endpoint.pop("deprecatedTopology", None) or {}, "endpoints.deprecatedTopology")
    if "zone" in endpoint:
        topology[_ZONE] = endpoint.pop("zone")
    if endpoint.get("nodeName") and _HOSTNAME not in topology:
        topology[_HOSTNAME] = endpoint["nodeName"]
    return {**endpoint, "topology": topology} if topology else endpoint


def _group_to_hub(obj: Object, _version: str) -> Object:
    """Convert the four shapes of an HTTPRouteGroup to one (D4): `matches` under `spec`, headers as a map."""
    rest = {name: value for name, value in obj.items() if name not in {"matches", "spec"}}
    where = "matches" if "matches" in obj else "spec.matches"
    spec = {"matches": obj["matches"]} if "matches" in obj else _mapping(obj.get("spec"), "spec")
    rows = enumerate(_rows(spec.get("matches"), where))
    matches = [_with_header_map(row, f"{where}[{index}].headers") for index, row in rows]
    return {**rest, "spec": {**spec, "matches": matches}}


def _with_header_map(match: dict[str, Any], field: str) -> dict[str, Any]:
    if not isinstance(match.get("headers"), list | tuple):
        return match
    return {**match, "headers": {name: text for row in _rows(match["headers"], field) for name, text in row.items()}}


def _group_from_hub(obj: Object, version: str) -> Object:
    if version not in TOP_LEVEL_MATCHES:
        return obj
    rest = {name: value for name, value in obj.items() if name != "spec"}
    return {**rest, "matches": _mapping(obj.get("spec"), "spec").get("matches", [])}


def _port_route_to_hub(obj: Object, version: str) -> Object:
    spec = _mapping(obj.get("spec") or {}, "spec")
    if version in PORTLESS_VERSIONS:
        spec = _with_matches(spec, obj, version)
    return _annotated({**obj, "spec": spec}, matches=None)


def _port_route_from_hub(obj: Object, version: str) -> Object:
    if version not in PORTLESS_VERSIONS:
        return obj
    spec = _mapping(obj.get("spec") or {}, "spec")
    matches = json.dumps(spec.pop("matches"), separators=(",", ":")) if "matches" in spec else None
    rest = {name: value for name, value in obj.items() if name != "spec"}
    bare = version in SPECLESS_VERSIONS and not spec
    return _annotated(rest if bare else {**rest, "spec": spec}, matches=matches)


def _target_to_hub(obj: Object, version: str) -> Object:
    """Move the top-level fields of v1alpha1 to `spec`. Its `specs` are `rules` in later versions."""
    if version != FLAT_TARGET:
        return obj
    if "spec" in obj:
        raise DecodeError(Cause("spec", f"is not a field of {version}; write the TrafficTarget in v1alpha3"))
    rest = {name: value for name, value in obj.items() if name not in FLAT_TARGET_FIELDS}
    return {**rest, "spec": {new: obj[old] for old, new in FLAT_TARGET_FIELDS.items() if old in obj}}


def _target_from_hub(obj: Object, version: str) -> Object:
    if version != FLAT_TARGET:
        return obj
    spec = _mapping(obj.get("spec"), "spec")
    rest = {name: value for name, value in obj.items() if name != "spec"}
    return {**rest, **{old: spec[new] for old, new in FLAT_TARGET_FIELDS.items() if new in spec}}


_Convert = Callable[[Object, str], Object]
_TO_HUB: dict[tuple[str, str], _Convert] = {
    (SPLIT, "TrafficSplit"): _split_to_hub,
    ("discovery.k8s.io", "EndpointSlice"): _slice_to_hub,
    (SPECS, "HTTPRouteGroup"): _group_to_hub,
    (SPECS, "TCPRoute"): _port_route_to_hub,
    (ACCESS, "TrafficTarget"): _target_to_hub,
}
_FROM_HUB: dict[tuple[str, str], _Convert] = {
    (SPLIT, "TrafficSplit"): _split_from_hub,
    ("discovery.k8s.io", "EndpointSlice"): _slice_from_hub,
    (SPECS, "HTTPRouteGroup"): _group_from_hub,
    (SPECS, "TCPRoute"): _port_route_from_hub,
    (ACCESS, "TrafficTarget"): _target_from_hub,
}
