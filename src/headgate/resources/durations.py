"""Durations as the Gateway API writes them (GEP-2257)."""

import re

_DURATION = re.compile(r"([0-9]{1,5}(h|m|s|ms)){1,4}")
_PART = re.compile(r"([0-9]+)(ms|h|m|s)")
_MILLISECONDS = {"h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}


def milliseconds(text: str) -> int:
    """Return a duration such as `1h30m` or `500ms` in milliseconds. Raises ValueError that says what is allowed."""
    if not _DURATION.fullmatch(text):
        raise ValueError(f"{text!r} is not a duration: write for example 10s, 500ms or 1h30m, with whole numbers")
    return sum(int(number) * _MILLISECONDS[unit] for number, unit in _PART.findall(text))
