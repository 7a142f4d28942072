"""Durations as Envoy's messages have them."""

from headgate.envoy import pb


def duration(milliseconds: int) -> pb.Duration:
    """Return a duration."""
    seconds, rest = divmod(milliseconds, 1000)
    return pb.Duration(seconds=seconds, nanos=rest * 1_000_000)
