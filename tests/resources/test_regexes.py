"""Which regular expressions a proxy can be given, and what they match (D5)."""

import pytest

from headgate.resources.regexes import fault, matches


@pytest.mark.parametrize("pattern", ["", ".*Firefox.*", "[a-z]{900}", "/a(b|c)+", r"(?i)yes", r"\pL+"])
def test_re2_syntax_is_sound(pattern):
    assert fault(pattern) == ""


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(", "missing )"),
        ("a)(b", "unexpected )"),
        (r"(a)\1", "RE2 syntax"),
        ("(?=a)", "RE2 syntax"),
        ("a" * 1025, "at most 1024"),
        (r"\pL{300}", "use smaller repetitions"),
    ],
)
def test_what_re2_can_not_do_is_named(pattern, words):
    assert words in fault(pattern)


def test_all_of_a_text_must_match():
    assert matches("a.c", "abc")
    assert not matches("a.c", "abcd")
