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
        ("(abcdefghijkl){900}", "use smaller repetitions"),
    ],
)
def test_an_expression_that_re2_does_not_support_is_rejected_with_the_reason(pattern, words):
    assert words in fault(pattern)


def test_an_expression_must_match_the_whole_text():
    assert matches("a.c", "abc")
    assert not matches("a.c", "abcd")


@pytest.mark.parametrize(
    ("pattern", "text"),
    [("/..", "/é"), ("/é", "/é"), (r"/\xc3[\xa0-\xbf]", "/é"), ("/.", "/\udcff"), (".*", "/\udcc0\udcae"), ("☺+", "☺")],
)
def test_expressions_match_bytes(pattern, text):
    assert matches(pattern, text)


def test_a_dot_is_not_a_character_of_two_bytes():
    assert not matches("/.", "/é")


def test_a_character_by_its_number_is_rejected_if_it_is_no_byte():
    """Envoy would reject all routes of the host."""
    assert fault(r"\x{e9}") == ""
    assert "invalid escape sequence" in fault(r"\x{263a}")
