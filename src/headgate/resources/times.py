"""Times as Kubernetes writes them: RFC 3339 in UTC."""

from datetime import UTC, datetime


def timestamp(seconds: float) -> str:
    """Write seconds since the epoch as `2026-01-31T12:00:00Z`."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def precise(seconds: float) -> str:
    """Write seconds since the epoch with milliseconds: `2026-01-31T12:00:00.125Z`."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def seconds(text: str) -> float:
    """Read a timestamp, with or without fractions, as seconds since the epoch; an empty or broken one is 0."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0
