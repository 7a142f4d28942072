"""Parse and format durations: the Gateway API's syntax (GEP-2257), and Go's, which kubectl and the metrics APIs use."""

import re

_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_UNIT = "ns|us|µs|ms|s|m|h"
_GO = re.compile(rf"\+?(?:(?:\d{{1,9}}\.?\d{{0,9}}|\.\d{{1,9}})(?:{_UNIT}))+", re.ASCII)
_PART = re.compile(rf"(\d*\.?\d*)({_UNIT})")
_GATEWAY_API = re.compile(r"([0-9]{1,5}(h|m|s|ms)){1,4}")


def milliseconds(text: str) -> int:
    """Parse a Gateway API duration, such as `1h30m` or `500ms`, to milliseconds. Raises ValueError with an example."""
    if not _GATEWAY_API.fullmatch(text):
        raise ValueError(f"{text!r} is not a duration: write for example 10s, 500ms or 1h30m, with whole numbers")
    return round(seconds(text) * 1000)


def seconds(text: str) -> float:
    """Parse a Go duration, such as `1m30s` or `2.5s`, to seconds. Raises ValueError with an example."""
    if not _GO.fullmatch(text):
        raise ValueError(f"{text!r} is not a duration; write for example 30s, 5m or 1m30s")
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))


def microseconds(text: str) -> int:
    """Parse a Go duration to whole microseconds. Raises ValueError with an example."""
    return round(seconds(text) * 1e6)


def from_microseconds(number: int) -> str:
    """Format microseconds as a Go duration without rounding: `250us`, `1.2ms`, `60s`."""
    for unit, size in (("s", 1_000_000), ("ms", 1000)):
        if number and number % size == 0:
            return f"{number // size}{unit}"
    return f"{number}us" if number < 1000 else f"{number // 1000}.{number % 1000:03}".rstrip("0") + "ms"


def formatted(seconds: float) -> str:
    """Format seconds as Go formats a duration: `30s`, `1m30s`, `2.5s`."""
    minutes, rest = divmod(round(seconds, 3), 60)
    hours, minutes = divmod(int(minutes), 60)
    text = f"{rest:.3f}".rstrip("0").rstrip(".")
    return f"{hours}h{minutes}m{text}s" if hours else f"{minutes}m{text}s" if minutes else f"{text}s"
