"""The portable subset of regular expressions (GEP-4359)."""

import pytest

from headgate.resources.portable_regexes import portability_fault
from headgate.resources.regexes import fault

PORTABLE = [
    "",
    r"^(https?://)?www\.example\.(com|org)$",
    "a*",
    "^colo(u|)r$",
    "^colou{0,1}r$",
    r"\*+",
    "[a-zA-Z0-9.]",
    "^[^^]$",
    "^[-a]$",
    "^[a-]$",
    r"^[-.*(){}|^$\\]$",
    r"^[\-\.\*\(\)\{\}\|\^\$\\]$",
    r"[\]]",
    "a{2}b{2,}",
    "(a+)?",
    "/[a-z]+/.*",
    r"\(|\||a",
    "[(|]|a",
    "^(a|b|)$",
]
"""Those of the document's examples, and further ones."""


@pytest.mark.parametrize("pattern", PORTABLE)
def test_expressions_of_the_subset_are_portable_and_valid_in_envoy(pattern: str) -> None:
    assert portability_fault(pattern) == ""
    assert fault(pattern) == ""


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (r"/v\d+", r"'\d+' is an extension"),
        (r"[\w-]+", "is an extension"),
        (r"\/a", r"'\/a' is an extension"),
        (r"\x41", r"'\x41' is an extension"),
        ("(?i)yes", "'(?i)' is an extension"),
        ("(?P<name>a)", "'(?P<' is an extension"),
        ("a*?", "the repetition '?' follows no expression, or another repetition"),
        ("a{1,2}?", "or another repetition"),
        ("^*", "follows no expression"),
        ("a{,2}", "'{,2}' is an extension"),
        ("[[:alpha:]]", "is an extension"),
        ("[]a]", "is an extension"),
        ("(|/.*)", "an alternative at '(|/.' is empty"),
        ("a||b", "an alternative at '||b' is empty"),
        ("(a||b)", "is empty"),
        ("|a", "an alternative at '|a' is empty"),
        ("a|", "an alternative at 'a|' is empty"),
        ("()", "an alternative at '()' is empty"),
        ("ä", "printable"),
        ("a\nb", "printable"),
    ],
)
def test_other_expressions_that_envoy_takes_are_named_with_the_reason(pattern: str, words: str) -> None:
    assert words in portability_fault(pattern)
    assert fault(pattern) == ""
