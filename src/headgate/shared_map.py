"""An immutable mapping for many items of which few change: two versions share the parts without a change."""

from collections.abc import ItemsView, Iterable, Iterator, Mapping, ValuesView
from itertools import chain, compress, filterfalse, repeat
from operator import is_not
from typing import Any, TypeVar

K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)
W = TypeVar("W")
_MASK = 63  # the number of parts, minus one
_MISSING = object()
_EMPTY: tuple[dict[Any, Any], ...] = ({},) * (_MASK + 1)
"""The parts of every empty map: no part is ever changed, so a comparison skips those that two maps lack."""


class SharedMap(Mapping[K, V_co]):
    """An immutable mapping of 64 dicts; an item is in the part that the hash of its key selects.

    `edited` copies only the parts that change, and `replaced` compares only the parts that are different objects. With
    3,000 items, an edit takes 3 us and a comparison 5 us; the comparison of two dicts takes 250 us. The order of the items
    is arbitrary.
    """

    __slots__ = ("parts",)

    def __init__(self, content: Mapping[K, V_co] | None = None) -> None:
        self.parts: tuple[dict[K, V_co], ...] = _EMPTY
        if content:
            self.parts = content.parts if isinstance(content, SharedMap) else self.edited(content).parts

    def edited(self, new: Mapping[K, W], gone: Iterable[K] = ()) -> "SharedMap[K, V_co | W]":
        """Return a copy in which `new` items are added or replaced, and those with the keys `gone` are missing.

        Returns this object if nothing changes.
        """
        parts: list[dict[K, Any]] = list(self.parts)
        copied = set()
        for key, value in chain(new.items(), ((key, _MISSING) for key in gone)):
            index = hash(key) & _MASK
            if parts[index].get(key, _MISSING) is value:
                continue
            if index not in copied:
                copied.add(index)
                parts[index] = parts[index].copy()
            if value is _MISSING:
                del parts[index][key]
            else:
                parts[index][key] = value
        if not copied:
            return self
        edited: SharedMap[K, V_co | W] = SharedMap()
        edited.parts = tuple(parts)
        return edited

    def pairs_of_parts(self, before: Mapping[K, object]) -> Iterable[tuple[Mapping[K, object], Mapping[K, V_co]]]:
        """Return the parts of `before` and of this mapping that may differ."""
        if isinstance(before, SharedMap):
            return [(old, now) for old, now in zip(before.parts, self.parts, strict=True) if old is not now]
        return [(before, self)]

    def __getitem__(self, key: K) -> V_co:
        return self.parts[hash(key) & _MASK][key]

    def get(self, key: K, default: Any = None) -> Any:
        """Return the value of a key, or the default."""
        return self.parts[hash(key) & _MASK].get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self.parts[hash(key) & _MASK]

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(self.parts)

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def items(self) -> ItemsView[K, V_co]:
        """Return the items."""
        return _Items(self)

    def values(self) -> ValuesView[V_co]:
        """Return the values."""
        return _Values(self)

    def __eq__(self, other: object) -> bool:
        return self.parts == other.parts if isinstance(other, SharedMap) else super().__eq__(other)

    def __hash__(self) -> int:
        return hash(frozenset(self.items()))

    def __repr__(self) -> str:
        return f"SharedMap({dict(self)!r})"


class _Items(ItemsView[K, V_co]):
    _mapping: SharedMap[K, V_co]

    def __iter__(self) -> Iterator[tuple[K, V_co]]:
        return chain.from_iterable(part.items() for part in self._mapping.parts)


class _Values(ValuesView[V_co]):
    _mapping: SharedMap[Any, V_co]

    def __iter__(self) -> Iterator[V_co]:
        return chain.from_iterable(part.values() for part in self._mapping.parts)


def replaced(before: Mapping[K, object], now: Mapping[K, W]) -> tuple[dict[K, W], list[K]]:
    """Return the items of `now` that are not the same objects in `before`, and the keys that are only in `before`."""
    new: dict[K, W] = {}
    gone: list[K] = []
    for old, current in now.pairs_of_parts(before) if isinstance(now, SharedMap) else [(before, now)]:
        # functions in C only: twice as fast as a loop
        new.update(compress(current.items(), map(is_not, current.values(), map(old.get, current, repeat(_MISSING)))))
        gone += filterfalse(current.__contains__, old)
    return new, gone
