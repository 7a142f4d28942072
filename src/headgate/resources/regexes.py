"""Regular expressions as Envoy has them (RE2), so that what passes here also passes there (D5)."""

import functools

import re2

_QUIET = re2.Options()
_QUIET.log_errors = False
LARGEST = 1024  # characters; a longer one is a program
LARGEST_PROGRAM = 10_000  # steps that RE2 compiles it to; `x{1000}` has 1000, whatever its length


@functools.lru_cache(maxsize=4096)
def fault(pattern: str) -> str:
    """Say what is wrong with a pattern, in RE2's words; empty when nothing is."""
    if len(pattern) > LARGEST:
        return f"has {len(pattern)} characters; at most {LARGEST} are allowed"
    try:
        steps = re2.compile(pattern, _QUIET).programsize
    except re2.error as error:
        reason = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else str(error)
        return f"is not a regular expression in RE2 syntax: {reason}"
    if steps > LARGEST_PROGRAM:
        return f"compiles to {steps} steps, more than the {LARGEST_PROGRAM} that are allowed; use smaller repetitions"
    return ""


def matches(pattern: str, text: str) -> bool:
    """Say whether a sound pattern matches all of a text, as Envoy's `safe_regex` does."""
    return re2.compile(pattern, _QUIET).fullmatch(text) is not None
