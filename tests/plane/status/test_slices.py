"""The slices with which the status writer limits its share of the CPU, with a clock that tests advance."""

from headgate.plane.status.slices import PAUSE_FACTOR, SETTLE_SECONDS, SLICE_SECONDS, Slice


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_pause_after_a_slice_is_a_multiple_of_its_work_without_the_time_in_which_it_waits() -> None:
    clock, work = Clock(), Clock()
    current = Slice(clock, work)
    assert current.pause() == SETTLE_SECONDS
    clock.now += 60.0
    work.now += 2.0
    current.end()
    assert current.pause() == PAUSE_FACTOR * 2.0
    clock.now += PAUSE_FACTOR * 2.0
    assert current.pause() == SETTLE_SECONDS


def test_a_slice_ends_after_its_fixed_length() -> None:
    clock = Clock()
    current = Slice(clock)
    assert not current.is_over
    clock.now += 2 * SLICE_SECONDS
    assert current.is_over
