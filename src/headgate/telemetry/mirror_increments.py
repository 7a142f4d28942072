"""The new requests of route rules and the new copies of mirrors, for the comparison of both (`plane.mirror_comparison`)."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TypeAlias

from headgate.envoy import names
from headgate.model.routing import PortRef
from headgate.resources.meta import Key
from headgate.telemetry.counters.counts import Counts
from headgate.telemetry.reports.otlp import Series
from headgate.telemetry.reports.series import cluster_of

Rule: TypeAlias = tuple[Key, str]
"""A rule of a route object: the object, and the index of the rule."""
Side: TypeAlias = Rule | PortRef
"""One side of a comparison: the requests of a rule, or the copies for a Service port."""
_NONE = Counts()
_REMEMBERED = 20_000  # series whose side is known


class MirrorIncrements:
    """Adds up the counts of the followed sides."""

    def __init__(self) -> None:
        self._counts: dict[Side, Counts] = {}

    def follow(self, sides: Iterable[Side]) -> None:
        """Count only these sides from now on. Sides that are followed already keep their counts."""
        self._counts = {side: self._counts.get(side, _NONE) for side in sides}

    def add(self, series: Series, counts: Counts) -> None:
        """Add counts of a proxy's series, unless it belongs to no followed side."""
        side = _side(series) if self._counts else None
        if side in self._counts:
            self._counts[side] = self._counts[side].plus(counts)

    def take(self) -> Mapping[Side, Counts]:
        """Return the new counts of each followed side."""
        found, self._counts = self._counts, dict.fromkeys(self._counts, _NONE)
        return found


@lru_cache(_REMEMBERED)
def _side(series: Series) -> Side | None:
    cluster = cluster_of(series)
    if names.mirroring_split(cluster):
        return None
    return names.parse(cluster) if names.is_mirror(cluster) else names.rule_in(cluster)
