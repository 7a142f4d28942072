"""Numbers as every command and table prints them: percentages, rates, latencies, ages and counts (R103); and texts for terminals.

Texts of objects, requests and processes can contain characters that control a terminal: move its cursor, set its title, or
write into its input. `printable` shows them as escapes.
"""

import re
from fractions import Fraction
from typing import Any

import msgspec

_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters except tab and line feed
    "\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069"  # line separators, and those that reverse the direction
    "\ud800-\udfff]"
)
NONE = "-"
"""The text of a table cell without a value."""
_LOW_RATE = 0.1  # Lower rates have two significant digits.
_DIGITS = 3  # Significant digits of a latency.
_MOST_DECIMALS = 13  # Of a share; more are errors of floating-point numbers.


def percent(success: int, failure: int) -> str:
    """Return the share of successful requests: `75.47%`. It is 100.00% only when no request failed."""
    requests = success + failure
    if not requests:
        return NONE
    return f"{min(100 * success / requests, 99.99 if failure else 100):.2f}%"


def share(part: Fraction | float) -> str:
    """Return a share of requests as users write it, with at most two decimals: `25%`, `33.33%`.

    A share near 0% or 100% has as many decimals as it needs to differ from them: `0.003%`.
    """
    percentage = 100 * float(part)
    distance = min(abs(percentage), abs(100 - percentage))
    decimals = next((number for number in range(2, _MOST_DECIMALS) if round(distance, number)), 2) if distance else 2
    return f"{percentage:.{decimals}f}".rstrip("0").rstrip(".") + "%"


def rate(requests: int, seconds: float) -> str:
    """Return requests per second as `1.8rps`, or with two digits when low: `0.033rps` is one request in 30 seconds."""
    if not requests or seconds <= 0:
        return NONE
    rps = requests / seconds
    return f"{rps:.2g}rps" if rps < _LOW_RATE else f"{rps:.1f}rps"


def latency(seconds: float | None) -> str:
    """Return a latency as `1ms`, `0.42ms` or `1.2s`."""
    if seconds is None:
        return NONE
    rounded = float(f"{seconds:.{_DIGITS}g}")  # round before choosing the unit: 999.7 ms become 1s, not 1000ms
    return _plain(rounded, "s") if rounded >= 1 else _plain(1000 * rounded, "ms")


def size(number: float) -> str:
    """Return a number of bytes as `330B`, `4.7kB` or `10MB`."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= factor:
            return _plain(number / factor, unit)
    return _plain(number, "B")


def age(seconds: float) -> str:
    """Return how long ago something happened, in its largest unit: `12s`, `5m`, `3h`, `9d`. It is never negative."""
    elapsed = max(seconds, 0.0)
    for unit, size, most in (("s", 1, 120), ("m", 60, 120), ("h", 3600, 48)):
        if elapsed < size * most:
            return f"{elapsed // size:.0f}{unit}"
    return f"{elapsed // 86400:.0f}d"


def printable(text: str) -> str:
    r"""Return a text for a terminal: control characters are escapes, such as `\x1b`. Tabs and line feeds remain."""
    return _CONTROLS.sub(lambda match: ascii(match[0])[1:-1], text)


def json_text(value: Any) -> str:
    """Return a value as indented JSON for a terminal, with escapes also for control characters that JSON allows in texts."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n"


def pluralize(number: int, singular: str, many: str = "") -> str:
    """Return a number with its noun: `1 pod`, `2 pods`.

    `many` is an irregular plural; the default adds an `s` to `singular`.
    """
    return f"{number} {singular if number == 1 else many or f'{singular}s'}"


def _plain(value: float, unit: str) -> str:
    return f"{value:.0f}{unit}" if value >= 10**_DIGITS else f"{value:.{_DIGITS}g}{unit}"
