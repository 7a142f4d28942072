"""Durations and numbers as Envoy's messages have them."""

from headgate.envoy import pb


def duration(milliseconds: int) -> pb.Duration:
    """Return a duration."""
    seconds, rest = divmod(milliseconds, 1000)
    return pb.Duration(seconds=seconds, nanos=rest * 1_000_000)


def number(value: int) -> pb.UInt32Value:
    """Return a number that differs from an absent one also if it is 0."""
    return pb.UInt32Value(value=value)
