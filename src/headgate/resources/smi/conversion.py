"""What the conversions of SMI's versions share.

Annotations with the prefix `conversion.headgate.dev/` keep what a version can't express.
"""

import json
from typing import Any

from headgate.errors import Cause, DecodeError
from headgate.resources.conversion import mapping
from headgate.resources.meta import Object

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


def read_annotations(obj: Object) -> dict[str, Any]:
    metadata = mapping(obj.get("metadata", {}), "metadata")
    return mapping(metadata.get("annotations") or {}, "metadata.annotations")


def annotated(obj: Object, **changes: str | None) -> Object:
    """Return the object with the annotations for `weights` and `matches` set, or removed if None."""
    names = {"weights": WEIGHTS, "matches": MATCHES}
    before = read_annotations(obj)
    after = {**before, **{names[name]: text for name, text in changes.items()}}
    after = {name: text for name, text in after.items() if text is not None}
    if after == before:
        return obj
    metadata = {**obj.get("metadata", {}), "annotations": after}
    if not after:
        del metadata["annotations"]
    return {**obj, "metadata": metadata}


def with_matches(spec: dict[str, Any], obj: Object, version: str) -> dict[str, Any]:
    """Return the spec with the matches from the annotation: a list for a TrafficSplit, an object for a route."""
    container, word = (list, "a list") if obj["kind"] == "TrafficSplit" else (dict, "an object")
    if "matches" in spec:
        raise DecodeError(Cause("spec.matches", f"is not a field of {version}; write the {obj['kind']} in v1alpha4"))
    kept = read_annotations(obj).get(MATCHES)
    if kept is None:
        return spec
    matches = parsed_json(kept)
    if not isinstance(matches, container):
        raise DecodeError(
            Cause(
                f"metadata.annotations.{MATCHES}",
                f"must be {word} in JSON; headgate writes this annotation, so do not edit it",
            )
        )
    return {**spec, "matches": matches}


def parsed_json(text: object) -> Any:
    """Return the value of a JSON text; None if it is malformed or no text."""
    try:
        return json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None


VERSIONS = ("v1alpha4", "v1alpha3", "v1alpha2", "v1alpha1")
"""The versions of SMI's kinds, newest first."""
ALIASES = (("", BARE),)
"""The early SMI's apiVersion, as a pair of group and version."""
