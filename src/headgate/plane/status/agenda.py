"""Which objects have their status computed next: those that a build or an answer of a proxy touched (pure).

An object is touched when a build says something else about it, when a finding about it comes or goes, when a proxy lags with
what it decides for or no longer does, and when a proxy has its ports in view or no longer. When proxies come and go, the
counts of all objects change: these wait for a round over all, which is to be paced.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import structs

from headgate.compiler.report import Finding
from headgate.envoy.names import Place
from headgate.envoy.view import SIDECAR
from headgate.plane.status.conditions import Said
from headgate.plane.status.mesh import decides
from headgate.plane.status.receipts import Group, Receipts, place_of
from headgate.plane.status.reported import Reported
from headgate.resources.meta import Key


class Look(NamedTuple):
    """All that statuses are made of, at one moment.

    `findings` are those that do not come from the build, `unnamed` the workloads whose certificate does not carry all names
    yet that it is to carry, `awaited` the proxies that workloads' next stages wait for.
    """

    reported: Reported
    receipts: Receipts
    findings: Mapping[Key, tuple[Finding, ...]] = {}
    unnamed: frozenset[str] = frozenset()
    awaited: Sequence[str] = ()

    def said(self, key: Key) -> Said:
        """Return all that there is to say about an object."""
        said = self.reported.said(key)
        if more := self.findings.get(key):
            said = structs.replace(said, findings=(*said.findings, *more))
        if self.unnamed and said.selected:
            said = structs.replace(
                said, unnamed=tuple(name for name in said.selected.workloads if name in self.unnamed)
            )
        return said


class Agenda:
    """What is to be judged, touched objects first. `take` each look, then judge what `next` returns."""

    def __init__(self, kinds: Iterable[tuple[str, str]], faulty: Iterable[tuple[str, str]] = ()) -> None:
        """`kinds` always have a status, `faulty` only when there is something to say: the first look is about all."""
        self._kinds = frozenset(kinds)
        self._first = self._kinds.union(faulty)
        self._look: Look | None = None
        self._touched: dict[Key, None] = {}
        self._round: dict[Key, None] = {}
        self._open: dict[Key, None] = {}
        self._census: object = None

    def take(self, look: Look) -> None:
        """Note which objects differ from the look before; what was touched last is judged first."""
        before, self._look = self._look, look
        if before is None:
            self._touched = dict.fromkeys(look.reported.keys(self._first))
            self._census = look.receipts.census
            return
        touched = dict.fromkeys(self._differing(before, look))
        touched.update(dict.fromkeys(_lagging(look)))
        self._touched = {**touched, **self._touched, **self._open}

    def touch(self, keys: Iterable[Key]) -> None:
        """Note that objects are to be judged for another reason."""
        self._touched.update(dict.fromkeys(keys))

    def judged(self, key: Key, *, waits: bool, in_round: bool) -> None:
        """Note that an object was judged. While its status `waits` for proxies, it is judged in each look.

        Not where a round found that: it waits for proxies that come or go, and so for the next round.
        """
        if not waits:
            self._open.pop(key, None)
        elif not in_round:
            self._open[key] = None

    @property
    def is_empty(self) -> bool:
        """Say whether nothing is left to judge, apart from a round that has not begun."""
        return not self._touched and not self._round

    @property
    def is_round_due(self) -> bool:
        """Say whether proxies came or went since the last round began, and that is over."""
        return self._look is not None and not self._round and self._census != self._look.receipts.census

    def begin_round(self) -> None:
        """Begin with all objects."""
        if self._look:
            self._census = self._look.receipts.census
            self._round = dict.fromkeys(self._look.reported.keys(self._kinds))

    def next(self) -> tuple[Key, bool] | None:
        """Return the next object, and whether the round is why; None when none is left."""
        in_round = not self._touched
        left = self._round if in_round else self._touched
        if not left:
            return None
        key = next(iter(left))
        self._touched.pop(key, None)
        self._round.pop(key, None)
        return key, in_round

    def _differing(self, before: Look, look: Look) -> Iterator[Key]:
        if look.reported is not before.reported:
            for key in dict.fromkeys((*look.reported.keys(self._kinds), *before.reported.keys(self._kinds))):
                if look.reported.said(key) != before.reported.said(key):
                    yield key
        for key in {**before.findings, **look.findings}:
            if look.findings.get(key) != before.findings.get(key):
                yield key
        for workload in look.unnamed ^ before.unnamed:
            yield from look.reported.at.get(workload, ())
        for place in _seen_otherwise(before.receipts.groups, look.receipts.groups):
            yield from look.reported.at.get(place, ())


def _lagging(look: Look) -> Iterator[Key]:
    """Yield the objects that decide for what some proxy lags with."""
    at = look.reported.at
    for standing, resource in look.receipts.lagging():
        if decides(resource):
            yield from at.get(standing.proxy.id.removeprefix(f"{SIDECAR}/"), ())
        for place in standing.group.places(*resource) if standing.group else ():
            yield from at.get(place, ())


def _seen_otherwise(before: Mapping[str, Group], now: Mapping[str, Group]) -> Iterator[Place]:
    """Yield the ports that proxies have in view and did not have before, or no longer have."""
    moved = {(before[node_id], group) for node_id, group in now.items() if before.get(node_id, group) is not group}
    for old, new in moved:
        for name in old.named() ^ new.named():
            if place := place_of(name):
                yield place
