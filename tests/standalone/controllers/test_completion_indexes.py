import pytest

from headgate.standalone.controllers.completion_indexes import from_text, to_text


@pytest.mark.parametrize(
    ("indexes", "text"),
    [((), ""), ((4,), "4"), ((1, 2), "1,2"), ((0, 1, 2, 5), "0-2,5"), ((7, 3, 4, 5, 9), "3-5,7,9")],
)
def test_indexes_are_written_as_kubernetes_writes_them(indexes, text):
    assert to_text(indexes) == text
    assert from_text(text, below=10) == frozenset(indexes)


def test_malformed_parts_of_a_status_are_skipped():
    assert from_text("1,x,3-,-4,5-6", below=10) == {1, 3, 5, 6}


def test_indexes_end_at_the_number_of_completions():
    assert from_text("1,3-9999999999", below=5) == {1, 3, 4}
