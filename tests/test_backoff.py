"""The pauses between repeated attempts."""

from itertools import islice

from headgate.backoff import FIRST_S, LONGEST_S, pauses


def test_pauses_double_up_to_the_longest_and_half_of_each_is_random() -> None:
    for number, pause in enumerate(islice(pauses(), 20)):
        longest = min(FIRST_S * 2**number, LONGEST_S)
        assert longest / 2 <= pause <= longest
    assert len({next(pauses()) for _ in range(20)}) > 1
