"""Find differences between manifest files and the store before the files are applied, and say which value wins."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from headgate.errors import NotFound
from headgate.manifests.apply import (
    APPLIED_FROM,
    applied_objects,
    is_applied,
    is_covered,
    last_applied,
    without_server_fields,
)
from headgate.manifests.files import Manifest, Manifests
from headgate.objects.ports import Store
from headgate.resources.meta import Object, annotations_of


class _Difference(NamedTuple):
    """A field with its value in the file and in the store; None if it is missing."""

    field: str
    written: Any
    stored: Any


async def drift(store: Store, manifests: Manifests) -> list[str]:
    """Return a sentence for each field that was edited in the store, and for each directory that headgate does not read now."""
    sentences: list[str] = []
    for manifest in manifests.objects:
        try:
            stored = await store.get(manifest.key)
        except NotFound:
            continue
        sentences += _edited(manifest, stored)
    return [*sentences, *await _unread(store, manifests)]


def _edited(manifest: Manifest, stored: Object) -> Iterator[str]:
    keeps = is_applied(stored, manifest)
    before = last_applied(stored, manifest.kind)
    for field, written, value in _differences(without_server_fields(manifest.object), stored):
        if not keeps and (not before or _contains(value, _at(before, field))):
            continue  # only the file has changed
        wins = "the API's value stays until this file changes" if keeps else "the file has changed, so its value wins"
        yield str(
            manifest.problem(
                field, f"{manifest.key}: the file says {json.dumps(written)}, the API {json.dumps(value)}; {wins}"
            )
        )


def _differences(written: Mapping[str, Any], stored: Mapping[str, Any], path: str = "") -> Iterator[_Difference]:
    """Yield the fields of `written` that differ in `stored`. Fields that only `stored` has are defaults or additions."""
    for name, value in written.items():
        field = f"{path}.{name}" if path else name
        if field == "metadata.annotations":
            continue  # headgate and kubectl write annotations about the applied manifest
        now = stored.get(name)
        if isinstance(value, Mapping) and isinstance(now, Mapping):
            yield from _differences(value, now, field)
        elif not _contains(now, value):
            yield _Difference(field, value, now)


def _contains(stored: Any, written: Any) -> bool:
    """Return whether a stored value equals the written value, apart from fields that the store added."""
    if isinstance(written, Mapping) and isinstance(stored, Mapping):
        return all(name in stored and _contains(stored[name], value) for name, value in written.items())
    if isinstance(written, list) and isinstance(stored, list):
        return len(written) == len(stored) and all(map(_contains, stored, written))
    return bool(stored == written)


def _at(obj: Any, field: str) -> Any:
    for name in field.split("."):
        obj = obj.get(name) if isinstance(obj, Mapping) else None
    return obj


async def _unread(store: Store, manifests: Manifests) -> list[str]:
    """Return a sentence for each directory whose objects are in the store and that headgate does not read now."""
    files = [annotations_of(obj)[APPLIED_FROM] for obj in await applied_objects(store, manifests.kinds)]
    counts = Counter(str(Path(file).parent) for file in files if not is_covered(file, manifests))
    return [
        f"headgate does not read {directory} now, so it will not delete {number} object{'s' if number > 1 else ''} from files "
        f"in this directory; delete {'them' if number > 1 else 'it'} with kubectl, or use a separate state directory with --state"
        for directory, number in sorted(counts.items())
    ]
