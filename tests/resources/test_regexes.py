"""Regular expressions that proxies accept, and what they match (D5)."""

import pytest

from headgate.resources.regexes import fault, matches


@pytest.mark.parametrize("pattern", ["", ".*Firefox.*", "[a-z]{900}", "/a(b|c)+", r"(?i)yes", r"\pL+"])
def test_expressions_in_re2_syntax_are_valid(pattern):
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
def test_an_expression_that_re2_does_not_support_is_rejected_with_the_reason(pattern, words):
    assert words in fault(pattern)


def test_an_expression_must_match_the_whole_text():
    assert matches("a.c", "abc")
    assert not matches("a.c", "abcd")
