"""Measure plans by the number of routes, and checks of access by the number of TrafficTargets. No headgate runs.

Each HTTPRoute or match has one rule. A change is one weight, one new rule before all rules, or new weights everywhere.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from msgspec import structs

from headgate.model.access import Access, Grant, RequestRule
from headgate.model.requests import Header, Match, Path, Text
from headgate.model.routing import (
    Endpoint,
    Endpoints,
    Frontend,
    InboundPort,
    Mesh,
    PortProtocol,
    PortRef,
    Protocol,
    Route,
    RouteTable,
    Split,
    Target,
    Workload,
)
from headgate.plan.access import access_changes
from headgate.plan.traffic import request_classes
from headgate.resources.meta import Key

ROOT, ONE, OTHER = (PortRef(f"default/{name}", 8080) for name in ("website", "v1", "v2"))
NAMESPACE = "spiffe://cluster.local/ns/default/sa"


class Scale(NamedTuple):
    """The numbers of routes, the number of TrafficTargets, and how often each plan is made."""

    routes: Sequence[int]
    targets: int
    rounds: int


USUAL = Scale(routes=(100, 1000, 5000), targets=1000, rounds=3)
SMALLEST = Scale(routes=(2,), targets=2, rounds=1)


def routes(number: int, *, one: int, regex: bool = False) -> list[Route]:
    """Return routes whose matches overlap in pairs: `/p7` before `/p7` with a header, or regular expressions."""
    return [_route(index, one, regex=regex) for index in range(number)]


def _route(index: int, one: int, *, regex: bool) -> Route:
    path = (
        Path(kind="regex", value=f"/p{index // 2}(/[a-z]+)*") if regex else Path(kind="prefix", value=f"/p{index // 2}")
    )
    headers = (Header(name="x-a", text=Text(value="1")),) if index % 2 == 0 else ()
    return Route(match=Match(path=path, headers=headers), split=_split(one), name=str(index))


def _split(one: int) -> Split:
    return Split(targets=(Target(ref=ONE, weight=one), Target(ref=OTHER, weight=100 - one)))


def mesh(found: Sequence[Route]) -> Mesh:
    """Return a mesh whose Service `website` has the routes."""
    ready = tuple(
        Endpoints(ref=ref, ready=(Endpoint(address=f"10.0.0.{number}", port=80),))
        for number, ref in enumerate((ONE, OTHER))
    )
    rest = Route(split=_split(50))
    return Mesh(
        domain="cluster.local",
        frontends=(Frontend(service=ROOT.service, ports=(ROOT.port,)),),
        tables=(RouteTable(ref=ROOT, routes=(*found, rest)),),
        endpoints=ready,
    )


def guarded(number: int, callers: Callable[[int], Sequence[str]]) -> Mesh:
    """Return a mesh with one workload and one TrafficTarget for each number, with the callers of a function."""
    return Mesh(domain="cluster.local", workloads=tuple(_workload(index, callers(index)) for index in range(number)))


def _workload(index: int, callers: Sequence[str]) -> Workload:
    rule = RequestRule(
        name="g/m", match=Match(path=Path(kind="regex", value=f"(?:/items/{index}).*"), methods=("GET",))
    )
    grant = Grant(
        origin=Key("access.smi-spec.io", "TrafficTarget", "default", f"t{index}"),
        sources=tuple(f"{NAMESPACE}/{name}" for name in callers),
        requests=(rule,),
    )
    ref = PortRef(f"default/s{index}", 8080)
    port = InboundPort(port=8080, application=8080, protocols=(PortProtocol(protocol=Protocol.HTTP, services=(ref,)),))
    return Workload(
        name=f"default/p{index}",
        address=f"10.1.{index // 250}.{index % 250}",
        identity=f"{NAMESPACE}/s{index}",
        ports=(port,),
        access=Access(closed=True, grants=(grant,)),
    )


async def measure(scale: Scale) -> None:
    """Print the processor time of each plan in milliseconds, and the number of its classes."""
    print(f"{'routes':>8} {'change':32} {'classes':>8} {'ms':>9}")
    for number in scale.routes:
        for regex in (False, True):
            before = routes(number, one=50, regex=regex)
            kind = "regular expressions" if regex else "prefixes"
            middle = number // 2
            changed = structs.replace(before[middle], split=_split(70))
            first = Route(match=Match(path=Path(kind="prefix", value="/p1")), split=_split(1), name="first")
            _time(
                number, f"one weight, {kind}", scale.rounds, before, [*before[:middle], changed, *before[middle + 1 :]]
            )
            _time(number, f"a rule before all, {kind}", scale.rounds, before, [first, *before])
            if number <= 1000 or not regex:
                _time(number, f"all weights, {kind}", scale.rounds, before, routes(number, one=70, regex=regex))
    _access(scale.targets, scale.rounds)


def _time(number: int, title: str, rounds: int, before: Sequence[Route], after: Sequence[Route]) -> None:
    # Copies: as after two separate compilations, equal values are not the same objects.
    one, other = mesh(before), mesh([structs.replace(route) for route in after])
    took, found = _timed(rounds, lambda: len(list(request_classes(one, other))))
    print(f"{number:8} {title:32} {found:8} {took:9.1f}")


def _access(targets: int, rounds: int) -> None:
    before = guarded(targets, lambda _: ("web",))
    for title, after in (
        ("one new caller", guarded(targets, lambda index: ("web", "thief") if index == targets // 2 else ("web",))),
        ("a new caller everywhere", guarded(targets, lambda _: ("web", "thief"))),
    ):
        took, changes = _timed(rounds, partial(_changes, before, after))
        print(f"{targets} TrafficTargets, {title}: {changes} changes of access, {took:.1f} ms")


def _changes(before: Mesh, after: Mesh) -> int:
    return len(list(access_changes(before, after)))


def _timed(rounds: int, work: Callable[[], int]) -> tuple[float, int]:
    """Return the median processor time in milliseconds, and the result."""
    times, found = [], 0
    for _ in range(rounds):
        began = time.process_time()
        found = work()
        times.append((time.process_time() - began) * 1000)
    return statistics.median(times), found
