"""The stages that a compiler keeps between runs."""

from headgate.memo import Indexes, Stages

NONE: tuple[int, ...] = ()


def appended(last: tuple[int, ...], number: int) -> tuple[int, ...]:
    return (*last, number)


def test_a_series_continues_its_last_result_and_keeps_it_while_the_input_is_equal() -> None:
    stages = Stages()
    first = stages.following(appended, NONE, 1)
    assert first == (1,)
    assert stages.following(appended, NONE, 1) is first
    assert stages.following(appended, NONE, 2) == (1, 2)


def test_parts_of_a_stage_are_series_of_their_own() -> None:
    stages = Stages()
    assert stages.following(appended, NONE, 1, part="one") == (1,)
    assert stages.following(appended, NONE, 2, part="other") == (2,)
    assert stages.following(appended, NONE, 3, part="one") == (1, 3)


def test_a_fork_continues_the_series_without_a_change_to_the_original() -> None:
    stages = Stages()
    stages.following(appended, NONE, 1)
    assert stages.fork().following(appended, NONE, 2) == (1, 2)
    assert stages.following(appended, NONE, 3) == (1, 3)


def test_an_index_is_computed_again_only_when_one_of_its_parts_has_changed() -> None:
    indexes, calls = Indexes(), list[str]()

    def names() -> str:
        calls.append("computed")
        return "names"

    parts = frozenset({"pods", "services"})
    assert indexes.get("names", parts, names) == indexes.get("names", parts, names) == "names"
    assert len(calls) == 1
    indexes.unchanged({"pods", "services", "slices"}).get("names", parts, names)
    assert len(calls) == 1
    indexes.unchanged({"pods"}).get("names", parts, names)
    assert len(calls) == 2
