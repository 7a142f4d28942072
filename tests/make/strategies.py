"""Strategies for random objects that draw seldom: each draw of Hypothesis takes 0.1 ms, as long as it takes to compile a pod."""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from random import Random
from typing import Any, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")
ORDERS = st.integers(0, 2**16)
"""Seeds of `ordered`."""


def picked(*choices: Sequence[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    """Return a strategy for tuples with one value of each sequence, independent of each other, by one draw."""

    def values(number: int) -> Iterator[Any]:
        for values_of_one in choices:
            number, index = divmod(number, len(values_of_one))
            yield values_of_one[index]

    size = math.prod(map(len, choices))
    assert size <= 2**24, "Hypothesis prefers the small numbers of a larger range; draw twice"
    return st.integers(0, size - 1).map(lambda number: tuple(values(number)))


def subsets(values: Iterable[T], *, least: int = 0, most: int | None = None) -> list[tuple[T, ...]]:
    """Return all subsets with at least `least` and at most `most` values, for `picked` and `sampled_from`."""
    every = tuple(values)
    sizes = range(least, (len(every) if most is None else most) + 1)
    return [subset for size in sizes for subset in combinations(every, size)]


def ordered(values: Iterable[T], seed: int) -> list[T]:
    """Return the values in an order that depends on a drawn seed; 0 changes nothing, so that a minimal example is simple."""
    shuffled = list(values)
    if seed:
        Random(seed).shuffle(shuffled)
    return shuffled
