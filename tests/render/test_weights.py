"""Weights of servers have exactly the ratios of the shares."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from headgate.render.weights import server_weights


def test_weights_are_reduced_by_their_greatest_common_divisor() -> None:
    assert server_weights({"web": (10, ["a"]), "next": (90, ["b", "c"])}) == {
        "web": (("a", 2),),
        "next": (("b", 9), ("c", 9)),
    }


def test_a_backend_without_servers_has_no_weight() -> None:
    assert server_weights({"web": (3, []), "next": (2, ["a"])}) == {"web": (), "next": (("a", 1),)}


@given(st.lists(st.tuples(st.integers(1, 2**30), st.integers(1, 7)), min_size=1, max_size=5))
def test_each_backend_gets_its_share_and_each_of_its_servers_the_same_part(shares: list[tuple[int, int]]) -> None:
    found = server_weights(
        {
            index: (weight, [f"{index}.{number}" for number in range(count)])
            for index, (weight, count) in enumerate(shares)
        }
    )
    whole, total = sum(weight for weight, _ in shares), sum(weight for item in found.values() for _, weight in item)
    for index, (weight, count) in enumerate(shares):
        assert [Fraction(part, total) for _, part in found[index]] == [Fraction(weight, whole * count)] * count
