"""Expressions agree with RE2, and a search finds a text or proves that there is none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.matching.patterns import Parser, common_start
from headgate.matching.regular import OUTSIDE, Algebra, TextPosition, find_text, side_of
from headgate.matching.undecided import Exhausted, Undecided, Work
from headgate.resources.regexes import fault, matches

ATOMS = (
    *("a", "b", "/", "1", "A", ".", "[a-c]", "[^a]", "\\d", "\\w", "(?i:a)", "(a|b)", "\\b", "\\B", "^", "$", "\\pL"),
    *(
        "[[:alpha:]]",
        "\\x41",
        "\\Qa.b\\E",
        "(?:a|)",
        "(/|$)",
        "-",
        " ",
        "k",
        "[/a]",
        "\\.",
        "\\C",
        "(?i)",
        "(?-i)",
        "é",
    ),
)
REPETITIONS = ("", "", "", "*", "+", "?", "{2}", "{0,2}", "{1,}", "*?")
PARTS = st.tuples(st.sampled_from(ATOMS), st.sampled_from(REPETITIONS)).map("".join)
SEQUENCES = st.lists(PARTS, max_size=6).map("".join)
PATTERNS = st.lists(SEQUENCES, min_size=1, max_size=2).map("|".join).filter(lambda pattern: not fault(pattern))
TEXTS = st.text("ab/1A-. kB", max_size=6)
STEPS = 200_000


def parsed(algebra, pattern):
    """Return a pattern as an expression; None for syntax that the parser does not know."""
    try:
        return Parser(algebra, pattern).parse()
    except Undecided:
        return None


def accepts(algebra, node, text):
    before = OUTSIDE
    for item in text:
        node = algebra.derivative(node, ord(item), before)
        before = side_of(ord(item))
    return algebra.nullable(node, TextPosition(before, OUTSIDE))


@given(PATTERNS, st.lists(TEXTS, min_size=5, max_size=20))
def test_an_expression_matches_the_texts_that_re2_matches(pattern, texts):
    algebra = Algebra()
    node = parsed(algebra, pattern)
    if node is not None:
        assert [accepts(algebra, node, text) for text in texts] == [matches(pattern, text) for text in texts]


@given(PATTERNS, PATTERNS, st.lists(TEXTS, max_size=20))
def test_a_found_text_fits_and_none_exists_if_none_is_found(wanted, unwanted, texts):
    algebra = Algebra()
    nodes = parsed(algebra, wanted), parsed(algebra, unwanted)
    if None in nodes:
        return
    found = find_text(algebra, nodes[:1], nodes[1:], Work(STEPS))
    if found is None:
        assert not any(matches(wanted, text) and not matches(unwanted, text) for text in texts)
    else:
        assert matches(wanted, found)
        assert not matches(unwanted, found)


@pytest.mark.parametrize(
    ("wanted", "unwanted", "text"),
    [
        (["/a.*", ".*b"], ["/ab"], "/aab"),
        (["/[a-z]+"], ["/[a-m].*", "/[n-z].*"], None),
        (["/a*"], ["/(aa)*"], "/a"),
        (["(?i)/api"], ["/api", "/.*[A-Z].*"], None),
        ([".*\\bfoo\\b.*"], ["foo.*", ".*foo", ".*/.*"], "-foo-"),
    ],
)
def test_a_search_answers_questions_about_several_expressions(wanted, unwanted, text):
    algebra = Algebra()
    both = [[Parser(algebra, pattern).parse() for pattern in patterns] for patterns in (wanted, unwanted)]
    assert find_text(algebra, *both, Work(STEPS)) == text


@pytest.mark.parametrize(
    ("pattern", "text"), [("/\\xe9x", "/\udce9x"), ("/(?:é|è)", "/è"), ("/é\\xffb.*", "/é\udcffbc"), ("/é.*", "/éa")]
)
def test_all_matches_of_an_expression_begin_with_its_common_start(pattern: str, text: str) -> None:
    assert matches(pattern, text)
    assert text.startswith(common_start(pattern))


def test_a_search_ends_when_its_steps_are_used_up():
    algebra = Algebra()
    wanted = Parser(algebra, "(a|b)*a(a|b){14}").parse()
    unwanted = Parser(algebra, "(a|b)*").parse()
    with pytest.raises(Exhausted):
        find_text(algebra, [wanted], [unwanted], Work(2000))
