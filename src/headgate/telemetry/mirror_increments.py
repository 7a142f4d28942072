"""The new requests of route rules and the new copies of mirrors, for the comparison of both (`plane.mirror_comparison`)."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TypeAlias

from headgate.envoy import names
from headgate.model.routing import PortRef
from headgate.resources.meta import Key, Value
from headgate.telemetry.counters.counts import Counts
from headgate.telemetry.counters.histogram import Buckets
from headgate.telemetry.reports.otlp import Series
from headgate.telemetry.reports.series import cluster_of

Rule: TypeAlias = tuple[Key, str]
"""A rule of a route object: the object, and the index of the rule."""
Side: TypeAlias = Rule | PortRef
"""One side of a comparison: the requests of a rule, or the copies for a Service port."""
_REMEMBERED = 20_000  # series whose side is known


class SideCounts(Value, frozen=True):
    """The counts of one side, and the sizes of its responses: a histogram by `size_buckets`."""

    counts: Counts = Counts()
    sizes: Buckets = 0

    def plus(self, more: "SideCounts") -> "SideCounts":
        """Return the sum of both."""
        return SideCounts(self.counts.plus(more.counts), self.sizes + more.sizes)


_NONE = SideCounts()


class MirrorIncrements:
    """Adds up the counts of the followed sides."""

    def __init__(self) -> None:
        self._counts: dict[Side, SideCounts] = {}

    def follow(self, sides: Iterable[Side]) -> None:
        """Count only these sides from now on. Sides that are followed already keep their counts."""
        self._counts = {side: self._counts.get(side, _NONE) for side in sides}

    def add(self, series: Series, counts: Counts) -> None:
        """Add counts of a proxy's series, unless it belongs to no followed side."""
        if self._counts:
            self._add(_side(cluster_of_series(series)), SideCounts(counts))

    def add_sizes(self, cluster: str, sizes: Buckets) -> None:
        """Add sizes of the responses from a cluster, unless it belongs to no followed side."""
        self._add(_side(cluster), SideCounts(sizes=sizes))

    def take(self) -> Mapping[Side, SideCounts]:
        """Return the new counts of each followed side."""
        taken, self._counts = self._counts, dict.fromkeys(self._counts, _NONE)
        return taken

    def _add(self, side: Side | None, more: SideCounts) -> None:
        if side in self._counts:
            self._counts[side] = self._counts[side].plus(more)


cluster_of_series = lru_cache(_REMEMBERED)(cluster_of)  # without the cache, the attributes are decoded for each value


@lru_cache(_REMEMBERED)
def _side(cluster: str) -> Side | None:
    if names.mirroring_split(cluster):
        return None
    return names.parse(cluster) if names.is_mirror(cluster) else names.rule_in(cluster)
