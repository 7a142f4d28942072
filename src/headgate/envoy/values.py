"""Durations, numbers and expressions as Envoy's messages have them."""

import re
from collections.abc import Collection

from headgate.envoy import pb


def duration(milliseconds: int) -> pb.Duration:
    """Return a duration."""
    seconds, rest = divmod(milliseconds, 1000)
    return pb.Duration(seconds=seconds, nanos=rest * 1_000_000)


def number(value: int) -> pb.UInt32Value:
    """Return a number that differs from an absent one also if it is 0."""
    return pb.UInt32Value(value=value)


def other_texts(texts: Collection[str]) -> str:
    """Return a regular expression of all texts but some. RE2 has no negation, so it lists how a text can differ from each."""
    beginnings = sorted({text[0] for text in texts if text})
    if not beginnings:
        return ".+" if texts else ".*"
    ways = [f"[^{re.escape(''.join(beginnings))}].*"]
    ways += [
        re.escape(first) + other_texts({text[1:] for text in texts if text.startswith(first)}) for first in beginnings
    ]
    return f"(?:{'|'.join(ways)})" + ("" if "" in texts else "?")
