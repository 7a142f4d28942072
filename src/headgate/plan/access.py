"""Compare which identities may send which requests to workloads in two meshes: access gained and lost."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Literal as Choice
from typing import NamedTuple

from headgate.matching.conditions import CERTIFICATE, PATH, UNAMBIGUOUS, Conjunction, Setting, conjunction
from headgate.matching.regular import Algebra
from headgate.matching.requests import request_of
from headgate.matching.solver import Solver
from headgate.matching.undecided import Undecided, Work
from headgate.model.access import Grant, source_includes
from headgate.model.authorization import connection_allowed, port_of, protocol_at
from headgate.model.mutual_tls import TlsMode
from headgate.model.requests import Request
from headgate.model.routing import InboundPort, Mesh, PortRef, Protocol, Workload
from headgate.resources.meta import Key, Value

ANY_IDENTITY = "*"
"""Stands for all identities that no access rule of the workload names. It is the source of rules for all callers too."""
PLAINTEXT = ""
"""Stands for all callers without an identity."""
POINT_STEPS = 15
"""What a port of a workload that differs counts as, in steps of Work."""
_DIGEST = "[0-9a-f]{64}"


class AllowedRequests(NamedTuple):
    """Requests that a caller may send; `origin` and `rule` name the access rule, and are empty for an open workload."""

    match: Conjunction
    origin: Key | None = None
    rule: str = ""


class AccessChange(Value, frozen=True, kw_only=True):
    """Requests that callers may send in one mesh only, to a port of workloads that have the identity `destination`.

    `sources` has SPIFFE IDs, beginnings of SPIFFE IDs (`model.access.source_includes`), ANY_IDENTITY or PLAINTEXT; `excepted` has the
    callers that rules name and to which this change does not apply. `other` has the requests that the sources may send in both meshes. With
    `is_http` requests are matched, else connections. `called` is a Service port that leads to the port. `origin` and
    `rule` name the access rule that allows the requests, in the mesh where they are allowed; `closed_by` has the
    TrafficTargets of the other mesh. Without an `example` it is not decided whether there are such requests.
    """

    kind: Choice["gained", "lost"]
    destination: str
    workloads: tuple[str, ...]
    port: int
    called: PortRef | None
    is_http: bool
    sources: tuple[str, ...]
    excepted: tuple[str, ...]
    match: Conjunction
    other: tuple[Conjunction, ...]
    origin: Key | None
    rule: str
    closed_by: tuple[Key, ...]
    example: Request | None


class AccessPoint(NamedTuple):
    """A port of a workload as callers use it, for requests or for connections, through the Service port `called` if that is known.

    `granted` has the permissions of each source that access rules name; they count if the workload is closed.
    """

    workload: Workload
    port: InboundPort
    called: PortRef | None
    is_http: bool
    granted: Mapping[str, tuple[AllowedRequests, ...]]


class _Search(NamedTuple):
    """What all comparisons share: the nodes of expressions, and the limit of their steps."""

    algebra: Algebra
    work: Work | None


def access_changes(before: Mesh, after: Mesh) -> Iterator[AccessChange]:
    """Yield the access that is lost, then the access that is gained, sorted by workload."""
    changes = unsorted_access_changes(before, after)
    yield from sorted(
        changes, key=lambda change: (change.kind == "gained", change.workloads, change.port, change.sources)
    )


def unsorted_access_changes(before: Mesh, after: Mesh, work: Work | None = None) -> Iterator[AccessChange]:
    """Yield the access that is lost or gained. Raises Exhausted if `work` does not suffice."""
    search = _Search(Algebra(), work)
    seen = set()  # a new pod differs from several peers by the same access
    for pair, names in _pairs(before, after).items():
        for change in _compared(*pair, names, search):
            same = (
                change.kind,
                change.workloads,
                change.port,
                change.called,
                change.sources,
                change.excepted,
                change.match,
                change.origin,
            )
            if same not in seen:
                seen.add(same)
                yield change


def _pairs(before: Mesh, after: Mesh) -> Mapping[tuple[Workload | None, Workload | None], tuple[str, ...]]:
    """Return the pairs of workloads that differ, each with the names of all pods for which the pair stands.

    A pod that is new in its mesh is compared with each of its peers, so that what any of them refuses counts as gained. A removed pod
    is compared with one peer, a closed one if there is one: its end gives no access.
    """
    old, new = ({workload.name: workload for workload in mesh.workloads} for mesh in (before, after))
    peers_before, peers_after = _peers(before), _peers(after)
    groups: dict[tuple[object, object], tuple[tuple[Workload | None, Workload | None], list[str]]] = {}
    for name in sorted(old.keys() | new.keys()):
        was, now = old.get(name), new.get(name)
        if was is now:
            continue
        pairs: Sequence[tuple[Workload | None, Workload | None]] = [(was, now)]
        if was is None and now is not None:
            pairs = [(peer, now) for peer in peers_before(now) or (None,)]
        elif now is None and was is not None:
            pairs = [(was, peer) for peer in peers_after(was)[-1:] or (None,)]
        for pair in pairs:
            key = _signature(pair[0]), _signature(pair[1])
            if key[0] != key[1]:
                groups.setdefault(key, (pair, []))[1].append(name)
    return {pair: tuple(names) for pair, names in groups.values()}


def _peers(mesh: Mesh) -> Callable[[Workload], Sequence[Workload]]:
    """Return a function that returns the peers in a mesh of a workload which the mesh lacks, closed ones last.

    A workload with an equal signature is the only peer, as a further replica changes nothing. Else they are the workloads with the
    same identity behind a common Service port, or all of the identity if there are none: one for each set of access rules and modes.
    """
    of_identity: dict[str, list[Workload]] = defaultdict(list)
    for workload in mesh.workloads:
        of_identity[workload.identity].append(workload)

    @cache
    def distinct(identity: str) -> Mapping[object, Workload]:
        return {_signature(workload): workload for workload in of_identity.get(identity, ())}

    def peers(workload: Workload) -> Sequence[Workload]:
        alike = distinct(workload.identity)
        if same := alike.get(_signature(workload)):
            return (same,)
        numbers, services = _numbers(workload), _services(workload)
        joined = [other for other in alike.values() if services & _services(other)]
        nearest_last = sorted(joined or alike.values(), key=lambda other: len(numbers & _numbers(other)))
        return sorted({_policy(other): other for other in nearest_last}.values(), key=_is_closed)

    return peers


def _is_closed(workload: Workload) -> bool:
    return workload.access.closed


def _numbers(workload: Workload) -> set[int]:
    return {port.port for port in workload.ports}


def _services(workload: Workload) -> set[PortRef]:
    return {ref for port in workload.ports for protocol in port.protocols for ref in protocol.services}


def _signature(workload: Workload | None) -> object:
    """Return all that decides which requests a workload allows."""
    if workload is None:
        return None
    return workload.identity, _policy(workload), tuple((port.port, port.protocols) for port in workload.ports)


def _policy(workload: Workload) -> object:
    mode = workload.target_tls_mode
    return workload.access, mode.accepts_plaintext, mode.clients_use_tls, workload.capture


def _compared(
    was: Workload | None, now: Workload | None, names: tuple[str, ...], search: _Search
) -> Iterator[AccessChange]:
    for old, new in points(was, now):
        if search.work:
            search.work.spend(POINT_STEPS)
        groups: dict[tuple[tuple[AllowedRequests, ...], tuple[AllowedRequests, ...], str], list[str]] = defaultdict(
            list
        )
        sources = callers_of(was, now)
        for source in sources:
            pair = permissions(old, source), permissions(new, source)
            if pair[0] != pair[1]:
                groups[*pair, source if _names_certificate(pair) else ""].append(source)
        for (allowed, allowed_later, _), callers in groups.items():
            for kind, more, less in (("lost", allowed, allowed_later), ("gained", allowed_later, allowed)):
                point = old if kind == "lost" else new
                closing = new if kind == "lost" else old
                if point is None:
                    continue
                excluded = [permission.match for permission in less]
                if all(permission.match in excluded for permission in more):
                    continue
                solver = Solver(setting_of(point.workload, callers[0]), *search)
                for permission, example in _only_in(solver, more, excluded):
                    yield AccessChange(
                        kind="lost" if kind == "lost" else "gained",
                        destination=point.workload.identity,
                        workloads=names,
                        port=point.port.port,
                        called=point.called,
                        is_http=_is_http(point.port, point.called, has_identity=callers[0] != PLAINTEXT),
                        sources=tuple(callers),
                        excepted=others_than(callers, sources),
                        match=_as_written(permission.match),
                        other=tuple(map(_as_written, excluded)),
                        origin=permission.origin,
                        rule=permission.rule,
                        closed_by=_targets(closing),
                        example=example,
                    )


def _as_written(match: Conjunction) -> Conjunction:
    return tuple(literal for literal in match if literal != UNAMBIGUOUS)


def others_than(callers: Sequence[str], sources: Iterable[str]) -> tuple[str, ...]:
    """Return the named sources that are none of the callers, although a beginning of SPIFFE IDs among the callers includes them."""
    patterns = [caller for caller in callers if caller.endswith("*")]
    named = (source for source in sources if source not in {*callers, ANY_IDENTITY, PLAINTEXT})
    return tuple(source for source in named if any(source_includes(pattern, source) for pattern in patterns))


def _names_certificate(pair: tuple[tuple[AllowedRequests, ...], ...]) -> bool:
    """Return whether a rule has a condition on the header about the caller, which differs for each caller."""
    literals = (literal for permissions in pair for permission in permissions for literal in permission.match)
    return any(literal.dimension.name == CERTIFICATE for literal in literals)


def _targets(point: AccessPoint | None) -> tuple[Key, ...]:
    return tuple(dict.fromkeys(grant.origin for grant in point.workload.access.grants)) if point else ()


def points(was: Workload | None, now: Workload | None) -> Iterator[tuple[AccessPoint | None, AccessPoint | None]]:
    """Yield each port of two workloads, once for each protocol in which Services lead there."""
    numbers = sorted({port.port for workload in (was, now) if workload for port in workload.ports})
    for number in numbers:
        old, new = (port_of(workload, number) if workload else None for workload in (was, now))
        refs = sorted(
            {ref for port in (old, new) if port for port_protocol in port.protocols for ref in port_protocol.services}
        )
        seen = set()
        for ref in refs or (None,):
            protocols = _protocol(old, ref), _protocol(new, ref)
            if protocols not in seen:
                seen.add(protocols)
                yield point_of(was, old, ref), point_of(now, new, ref)


def point_of(workload: Workload | None, port: InboundPort | None, called: PortRef | None) -> AccessPoint | None:
    """Return a port of a workload as callers of a Service port use it; None without a workload or port."""
    if workload is None or port is None:
        return None
    is_http = _is_http(port, called)
    granted: dict[str, list[AllowedRequests]] = defaultdict(list)
    for grant in workload.access.grants if workload.access.closed else ():
        if grant.port in {0, port.port}:
            allowed = tuple(_of_grant(port, grant, is_http=is_http))
            for source in grant.sources:
                granted[source] += allowed
    return AccessPoint(workload, port, called, is_http, {source: tuple(allowed) for source, allowed in granted.items()})


def callers_of(*workloads: Workload | None) -> list[str]:
    """Return the callers that may be treated in different ways: those that access rules name, and all other callers as one."""
    grants = (grant for workload in workloads if workload for grant in workload.access.grants)
    named = {name for grant in grants for name in grant.sources} - {ANY_IDENTITY}
    return [*sorted(named), ANY_IDENTITY, PLAINTEXT]


def permissions(point: AccessPoint | None, source: str) -> tuple[AllowedRequests, ...]:
    """Return the requests that a caller may send to a port of a workload, as the sum of permissions."""
    if point is None:
        return ()
    mode = point.workload.target_tls_mode
    has_identity = source != PLAINTEXT and mode.clients_use_tls
    if not has_identity and mode is TlsMode.STRICT:
        return ()
    if not point.workload.access.closed:
        return (AllowedRequests(()),)
    caller = source if has_identity else PLAINTEXT
    return tuple(rule for named, allowed in point.granted.items() if source_includes(named, caller) for rule in allowed)


def _of_grant(port: InboundPort, grant: Grant, *, is_http: bool) -> Iterator[AllowedRequests]:
    if not is_http:
        names = [rule.name for rule in grant.connections if connection_allowed(rule, port)]
        yield from (AllowedRequests((), grant.origin, name) for name in names)
        return
    for rule in grant.requests:
        match = conjunction(rule.match)
        if any(literal.dimension == PATH for literal in match):
            match = (*match, UNAMBIGUOUS)
        yield AllowedRequests(match, grant.origin, rule.name)


def _protocol(port: InboundPort | None, called: PortRef | None, *, has_identity: bool = True) -> Protocol | None:
    """Return the protocol in which callers use a port; None without a port."""
    if port is None:
        return None
    return protocol_at(port, called, has_identity=has_identity) if called else port.protocols[0].protocol


def _is_http(port: InboundPort, called: PortRef | None, *, has_identity: bool = True) -> bool:
    protocol = _protocol(port, called, has_identity=has_identity)
    return protocol is not None and protocol.is_http


def setting_of(workload: Workload, source: str) -> Setting:
    """Return how the requests of a caller arrive: with a header about its certificate, or in plaintext."""
    if source == PLAINTEXT:
        return Setting()
    caller = "spiffe://[!-~]+" if source == ANY_IDENTITY else re.escape(source).replace(r"\*", "[!-~]+")
    return Setting(secure=True, certificate=f"By={re.escape(workload.identity)};Hash={_DIGEST};URI={caller}")


def _only_in(
    solver: Solver, more: Sequence[AllowedRequests], excluded: Sequence[Conjunction]
) -> Iterator[tuple[AllowedRequests, Request | None]]:
    """Yield each permission of `more` that allows a request which fits none of `excluded`, with an example."""
    for permission in more:
        if permission.match in excluded:
            continue
        try:
            values = solver.solve(permission.match, excluded)
        except Undecided:
            yield permission, None
            continue
        if values is not None:
            yield permission, request_of(values, solver.setting)
