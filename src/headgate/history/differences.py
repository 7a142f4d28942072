"""The fields in which two versions of an object differ."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headgate.history.records import object_in
from headgate.resources.revisions import ChangedField

_NAMED_BY = ("name", "service")
"""The fields that identify the items of a list, such as the backends of a split. Other items are compared by position."""


def differences(before: bytes | None, after: bytes | None) -> tuple[ChangedField, ...]:
    """Return the differing fields of two contents, in the order of the content; None is an object that does not exist."""
    old, new = (object_in(content) if content else {} for content in (before, after))
    hidden = ("apiVersion", "kind")
    bare = [{name: value for name, value in obj.items() if name not in hidden} for obj in (old, new)]
    if not before or not after:  # the name and the time of creation say nothing about the change
        for obj in bare:
            kept = {name: value for name, value in obj.get("metadata", {}).items() if name in ("labels", "annotations")}
            obj["metadata"] = kept
    return tuple(_of_mappings(bare[0], bare[1], ""))


def _of_mappings(before: Mapping[str, Any], after: Mapping[str, Any], path: str) -> Iterator[ChangedField]:
    for name in (*before, *(name for name in after if name not in before)):
        yield from _of_values(before.get(name), after.get(name), _joined(path, name))


def _of_values(before: Any, after: Any, path: str) -> Iterator[ChangedField]:
    if before == after:
        return
    if _is_either(before, after, Mapping):
        yield from _of_mappings(before or {}, after or {}, path)
    elif _is_either(before, after, list):
        yield from _of_lists(before or [], after or [], path)
    else:
        yield ChangedField(path=path, before=before, after=after)


def _is_either(before: Any, after: Any, shape: type) -> bool:
    """Return whether both values have a type, or one is missing and the other one is not empty."""
    values = [value for value in (before, after) if value is not None]
    return bool(values) and all(isinstance(value, shape) for value in values) and any(values)


def _of_lists(before: Sequence[Any], after: Sequence[Any], path: str) -> Iterator[ChangedField]:
    for field in _NAMED_BY:
        old, new = _named(before, field), _named(after, field)
        if old is not None and new is not None:
            yield from _of_items(old, new, path)
            if list(old) != list(new) and old.keys() == new.keys():
                yield ChangedField(path=f"{path} in order", before=list(old), after=list(new))
            return
    for index in range(max(len(before), len(after))):
        old_item, new_item = (items[index] if index < len(items) else None for items in (before, after))
        yield from _of_values(old_item, new_item, f"{path}[{index}]")


def _of_items(before: Mapping[str, Any], after: Mapping[str, Any], path: str) -> Iterator[ChangedField]:
    """Yield the differences of named items. Added and removed items are whole, and paired if they are equally many."""
    removed = [name for name in before if name not in after]
    added = [name for name in after if name not in before]
    successors = dict(zip(removed, added, strict=True)) if len(removed) == len(added) else {}
    for name, entry in before.items():
        if name in after:
            yield from _of_values(entry, after[name], f"{path}[{name}]")
        else:
            yield ChangedField(path=f"{path}[{name}]", before=entry, after=after.get(successors.get(name, "")))
    for name in () if successors else added:
        yield ChangedField(path=f"{path}[{name}]", before=None, after=after[name])


def _named(items: Sequence[Any], field: str) -> dict[str, Any] | None:
    """Return the items by the value of a field; None if an item lacks it or shares it with another one."""
    by_name = {str(entry[field]): entry for entry in items if isinstance(entry, Mapping) and field in entry}
    return by_name if len(by_name) == len(items) else None


def _joined(path: str, name: str) -> str:
    if "." in name or "/" in name:
        return f'{path}["{name}"]'
    return f"{path}.{name}" if path else name
