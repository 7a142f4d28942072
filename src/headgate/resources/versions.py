"""Conversion between the versions of a kind: `to_hub` reads any version, `from_hub` writes any (R9, R10, D2, D24).

The hub is the version that the store holds. Conversion loses nothing: as with
a conversion webhook, annotations store the values for which a version has no field:

- `conversion.headgate.dev/weights`, on the hub: the weights as the user wrote them (`500m`), as a JSON object from
  backend to quantity. It is dropped when the weights of the hub change.
- `conversion.headgate.dev/matches`, on versions of TrafficSplit and TCPRoute without `spec.matches`: this field as JSON.

The port of a TrafficTarget's destination is not in the released v1alpha3, but the hub keeps it in the same field.
"""

import difflib
from collections.abc import Mapping

from headgate.errors import Cause, DecodeError
from headgate.resources.kind import Kind, api_version, split_api_version
from headgate.resources.meta import Object, type_name
from headgate.resources.registry import KINDS, find, find_written
from headgate.resources.smi.conversion import BARE

_DRAFT = "; v1alpha4 is a draft: write a TrafficTarget in v1alpha3, whose destination and sources are ServiceAccounts"
_DRAFTS = {"access.smi-spec.io/v1alpha4 TrafficTarget": _DRAFT, "IdentityBinding": _DRAFT}


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
    hub = {**obj, "apiVersion": kind.hub}
    return kind.conversion.to_hub(hub, version) if kind.conversion else hub


def from_hub(obj: Object, group: str, version: str) -> Object:
    """Convert an object in hub version to another version. Raises DecodeError if its kind has no such version."""
    kind = find(split_api_version(obj["apiVersion"])[0], obj["kind"])
    if kind is None or (group, version) not in kind.served_versions:
        raise DecodeError(_unknown(api_version(group, version), obj["kind"]))
    written = {**obj, "apiVersion": api_version(group, version)}
    return kind.conversion.from_hub(written, version) if kind.conversion else written
