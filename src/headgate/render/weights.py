"""Exact integer weights for the servers of a proxy (D24)."""

import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")


def server_weights(shares: Mapping[T, tuple[int, Sequence[str]]]) -> Mapping[T, Sequence[tuple[str, int]]]:
    """Divide the weight of each backend among its servers, all of which get equal parts.

    `shares` has the relative weight (at least 1) and the servers of each backend. The result has the weights of the
    servers: the smallest integers with exactly these ratios.
    """
    counts = [len(servers) for _, servers in shares.values() if servers]
    factor = math.lcm(*counts)
    parts = {name: weight * factor // len(servers) for name, (weight, servers) in shares.items() if servers}
    divisor = math.gcd(*parts.values()) or 1
    return {
        name: tuple((server, parts[name] // divisor) for server in servers) if servers else ()
        for name, (_, servers) in shares.items()
    }
