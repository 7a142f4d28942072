"""Paths that applications interpret differently: access rules with a condition on the path allow none of them (D21).

Nor do proxies forward them where an authorization server decides about some paths only.
"""

from headgate.resources.regexes import matches

AMBIGUOUS_PATH = (
    r"//|/\.\.?(?:[/;]|%3[bB]|$)|\\"  # an empty segment; `.` and `..`, also with parameters; a backslash
    r"|%(?:2[eEfF]|5[cC]|00"  # these, escaped; a character that ends a text in C
    r"|25(?:[0-9a-fA-F]{2}|[uU])"  # escaped twice
    r"|[cC][01]|[eE]0%[89]|[fF]0%8"  # in more bytes than UTF-8 needs (%c0%ae is a dot to old decoders)
    r"|[^0-9a-fA-F]|[0-9a-fA-F](?:[^0-9a-fA-F]|$)|$)"  # no escape by RFC 3986, such as %u002e
)
"""A regular expression (RE2) that finds the parts of a path which applications interpret differently, in ASCII."""
_NOT_ASCII = r"[^\x00-\x7f]"
"""A byte that only HTTP/2 can carry in a path, against RFC 3986: decoders differ about those that are not UTF-8."""
WHOLE_AMBIGUOUS_PATH = f"(?s).*(?:{AMBIGUOUS_PATH}|{_NOT_ASCII}).*"
"""The same for matchers of the whole path."""
_NEEDLESS_ESCAPE = r"%(?:2[dDeE]|3[0-9]|[46][1-9a-fA-F]|[57][0-9aA]|5[fF]|7[eE])"
"""An escape of a character that needs none, such as `%61` (RFC 3986, 2.3: unreserved characters)."""
OTHER_SPELLING_IN_ASCII = f".*(?:{AMBIGUOUS_PATH}|{_NEEDLESS_ESCAPE}).*"
OTHER_SPELLING = f".*(?:{AMBIGUOUS_PATH}|{_NEEDLESS_ESCAPE}|{_NOT_ASCII}).*"
"""A regular expression for whole paths that applications may read as another path, by which no rule decides about them.

No client needs such a path; without `.` for line ends, which no path has, all proxies understand it.
"""


def is_ambiguous(path: str) -> bool:
    """Return whether applications may interpret a path in different ways, such as `/a/../b` (`AMBIGUOUS_PATH`)."""
    return matches(WHOLE_AMBIGUOUS_PATH, path)
