"""From the content type and the body of a PATCH to the change that it describes."""

from collections.abc import Callable, Mapping
from typing import Any

from headgate.api.status import ApiError
from headgate.resources.definitions.parts import Schema
from headgate.resources.meta import Object
from headgate.standalone.apiserver import bodies, patches

APPLY = "application/apply-patch+yaml"
_JSON_PATCH = "application/json-patch+json"
_MERGE = "application/merge-patch+json"
_STRATEGIC = "application/strategic-merge-patch+json"


def change_of(media_type: str, body: bytes, schema: Schema, *, strategic: bool) -> Callable[[Object], Object]:
    """Return the change; `strategic` is whether the kind has merge keys (custom resources have none). Raises ApiError 415 for an unknown type, 400 for a body that can't be read."""
    if media_type not in (_JSON_PATCH, _MERGE, _STRATEGIC):
        known = f"{_JSON_PATCH}, {_MERGE}, {_STRATEGIC}, {APPLY}"
        raise ApiError(415, f"the patch is {media_type}; known are {known}")
    if media_type == _STRATEGIC and not strategic:
        raise ApiError(415, "this kind has no strategic merge patch; use a merge patch: kubectl patch --type=merge")
    patch = bodies.parsed(body, media_type)
    match media_type:
        case "application/json-patch+json":
            return lambda obj: patches.json_patch(obj, patch)
        case "application/merge-patch+json":
            return lambda obj: patches.merge_patch(obj, patch)
        case _:
            return lambda obj: patches.strategic_patch(obj, patch, schema)


def apply_configuration(query: Mapping[str, str], body: bytes) -> Mapping[str, Any]:
    """Return the configuration of a server-side apply. Raises ApiError 400."""
    if not query.get("fieldManager"):
        raise ApiError(400, "fieldManager is required for apply; kubectl sends it by itself")
    config = bodies.parsed(body, APPLY)
    if not isinstance(config, Mapping):
        raise ApiError(400, "what is applied must be an object")
    metadata = config.get("metadata")
    if isinstance(metadata, Mapping) and metadata.get("managedFields"):
        raise ApiError(400, "metadata.managedFields must be left out of what is applied: the server writes them")
    return config
