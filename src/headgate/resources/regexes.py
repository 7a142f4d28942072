"""Regular expressions in Envoy's dialect, RE2: an expression that is valid here is valid in Envoy (D5).

Envoy matches bytes: `.` stands for one byte, and a character that is not ASCII for those of its UTF-8 encoding.
"""

import functools
from typing import Any

import re2

_CHARACTERS, _BYTES = re2.Options(), re2.Options()
_CHARACTERS.log_errors = _BYTES.log_errors = False
_BYTES.encoding = re2.Options.Encoding.LATIN1
LARGEST = 1024  # The maximum length of an expression in characters.
LARGEST_PROGRAM = 10_000  # The instructions that a compiled expression may have; `x{1000}` has 1000.


@functools.lru_cache(maxsize=4096)
def fault(pattern: str) -> str:
    """Return why a pattern can't be used, with RE2's message; empty if it can."""
    if len(pattern) > LARGEST:
        return f"has {len(pattern)} characters; at most {LARGEST} are allowed"
    try:
        steps = _compiled(pattern).programsize
    except re2.error as error:
        reason = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else str(error)
        return f"is not a regular expression in RE2 syntax: {reason}"
    if steps > LARGEST_PROGRAM:
        return f"compiles to {steps} steps, more than the {LARGEST_PROGRAM} that are allowed; use smaller repetitions"
    return ""


def matches(pattern: str, text: str) -> bool:
    """Return whether a valid pattern matches the whole text, as Envoy's `safe_regex` does.

    The text may have bytes that are not UTF-8 (`surrogateescape`).
    """
    return _compiled(pattern).fullmatch(text.encode("utf-8", "surrogateescape")) is not None


def bounds(pattern: str, size: int) -> tuple[bytes, bytes]:
    """Return bounds of all texts that a valid pattern matches completely, of at most `size` bytes; the widest if RE2 has none."""
    try:
        low, high = _compiled(f"^(?:{pattern})$").possiblematchrange(size)
    except re2.error:
        return b"", b"\xff"
    return low, high


@functools.lru_cache(maxsize=4096)
def _compiled(pattern: str) -> Any:
    # re2 remembers compiled patterns too, but reads 13 options for each look-up: 4 us.
    return re2.compile(pattern.encode(), _BYTES)


def search(pattern: str, text: str) -> bool:
    """Return whether a valid pattern matches a part of the text, as the `pattern` of a schema does: by characters."""
    return _of_characters(pattern).search(text) is not None


@functools.lru_cache(maxsize=4096)
def _of_characters(pattern: str) -> Any:
    return re2.compile(pattern, _CHARACTERS)
