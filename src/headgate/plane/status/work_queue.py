"""What a build says about each object, and which objects have their status computed next (pure).

An object is touched when a build says something else about it, when a finding about it comes or goes, when a proxy begins to
lag with what it decides for or no longer does, and when a proxy has its ports in view or no longer. When proxies come and go,
the counts of all objects change: these wait for a round over all, which is to be paced.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from msgspec import structs

from headgate.compiler.report import Compiled, Finding, GatewayOutcome, ParentStatus, SplitOutcome
from headgate.envoy.names import GatewayRef, RouteParent
from headgate.envoy.view import SIDECAR
from headgate.plane.status.conditions import ObjectReport
from headgate.plane.status.mesh import decides
from headgate.plane.status.receipts import Receipts, place_of
from headgate.resources.meta import Key


def reports_by_object(compiled: Compiled) -> Mapping[Key, ObjectReport]:
    """Return what a build says, by object; what has nothing but a generation is left out."""
    report = compiled.report
    findings: dict[Key, list[Finding]] = defaultdict(list)
    for finding in report.findings:
        findings[finding.about].append(finding)
    outcomes: dict[Key, list[SplitOutcome]] = defaultdict(list)
    for outcome in report.outcomes:
        outcomes[outcome.about].append(outcome)
    parents: dict[Key, list[ParentStatus]] = defaultdict(list)
    for parent in report.parents:
        parents[parent.about].append(parent)
    gateways: dict[Key, GatewayOutcome] = {gateway.about: gateway for gateway in report.gateways}
    selected = {item.about: item for item in report.selected}
    underway = {item.name for item in compiled.mesh.workloads if item.tls_mode is not item.target_tls_mode}
    return {
        key: ObjectReport(
            generation=report.seen.get(key, 0),
            findings=tuple(findings.get(key, ())),
            outcomes=tuple(outcomes.get(key, ())),
            parents=tuple(parents.get(key, ())),
            gateway=gateways.get(key),
            selected=(found := selected.get(key)),
            underway=tuple(name for name in (found.workloads if found else ()) if name in underway),
        )
        for key in dict.fromkeys((*findings, *outcomes, *parents, *gateways, *selected))
    }


class ReportIndex:
    """One build by object."""

    def __init__(self, compiled: Compiled) -> None:
        self.compiled = compiled
        self._said = reports_by_object(compiled)

    def keys(self, kinds: Iterable[tuple[str, str]]) -> Iterator[Key]:
        """Yield the objects of some kinds, as (group, kind), and all that there is something to say about."""
        wanted = frozenset(kinds)
        yield from dict.fromkeys(
            (*(key for key in self.compiled.report.seen if (key.group, key.kind) in wanted), *self._said)
        )

    def said(self, key: Key) -> ObjectReport:
        """Return what the build says about an object."""
        return self._said.get(key) or ObjectReport(generation=self.compiled.report.seen.get(key, 0))

    @cached_property
    def underway(self) -> Sequence[Key]:
        """The objects that select a workload which is not in the stage that is wanted of it."""
        return [key for key, said in self._said.items() if said.underway]

    @cached_property
    def at(self) -> Mapping[RouteParent | str, Sequence[Key]]:
        """The objects that decide for a port, and those that select a pod (`namespace/pod`)."""
        found: dict[RouteParent | str, list[Key]] = defaultdict(list)
        for key, said in self._said.items():
            for place in (*_places(said), *(said.selected.workloads if said.selected else ())):
                found[place].append(key)
        return found


def _places(said: ObjectReport) -> Iterator[RouteParent]:
    """Yield the ports that an object decides for."""
    yield from (outcome.ref for outcome in said.outcomes)
    for parent in said.parents:
        yield from parent.ports
        gateway = f"{parent.parent.namespace}/{parent.parent.name}"
        yield from (GatewayRef(gateway, port) for port in parent.gateway_ports)
    if said.gateway:
        about = said.gateway.about
        yield from (GatewayRef(f"{about.namespace}/{about.name}", port) for port in said.gateway.ports)


class Observation(NamedTuple):
    """All that statuses are made of, at one moment.

    `findings` are those that do not come from the build, `unnamed` the workloads whose certificate does not carry all names
    yet that it is to carry, `awaited` the proxies that workloads' next stages wait for.
    """

    reported: ReportIndex
    receipts: Receipts
    findings: Mapping[Key, tuple[Finding, ...]] = {}
    unnamed: frozenset[str] = frozenset()
    awaited: Sequence[str] = ()

    def said(self, key: Key) -> ObjectReport:
        """Return all that there is to say about an object."""
        said = self.reported.said(key)
        if more := self.findings.get(key):
            said = structs.replace(said, findings=(*said.findings, *more))
        if self.unnamed and said.selected:
            said = structs.replace(
                said, unnamed=tuple(name for name in said.selected.workloads if name in self.unnamed)
            )
        return said


class StatusQueue:
    """What is to be judged, touched objects first. `take` each look, then judge what `next` returns."""

    def __init__(self, kinds: Iterable[tuple[str, str]], faulty: Iterable[tuple[str, str]] = ()) -> None:
        """`kinds` always have a status, `faulty` only when there is something to say: the first look is about all."""
        self._kinds = frozenset(kinds)
        self._first = self._kinds.union(faulty)
        self._look: Observation | None = None
        self._touched: dict[Key, None] = {}
        self._round: dict[Key, None] = {}
        self._census: object = None

    def take(self, look: Observation) -> None:
        """Note which objects differ from the look before; what was touched last is judged first."""
        before, self._look = self._look, look
        if before is None:
            self._touched = dict.fromkeys((*look.reported.keys(self._first), *look.findings))
            self._census = look.receipts.census
            return
        self._touched = {**dict.fromkeys(self._differing(before, look)), **self._touched}

    def touch(self, keys: Iterable[Key]) -> None:
        """Note that objects are to be judged for another reason."""
        self._touched.update(dict.fromkeys(keys))

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

    def _differing(self, before: Observation, look: Observation) -> Iterator[Key]:
        if look.reported is not before.reported:
            for key in dict.fromkeys((*look.reported.keys(self._kinds), *before.reported.keys(self._kinds))):
                if look.reported.said(key) != before.reported.said(key):
                    yield key
        for key in {**before.findings, **look.findings}:
            if look.findings.get(key) != before.findings.get(key):
                yield key
        if look.awaited != before.awaited:
            yield from look.reported.underway
        for workload in look.unnamed ^ before.unnamed:
            yield from look.reported.at.get(workload, ())
        for place in (*_lagging(before.receipts, look.receipts), *_seen_otherwise(before.receipts, look.receipts)):
            yield from look.reported.at.get(place, ())


def _lagging(before: Receipts, now: Receipts) -> Iterator[RouteParent | str]:
    """Yield the ports, and the pods, of what other proxies lag with than before."""
    for standing, node_ids in before.alike.items() ^ now.alike.items():
        for resource in standing.lacking or ():
            if decides(resource):
                yield from (node_id.removeprefix(f"{SIDECAR}/") for node_id in node_ids)
            if standing.group:
                yield from standing.group.places(*resource)


def _seen_otherwise(before: Receipts, now: Receipts) -> Iterator[RouteParent]:
    """Yield the ports that proxies have in view and did not have before, or no longer have."""
    moved = {(before.of.get(node_id, standing).group, standing.group) for node_id, standing in now.of.items()}
    for old, new in moved:
        if old and new and old is not new:
            yield from filter(None, map(place_of, old.named() ^ new.named()))
