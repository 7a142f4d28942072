"""Regular expressions as Envoy has them (RE2), so that what passes here also passes there (D5)."""

import functools

import re2

_QUIET = re2.Options()
_QUIET.log_errors = False
LARGEST = 1024  # characters; a longer one is a program


@functools.lru_cache(maxsize=4096)
def fault(pattern: str) -> str:
    """Say what is wrong with a pattern, in RE2's words; empty when nothing is."""
    if len(pattern) > LARGEST:
        return f"has {len(pattern)} characters; at most {LARGEST} are allowed"
    try:
        re2.compile(pattern, _QUIET)
    except re2.error as error:
        reason = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else str(error)
        return f"is not a regular expression in RE2 syntax: {reason}"
    return ""


def matches(pattern: str, text: str) -> bool:
    """Say whether a sound pattern matches all of a text, as Envoy's `safe_regex` does."""
    return re2.compile(pattern, _QUIET).fullmatch(text) is not None
