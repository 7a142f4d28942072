"""Parts of the structural checks that every kind shares: types, unknown fields with the nearest known one, lists."""

import difflib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from headgate.errors import Cause
from headgate.resources.meta import Object
from headgate.resources.names import metadata_causes, type_name

TOP_LEVEL = ("apiVersion", "kind", "metadata", "spec", "status")


def common_causes(obj: Object) -> Iterator[Cause]:
    """Yield what is wrong with an object's metadata."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, Mapping):
        yield Cause(
            "metadata", "is missing: give the object a metadata.name" if metadata is None else "must be an object"
        )
        return
    yield from metadata_causes(metadata, str(obj.get("kind")))


def namespace_of(obj: Object) -> str:
    """Return an object's namespace, where it will be when it names none."""
    metadata = obj.get("metadata")
    return str(metadata.get("namespace") or "default") if isinstance(metadata, Mapping) else "default"


def annotation(obj: Object, name: str) -> object:
    """Return an annotation's value, whatever stands there; None when there is none."""
    metadata = obj.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    return annotations.get(name) if isinstance(annotations, Mapping) else None


def unknown_fields(value: Mapping[str, Any], known: Collection[str], where: str = "") -> Iterator[Cause]:
    """Yield a mistake for every field that is not known here, with the nearest one that is."""
    for name in value:
        if name in known:
            continue
        nearest = difflib.get_close_matches(str(name), known, n=1)
        hint = f"did you mean {nearest[0]}?" if nearest else f"known here are {', '.join(known)}"
        yield Cause(f"{where}.{name}" if where else str(name), f"is not a field; {hint}")


def object_at(value: object, where: str, causes: list[Cause]) -> Mapping[str, Any] | None:
    """Return an object, or None and a mistake."""
    if isinstance(value, Mapping):
        return value
    causes.append(Cause(where, "is missing" if value is None else f"must be an object, not {type_name(value)}"))
    return None


def list_at(value: object, where: str, causes: list[Cause]) -> list[Any]:
    """Return a list; where it is none, an empty one and a mistake."""
    if isinstance(value, list | tuple):
        return list(value)
    causes.append(Cause(where, "is missing" if value is None else f"must be a list, not {type_name(value)}"))
    return []


def text_at(value: object, where: str, causes: list[Cause]) -> str:
    """Return a text that is not empty; where it is none, an empty one and a mistake."""
    if isinstance(value, str) and value:
        return value
    if value is None or value == "":
        causes.append(Cause(where, "is missing"))
    else:
        causes.append(Cause(where, f"must be text, not {type_name(value)}; write it with quotes"))
    return ""
