"""Figures about traffic as people read them, the same in every table (R103)."""

NONE = "-"
_LOW_RATE = 0.1
_DIGITS = 3  # that a latency is worth


def percent(success: int, failure: int) -> str:
    """Write the share that succeeded: `75.47%`. It is 100.00% only when nothing failed."""
    requests = success + failure
    if not requests:
        return NONE
    return f"{min(100 * success / requests, 99.99 if failure else 100):.2f}%"


def rate(requests: int, seconds: float) -> str:
    """Write requests per second: `1.8rps`. A low rate has two digits: `0.033rps` is one request in 30 seconds."""
    if not requests or seconds <= 0:
        return NONE
    rps = requests / seconds
    return f"{rps:.2g}rps" if rps < _LOW_RATE else f"{rps:.1f}rps"


def latency(seconds: float | None) -> str:
    """Write a latency as `1ms`, `0.42ms` or `1.2s`."""
    if seconds is None:
        return NONE
    rounded = float(f"{seconds:.{_DIGITS}g}")  # first: 999.7 ms are a second
    return _plain(rounded, "s") if rounded >= 1 else _plain(1000 * rounded, "ms")


def age(seconds: float) -> str:
    """Write how long ago something happened, as kubectl does: `12s`, `5m`, `3h`, `9d`. It is never negative."""
    found = max(seconds, 0.0)
    for unit, size, most in (("s", 1, 120), ("m", 60, 120), ("h", 3600, 48)):
        if found < size * most:
            return f"{found // size:.0f}{unit}"
    return f"{found // 86400:.0f}d"


def counted(number: int, one: str, many: str = "") -> str:
    """Count a word: `1 pod`, `2 pods`; `many` is its plural where that is irregular."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def _plain(value: float, unit: str) -> str:
    return f"{value:.0f}{unit}" if value >= 10**_DIGITS else f"{value:.{_DIGITS}g}{unit}"
