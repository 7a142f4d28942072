"""Results of pure functions, which the next run reuses where the input is the same.

`Stages` keeps those of a compilation: once, for each key, for each item of a mapping, or as a series. `Indexes` keeps what is computed
of a value on first use. `LastBuilds` keeps what a build of configurations has used, by key.

The caches of functools remain for functions whose arguments are small values, and whose results do not depend on a run: parsed
texts and certificates, encoded messages, and documents that a process makes once.
"""

from collections.abc import Callable, Hashable, Mapping
from collections.abc import Set as AbstractSet
from itertools import zip_longest
from typing import Any, Generic, NamedTuple, TypeVar, TypeVarTuple

from headgate.shared_map import SharedMap, replaced

A = TypeVarTuple("A")
K = TypeVar("K")
R = TypeVar("R")
S = TypeVar("S")
V = TypeVar("V")


class _Items(NamedTuple):
    """The input of a stage with many items of the same kind, and its results."""

    shared: Any
    items: Mapping[Any, Any]
    results: SharedMap[Any, Any]


_NO_ITEMS = _Items(None, {}, SharedMap())


class Stages:
    """Runs stages: pure functions of immutable values. A stage whose arguments are unchanged keeps its last result.

    If a new result equals the last one, the last object is returned, so that later comparisons are fast.
    """

    def __init__(self) -> None:
        self._results: dict[object, dict[Any, tuple[Any, Any]]] = {}
        self._items: dict[tuple[object, ...], _Items] = {}
        self._series: dict[tuple[object, Hashable], tuple[Any, Any]] = {}
        self._unions: dict[str, tuple[tuple[SharedMap[Any, Any], ...], SharedMap[Any, Any]]] = {}

    def fork(self) -> "Stages":
        """Return stages that begin with these results, and change none of them: results are replaced, never changed."""
        fork = Stages()
        fork._results, fork._items = self._results.copy(), self._items.copy()
        fork._series, fork._unions = self._series.copy(), self._unions.copy()
        return fork

    def once(self, stage: Callable[[*A], R], *values: *A) -> R:
        """Return the result of a stage."""
        return self.each(stage, {None: values})[0]

    def each(self, stage: Callable[[*A], R], arguments: Mapping[Any, tuple[*A]]) -> list[R]:
        """Return the results of a stage for several arguments, in their order. Keys identify results of the last run."""
        last, results = self._results.get(stage, {}), dict[Any, tuple[tuple[*A], R]]()
        for key, values in arguments.items():
            before = last.get(key)
            if before is None:
                results[key] = values, stage(*values)
            elif before[0] == values:
                results[key] = before
            else:
                result = stage(*values)
                results[key] = values, before[1] if before[1] == result else result
        self._results[stage] = results
        return [result for _, result in results.values()]

    def each_item(
        self, stage: Callable[[S, K, V], R | None], shared: S, items: Mapping[K, V], *part: Hashable
    ) -> SharedMap[K, R]:
        """Return the result of `stage(shared, key, item)` for each item; a result of None is left out.

        An unchanged item is the same object as in the last run. If all results are unchanged, the same mapping is
        returned. `part` distinguishes several runs of a stage in one compilation.
        """
        last = self._items.get((stage, *part), _NO_ITEMS)
        same_shared = last.shared is shared or last.shared == shared
        if same_shared and last.items is items:
            return last.results
        changed, gone = replaced(last.items if same_shared else {}, items)
        if not same_shared:
            gone = [key for key in last.results if key not in items]
        new: dict[K, R] = {}
        for key, value in changed.items():
            result = stage(shared, key, value)
            if result is None:
                gone.append(key)
            elif last.results.get(key) != result:
                new[key] = result
        results = last.results.edited(new, gone)
        self._items[stage, *part] = _Items(shared, items, results)
        return results

    def following(self, stage: Callable[[R, *A], R], first: R, *values: *A, part: Hashable = None) -> R:
        """Return the result of `stage(last, *values)`, or its last result if the values are equal.

        `last` is the last result, at first `first`: the stage returns what is unchanged in it as the same objects. `part`
        distinguishes several runs of a stage in one compilation.
        """
        before: tuple[tuple[*A] | None, R] = self._series.get((stage, part), (None, first))
        if before[0] == values:
            return before[1]
        result = stage(before[1], *values)
        self._series[stage, part] = values, result
        return result

    def united(self, name: str, *maps: SharedMap[K, V]) -> SharedMap[K, V]:
        """Return the items of several maps; no key is in two of them."""
        before, united = self._unions.get(name, ((), SharedMap[K, V]()))
        for old, now in zip_longest(before, maps, fillvalue=SharedMap[K, V]()):
            united = united.edited(*replaced(old, now))
        self._unions[name] = maps, united
        return united


class Indexes:
    """Results that are computed on first use from parts of one value, such as the objects of some kinds in a snapshot."""

    def __init__(self) -> None:
        self._results: dict[Hashable, tuple[AbstractSet[Hashable], Any]] = {}

    def get(self, key: Hashable, parts: AbstractSet[Hashable], compute: Callable[[], R]) -> R:
        """Return the result with a key. `parts` has all parts of the value from which it is computed."""
        if key not in self._results:
            self._results[key] = parts, compute()
        result: R = self._results[key][1]
        return result

    def unchanged(self, same: AbstractSet[Hashable]) -> "Indexes":
        """Return the indexes of another value whose parts `same` equal those of this one."""
        kept = Indexes()
        kept._results = {key: entry for key, entry in self._results.copy().items() if entry[0] <= same}
        return kept


class LastBuilds(Generic[R]):
    """The results of the current build and of the previous one, by key."""

    def __init__(self) -> None:
        self.now: dict[Hashable, R] = {}
        self.last: dict[Hashable, R] = {}

    def begin_build(self) -> None:
        """Begin a new build, and drop results that the previous build did not use."""
        self.last, self.now = self.now, {}

    def get(self, key: Hashable) -> R | None:
        """Return the result of the current build, else of the previous build, else None."""
        result = self.now.get(key)
        return self.last.get(key) if result is None else result
