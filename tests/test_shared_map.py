from hypothesis import given
from hypothesis import strategies as st

from headgate.shared_map import SharedMap, replaced

CONTENT = st.dictionaries(st.integers(0, 300), st.integers(0, 3), max_size=200)


@given(CONTENT, CONTENT, st.lists(st.integers(0, 300)))
def test_an_edited_map_has_the_content_of_an_edited_dict(
    before: dict[int, int], new: dict[int, int], gone: list[int]
) -> None:
    original = SharedMap(before)
    edited = original.edited(new, gone)
    expected = {key: value for key, value in {**before, **new}.items() if key not in gone}
    assert edited == expected
    assert dict(edited.items()) == expected
    assert sorted(edited.values()) == sorted(expected.values())
    assert (len(edited), sorted(edited)) == (len(expected), sorted(expected))
    assert all(edited[key] == value and key in edited for key, value in expected.items())
    assert original == before


@given(CONTENT, CONTENT)
def test_the_edits_from_one_map_to_another_are_found(before: dict[int, int], now: dict[int, int]) -> None:
    expected = {key: value for key, value in now.items() if key not in before or before[key] is not value}
    for one, other in ((SharedMap(before), SharedMap(now)), (before, now), (SharedMap(before), now)):
        new, gone = replaced(one, other)
        assert (new, sorted(gone)) == (expected, sorted(before.keys() - now.keys()))
    assert SharedMap(before).edited(*replaced(before, now)) == SharedMap(now)


@given(CONTENT)
def test_an_edit_without_an_effect_returns_the_same_map(content: dict[int, int]) -> None:
    found = SharedMap(content)
    assert found.edited(content, [1000]) is found
