"""The splits and mirrors of the traffic graph: wanted shares beside counted requests, and copies with their verdicts."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from headgate.compiler.report import Compiled, Finding, SplitOutcome, StatusCondition
from headgate.model.routing import Mirror, PortRef, Route
from headgate.resources.inspect import exact_share
from headgate.resources.meta import Key
from headgate.resources.traffic_graphs import GraphBackend, GraphMirror, GraphSplit
from headgate.telemetry.counters.counts import Counts

SIGMAS = 3


class MeshFacts(NamedTuple):
    """What the control plane knows about the mesh of a Reading.

    `findings` has the current findings by object, `verdicts` the condition of each object whose mirrors are compared.
    """

    compiled: Compiled | None
    findings: Mapping[Key, Sequence[Finding]] = {}
    verdicts: Mapping[Key, Sequence[StatusCondition]] = {}


class Called(NamedTuple):
    """What clients called: a Service port (`ref`), of which `backend` answered; or copies to the Service port of a mirror."""

    ref: PortRef
    backend: str
    copy: bool


class MirrorOf(NamedTuple):
    """A mirror, the object that requests it, and the Service whose requests are copied."""

    about: Key
    service: str
    mirror: Mirror


class _Wanted(NamedTuple):
    """The share of a backend."""

    service: str
    share: Fraction


class DividedTraffic:
    """The splits and mirrors of a compiled mesh; none without one. Services are `namespace/name`."""

    def __init__(self, facts: MeshFacts) -> None:
        self._facts = facts
        self.outcomes: Sequence[SplitOutcome] = facts.compiled.report.outcomes if facts.compiled else ()
        self.roots = frozenset(outcome.ref.service for outcome in self.outcomes)

    @property
    def services(self) -> Iterator[str]:
        """Yield the Services of all splits and mirrors."""
        for outcome in self.outcomes:
            yield outcome.ref.service
            yield from (share.service for share in _shares(outcome))
        for _, service, mirror in self.mirrors:
            yield from (service, mirror.ref.service)

    @cached_property
    def origins(self) -> Mapping[str, set[Key]]:
        """The objects that define the routes of each Service."""
        origins: defaultdict[str, set[Key]] = defaultdict(set)
        for service, _, route in self._routes:
            if route.origin:
                origins[service].add(route.origin)
        return origins

    @cached_property
    def mirrors(self) -> Sequence[MirrorOf]:
        """The mirrors, each once."""
        rows = [
            MirrorOf(about, service, mirror)
            for service, _, route in self._routes
            for mirror in route.mirrors
            if (about := mirror.by or route.origin) and mirror.numerator
        ]
        return tuple(dict.fromkeys(rows))

    @cached_property
    def _routes(self) -> Sequence[tuple[str, PortRef | None, Route]]:
        """The routes, each with the Service whose requests it gets: the first backend of a Gateway's route. That has no port."""
        if self._facts.compiled is None:
            return ()
        mesh = self._facts.compiled.mesh
        of_services = [(table.ref.service, table.ref, route) for table in mesh.all_tables for route in table.all_routes]
        of_gateways = [
            (route.split.targets[0].ref.service, None, route)
            for port in mesh.gateways
            for host in port.hosts.values()
            for route in host.routes
            if route.split.targets
        ]
        return [*of_services, *of_gateways]

    def splits(self, called: Mapping[Called, int], index: Callable[[str], int]) -> Iterator[GraphSplit]:
        """Yield each TrafficSplit on each port of its root. `called` has packed counters, `index` returns the node of a Service."""
        matches: defaultdict[tuple[Key, PortRef], list[str]] = defaultdict(list)
        for _, ref, route in self._routes:
            if ref and route.origin and route.name:
                matches[route.origin, ref].append(route.name)
        total: Counter[PortRef] = Counter()
        for (ref, _, copy), counters in called.items():
            total[ref] += 0 if copy else exchanged(counters)
        splits_on = Counter(outcome.ref for outcome in self.outcomes)
        for outcome in self.outcomes:
            ref, shares = outcome.ref, _shares(outcome)
            answered = [exchanged(called.get(Called(ref, share.service, copy=False), 0)) for share in shares]
            match = ", ".join(dict.fromkeys(matches[outcome.about, ref]))
            of_all = total[ref] if outcome.failed else sum(answered)
            all_are_split = not match and splits_on[ref] == 1
            yield GraphSplit(
                object=outcome.about,
                service=index(ref.service),
                port=ref.port,
                match=match,
                backends=tuple(
                    _backend(share, index(share.service), requests, of_all if all_are_split else None)
                    for share, requests in zip(shares, answered, strict=True)
                ),
            )

    def mirrored(self, called: Mapping[Called, int], index: Callable[[str], int]) -> Iterator[GraphMirror]:
        """Yield each mirror with the counted copies; arguments are those of `splits`."""
        copied: Counter[PortRef] = Counter()
        for (ref, _, copy), counters in called.items():
            copied[ref] += counters if copy else 0
        for about, service, mirror in self.mirrors:
            counts = Counts(0, copied[mirror.ref])
            condition = next(iter(self._facts.verdicts.get(about, ())), None) if not mirror.by else None
            yield GraphMirror(
                object=about,
                service=index(service),
                target=index(mirror.ref.service),
                share=exact_share(Fraction(mirror.numerator, mirror.denominator)),
                copies=counts.success + counts.failure,
                failures=counts.failure,
                verdict=condition.reason if condition else "",
                message=condition.message if condition else "",
            )


def exchanged(counters: int) -> int:
    """Return the number of requests and connections in packed counters."""
    counts = Counts(0, counters)
    return counts.success + counts.failure + counts.denied + counts.connections


def band(share: Fraction, requests: int) -> tuple[int, int]:
    """Return the lowest and the highest number of requests within 3 sigma of a share of all `requests`."""
    expected = float(share * requests)
    width = SIGMAS * math.sqrt(expected * (1 - float(share)))
    return max(math.ceil(expected - width), 0), min(math.floor(expected + width), requests)


def _shares(outcome: SplitOutcome) -> Sequence[_Wanted]:
    """Return the wanted shares of the backends, and that of the root Service's own endpoints if there is one."""
    shares = [_Wanted(share.service, share.share) for share in outcome.shares if share.service]
    return [*shares, _Wanted(outcome.ref.service, outcome.root)] if outcome.root else shares


def _backend(share: _Wanted, service: int, requests: int, of_all: int | None) -> GraphBackend:
    low, high = (None, None) if of_all is None else band(share.share, of_all)
    return GraphBackend(
        service=service, wanted=exact_share(share.share), requests=requests, expected_low=low, expected_high=high
    )
