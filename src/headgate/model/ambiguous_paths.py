"""Paths that applications interpret differently: access rules with a condition on the path allow none of them (D21)."""

from headgate.resources.regexes import matches

AMBIGUOUS_PATH = (
    r"//|/\.\.?(?:[/;]|%3[bB]|$)|\\"  # an empty segment; `.` and `..`, also with parameters; a backslash
    r"|%(?:2[eEfF]|5[cC]|00"  # these, escaped; a character that ends a text in C
    r"|25(?:[0-9a-fA-F]{2}|[uU])"  # escaped twice
    r"|[cC][01]|[eE]0%[89]|[fF]0%8"  # in more bytes than UTF-8 needs (%c0%ae is a dot to old decoders)
    r"|[^0-9a-fA-F]|[0-9a-fA-F](?:[^0-9a-fA-F]|$)|$)"  # no escape by RFC 3986, such as %u002e
)
"""A regular expression (RE2) that finds the parts of a path which applications interpret differently."""
WHOLE_AMBIGUOUS_PATH = f"(?s).*(?:{AMBIGUOUS_PATH}).*"
"""The same for matchers of the whole path."""


def is_ambiguous(path: str) -> bool:
    """Return whether applications may interpret a path in different ways, such as `/a/../b` (`AMBIGUOUS_PATH`)."""
    return matches(WHOLE_AMBIGUOUS_PATH, path)
