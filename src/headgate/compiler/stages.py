"""The results of the last compilation, which the next one reuses where the input of a stage is the same."""

from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple, TypeVar, TypeVarTuple

A = TypeVarTuple("A")
K = TypeVar("K")
R = TypeVar("R")
S = TypeVar("S")
V = TypeVar("V")


class _Items(NamedTuple):
    """The input of a stage with many items of the same kind, and its results."""

    shared: Any
    items: Mapping[Any, Any]
    results: Mapping[Any, Any]


_NO_ITEMS = _Items(None, {}, {})
_MISSING = object()


class Stages:
    """Runs stages: pure functions of immutable values. A stage whose arguments are unchanged keeps its last result.

    If a new result equals the last one, the last object is returned, so that later comparisons are fast.
    """

    def __init__(self) -> None:
        self._results: dict[object, dict[Any, tuple[Any, Any]]] = {}
        self._items: dict[tuple[object, ...], _Items] = {}

    def fork(self) -> "Stages":
        """Return stages that begin with these results, and change none of them: results are replaced, never changed."""
        found = Stages()
        found._results, found._items = self._results.copy(), self._items.copy()
        return found

    def once(self, stage: Callable[[*A], R], *values: *A) -> R:
        """Return the result of a stage."""
        return self.each(stage, {None: values})[0]

    def each(self, stage: Callable[[*A], R], wanted: Mapping[Any, tuple[*A]]) -> list[R]:
        """Return the results of a stage for several arguments, in their order. Keys identify results of the last run."""
        last, known = self._results.get(stage, {}), dict[Any, tuple[tuple[*A], R]]()
        for key, values in wanted.items():
            before = last.get(key)
            if before is None:
                known[key] = values, stage(*values)
            elif before[0] == values:
                known[key] = before
            else:
                result = stage(*values)
                known[key] = values, before[1] if before[1] == result else result
        self._results[stage] = known
        return [result for _, result in known.values()]

    def each_item(
        self, stage: Callable[[S, K, V], R], shared: S, items: Mapping[K, V], *part: Hashable
    ) -> Mapping[K, R]:
        """Return the result of `stage(shared, key, item)` for each item, in an arbitrary order.

        An unchanged item is the same object as in the last run: comparing 3,000 of them takes 0.2 ms. If all results are
        unchanged, the same mapping is returned. `part` distinguishes several runs of a stage in one compilation.
        """
        last = self._items.get((stage, *part), _NO_ITEMS)
        same_shared = last.shared is shared or last.shared == shared
        if same_shared and last.items is items:
            return last.results
        known = last.items if same_shared else {}
        new: dict[K, R] = {}
        for key, item in items.items():
            if known.get(key, _MISSING) is not item:
                result = stage(shared, key, item)
                if last.results.get(key, _MISSING) != result:
                    new[key] = result
        gone = last.results.keys() - items.keys()
        results: Mapping[K, R] = last.results
        if new or gone:
            results = {**last.results, **new}
            for key in gone:
                del results[key]
        self._items[stage, *part] = _Items(shared, items, results)
        return results
