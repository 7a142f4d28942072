"""Parts of the checks that every kind shares. They look at values of any type: what is mistyped, the schema's check names."""

from collections.abc import Iterator, Mapping
from typing import Any

from headgate.errors import Cause
from headgate.resources.meta import Object
from headgate.resources.names import metadata_causes


def common_causes(obj: Object) -> Iterator[Cause]:
    """Yield what is wrong with an object's metadata."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, Mapping):
        yield Cause(
            "metadata", "is missing: give the object a metadata.name" if metadata is None else "must be an object"
        )
        return
    yield from metadata_causes(metadata, str(obj.get("kind")))


def rows(value: object) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the objects in what should be a list, with their places."""
    for index, item in enumerate(value if isinstance(value, list | tuple) else ()):
        if isinstance(item, Mapping):
            yield index, item


def part(value: object, name: str) -> Mapping[str, Any]:
    """Return a field that should be an object; an empty one where it is none."""
    found = value.get(name) if isinstance(value, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def namespace_of(obj: Object) -> str:
    """Return an object's namespace, where it will be when it names none."""
    return str(part(obj, "metadata").get("namespace") or "default")


def annotation(obj: Object, name: str) -> object:
    """Return an annotation's value, whatever stands there; None when there is none."""
    return part(part(obj, "metadata"), "annotations").get(name)
