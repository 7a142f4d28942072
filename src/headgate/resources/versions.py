"""Conversion between the versions of a kind: `to_hub` reads any version, `from_hub` writes any (R9, R10, D2, D24).

The hub is the version that the store holds. Conversion loses nothing: as with
a conversion webhook, annotations store the values for which a version has no field:

- `conversion.headgate.dev/weights`, on the hub: the weights as the user wrote them (`500m`), as a JSON object from
  backend to quantity. It is dropped when the weights of the hub change.
- `conversion.headgate.dev/matches`, on versions of TrafficSplit and TCPRoute without `spec.matches`: this field as JSON.

The port of a TrafficTarget's destination is not in the released v1alpha3, but the hub keeps it in the same field.
"""

from collections.abc import Mapping

from headgate.errors import Cause, DecodeError
from headgate.resources.kind import Kind, api_version, split_api_version
from headgate.resources.kind_set import KindSet
from headgate.resources.meta import Object, type_name
from headgate.resources.registry import BUILT_IN, find
from headgate.resources.smi.conversion import BARE
from headgate.resources.unknown_kinds import unknown_kind


def kind_written(obj: Object, kinds: KindSet = BUILT_IN) -> Kind:
    """Return the kind of an object in any version. Raises DecodeError for an unknown kind or version."""
    if not isinstance(obj, Mapping):
        raise DecodeError(Cause("", f"must be an object with apiVersion, kind and metadata, not {type_name(obj)}"))
    for field in ("apiVersion", "kind"):
        if not isinstance(obj.get(field), str) or not obj[field]:
            raise DecodeError(Cause(field, f"is missing: every object needs it, as text{_hubs(obj.get('kind'))}"))
    kind = kinds.find_written(obj["apiVersion"], obj["kind"])
    if kind is None:
        raise DecodeError(unknown_kind(obj["apiVersion"], obj["kind"], kinds))
    return kind


def _hubs(name: object) -> str:
    """Return a hint with the preferred `apiVersion` of a kind; empty if the kind is unknown."""
    hubs = [kind.hub for kind in BUILT_IN.kinds if kind.kind == name]
    return f"; for {name} write {' or '.join(hubs)}" if hubs else ""


def with_metadata_name(obj: Object) -> Object:
    """Return an object with its name in `metadata`. The early SMI allows a top-level `name` instead (R72)."""
    metadata = obj.get("metadata") or {}
    if obj.get("apiVersion") != BARE or "name" not in obj or not isinstance(metadata, Mapping) or metadata.get("name"):
        return obj
    rest = {field: value for field, value in obj.items() if field != "name"}
    return {**rest, "metadata": {**metadata, "name": obj["name"]}}


def to_hub(obj: Object) -> Object:
    """Convert an object of a built-in kind in any known version to the hub version. Raises DecodeError."""
    return hub_of(obj, kind_written(obj))


def hub_of(obj: Object, kind: Kind) -> Object:
    """Convert an object of a kind to the hub version. Raises DecodeError."""
    _, version = split_api_version(obj["apiVersion"])
    hub = {**obj, "apiVersion": kind.hub}
    return kind.conversion.to_hub(hub, version) if kind.conversion else hub


def from_hub(obj: Object, group: str, version: str) -> Object:
    """Convert an object in hub version to another version. Raises DecodeError if its kind has no such version."""
    kind = find(split_api_version(obj["apiVersion"])[0], obj["kind"])
    if kind is None or (group, version) not in kind.served_versions:
        raise DecodeError(unknown_kind(api_version(group, version), obj["kind"]))
    return as_version(obj, kind, group, version)


def as_version(obj: Object, kind: Kind, group: str, version: str) -> Object:
    """Convert an object of a kind in hub version to another version. Raises DecodeError."""
    written = {**obj, "apiVersion": api_version(group, version)}
    return kind.conversion.from_hub(written, version) if kind.conversion else written
