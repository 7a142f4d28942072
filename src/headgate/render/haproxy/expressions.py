"""Translate regular expressions from RE2, the dialect of the model, to PCRE2, the dialect of HAProxy.

HAProxy compiles expressions without numbered groups, so only named groups capture. Both dialects match bytes, as Envoy does.
"""

import re

_REST = "headgate_rest"
_DIFFERENT_ESCAPES = frozenset("vC1234567")
_DIFFERENT_SYNTAX = re.compile(r"\[[^\]]*\[[.=]|\{,\d")


def translated(pattern: str) -> str | None:
    r"""Return a valid RE2 expression in PCRE2's syntax, without anchors; None if PCRE2 would read it differently.

    PCRE2 reads `\v` as a class, `\C` as a byte and `\12` as a reference. It rejects `[[.` and newer versions read
    `{,2}` as a repetition.
    """
    if _DIFFERENT_ESCAPES & set(re.findall(r"\\(.)", pattern)) or _DIFFERENT_SYNTAX.search(pattern):
        return None
    return f"{pattern}\\E" if r"\Q" in pattern else pattern


def whole(translated_pattern: str) -> str:
    """Return an expression for texts that match completely."""
    return rf"^(?:{translated_pattern})\z"


def first_parameter(name: str, translated_pattern: str) -> str:
    """Return an expression for query strings whose first parameter `name` has a value that matches completely.

    The group captures the query after the value. So the value can match up to the next `&` only, even if its
    expression allows `&`.
    """
    key = re.escape(name)
    before = rf"(?:(?!{key}(?:=|&|\z))[^&]*&)*"
    value = rf"(?:=|(?=&|\z))(?=[^&]*(?<{_REST}>(?:&.*)?)\z)(?:{translated_pattern})\k<{_REST}>\z"
    return f"^{before}{key}{value}"
