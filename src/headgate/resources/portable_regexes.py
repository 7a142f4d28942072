"""The portable subset of regular expressions of the Gateway API: extended expressions of POSIX with exceptions (GEP-4359)."""

import re

_TOKEN = re.compile(
    r"""
    (?P<repetition> [*+?] | \{\d+(?:,\d*)?\} )
    | (?P<start> \((?!\?) | [|^] )
    | \\[][.\\()*+?{}|^$]
    | \[ \^? (?: \\[][.\\()*+?{}|^$-] | [^][\\] )+ \]
    | [^\\[({*+?|^]
    """,
    re.VERBOSE,
)
_EMPTY = ("|", "(|", "||", "()")
"""How an empty alternative begins. The last one of a group may be empty: `^colo(u|)r$` is an example of the document."""
_PRINTABLE = re.compile(r"[\t -~]*")


def portability_fault(pattern: str) -> str:
    """Return why other implementations of the Gateway API may read a valid expression in another way; empty if none does."""
    if not _PRINTABLE.fullmatch(pattern):
        return "it has characters other than printable ones of ASCII"
    position, can_repeat, before = 0, False, ""
    while position < len(pattern):
        token = _TOKEN.match(pattern, position)
        if token is None:
            return f"'{pattern[position:][:4]}' is an extension of the syntax"
        if token["repetition"] and not can_repeat:
            return f"the repetition '{token[0]}' follows no expression, or another repetition"
        if before + token[0] in _EMPTY or pattern[position:] == "|":
            return f"an alternative at '{pattern[max(position - 1, 0) :][:4]}' is empty; use '?' instead"
        can_repeat = not (token["repetition"] or token["start"])
        position, before = token.end(), token[0]
    return ""
