"""Compile TrafficSplits to routes: the backends and weights on each port of the root, and findings (001, 004).

On each port of the root, the first case that applies is used (D9, D10; docs/tasks/traffic-split.md):
1. All weights are 0: requests get 503.
2. At least one backend with a weight is usable: those backends share the traffic by their relative weights.
3. No backend has the port: the root Service serves its own traffic.
4. Otherwise requests get 503, because the weights allow no other destination.

On a port that is not HTTP, splits without matches distribute connections in the same way (D7, docs/tasks/protocols.md).
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from fractions import Fraction

from msgspec import structs

from headgate.compiler.protocols import ProtocolChoice
from headgate.compiler.reasons import Reason
from headgate.compiler.references import grant_hint, group_key, missing, named_matches, permitted, service_key
from headgate.compiler.report import Finding, Share, SplitOutcome
from headgate.compiler.services import routed_ports
from headgate.compiler.snapshot import Snapshot
from headgate.compiler.split_mirrors import split_mirrors
from headgate.compiler.sticky import StickyBackend, rounding_note, sticky_of, with_slots
from headgate.model.evaluate import fractions
from headgate.model.requests import ANY, Match
from headgate.model.routing import (
    Broken,
    Endpoint,
    PortRef,
    Protocol,
    Route,
    RouteTable,
    Split,
    Target,
)
from headgate.resources.mesh.canary.types import Canary
from headgate.resources.meta import Key, Value, service_name
from headgate.resources.registry import CANARY
from headgate.resources.smi.self_reference import self_reference, self_reference_message
from headgate.resources.smi.split_fields import NO_ENDPOINTS, STICKY
from headgate.resources.smi.traffic_split import TrafficSplit
from headgate.resources.weights import whole_weights
from headgate.settings import Settings

STICKY_FIELD = f"metadata.annotations.{STICKY}"
Ready = Mapping[PortRef, tuple[Endpoint, ...]]


class BackendCandidate(Value, frozen=True, kw_only=True):
    """A backend of a split before it is decided whether it gets traffic.

    `reason` says why the backend gets no traffic. `service` is `namespace/name`, empty when the written name is not a
    Service name.
    """

    index: int
    written: str
    service: str
    weight: int
    reason: Reason | None = None
    message: str = ""
    endpoints: int = 0
    protocol: Protocol | None = None


class SplitCompiler:
    """The splits of a snapshot, compiled in order of precedence. Of several splits without matches, the first one wins the root (D8)."""

    def __init__(
        self, snapshot: Snapshot, ready: Ready, choices: Mapping[PortRef, ProtocolChoice], settings: Settings
    ) -> None:
        self.snapshot = snapshot
        self.ready = ready
        self.settings = settings
        self.choices = choices
        self.winners: dict[str, Key] = {}
        self.routes: dict[PortRef, list[Route]] = defaultdict(list)
        self.findings: list[Finding] = []
        self.outcomes: list[SplitOutcome] = []
        for key, split in snapshot.splits:
            self.add(key, split)

    def add(self, key: Key, split: TrafficSplit) -> None:
        """Add the routes of a split to the ports of its root, or a finding that says why the split has no routes."""
        root = service_name(split.spec.service, key.namespace, self.settings.domain)
        matches = self._matches(key, split)
        refusals = list(self._refusals(key, split, root))
        self.findings += refusals
        if refusals or not matches:
            return
        if not split.spec.matches:
            self.winners[root] = key
        candidates = [self._candidate(key, split, index) for index in range(len(split.spec.backends))]
        self.findings += [_finding(key, candidate) for candidate in candidates if candidate.reason]
        _, service = self.snapshot.services[root]
        ports = sorted(port.port for port in routed_ports(service))
        if not ports:
            message = f"Service {root} has no TCP port of its own, so the split does nothing; add a port to the Service"
            self.findings.append(Finding(key, Reason.NOT_ROUTED, "spec.service", message))
        for ref in self._applicable(key, split, [PortRef(root, port) for port in ports]):
            route = self._add_port(key, split, ref, candidates)
            self.routes[ref] += (structs.replace(route, match=match, name=name) for name, match in matches)

    def _applicable(self, key: Key, split: TrafficSplit, refs: Iterable[PortRef]) -> Iterator[PortRef]:
        """Yield the ports that the split applies to: a split with matches needs HTTP (D7)."""
        for ref in refs:
            protocol, why, _ = self.choices[ref]
            if not split.spec.matches or protocol.is_http:
                yield ref
                continue
            message = (
                f"port {ref.port} of {split.spec.service} is {protocol.value}, {why}. Matches need HTTP requests, so the split "
                "does nothing there; remove spec.matches, or set the appProtocol of the port to http"
            )
            self.findings.append(Finding(key, Reason.MATCH_NOT_APPLICABLE, "spec.matches", message))

    def tables(self, plain: Mapping[PortRef, RouteTable]) -> Iterator[RouteTable]:
        """Yield the route table of each Service port: routes of splits in order, then the Service's own endpoints."""
        for ref, table in plain.items():
            if not (routes := self.routes.get(ref)):
                yield table
            elif routes[-1].match == ANY:
                yield structs.replace(table, routes=tuple(routes))
            else:
                yield structs.replace(table, routes=(*routes, *table.routes))

    def _matches(self, key: Key, split: TrafficSplit) -> list[tuple[str, Match]]:
        """Return the named matches of the split; one match for all requests when it has none (R13, R16, D6)."""
        if not split.spec.matches:
            return [("", ANY)]
        matches: list[tuple[str, Match]] = []
        for index, reference in enumerate(split.spec.matches):
            group = group_key(key.namespace, reference.name)
            matches += named_matches(self.snapshot, group)
            if group not in self.snapshot.objects:
                invalid = group in self.snapshot.mistakes
                what, fix = ("is not valid", "corrected") if invalid else ("not found", "created")
                message = f"{group} {what}; it matches no request until it is {fix}"
                field, related = f"spec.matches[{index}].name", () if invalid else (group,)
                finding = Finding(key, Reason.MATCH_NOT_FOUND, field, message, related=related)
                self.findings.append(finding)
        return matches

    def _refusals(self, key: Key, split: TrafficSplit, root: str) -> Iterator[Finding]:
        def refuse(reason: Reason, field: str, message: str, *related: Key) -> Finding:
            return Finding(key, reason, field, message, related=related)

        written = split.spec.service
        if (own := self_reference(split, key.namespace, self.settings.domain)) is not None:
            yield refuse(Reason.SELF_REFERENCE, f"spec.backends[{own}].service", self_reference_message(split))
        elif root not in self.snapshot.services:
            message = f"{missing(root, written)}; the split does nothing until it exists"
            yield refuse(Reason.SERVICE_NOT_FOUND, "spec.service", message, *((service_key(root),) if root else ()))
        elif not permitted(self.snapshot, key, root):
            message = (
                f"Service {root} is in another namespace, which does not allow this reference; {grant_hint(key, root)}"
            )
            yield refuse(Reason.REF_NOT_PERMITTED, "spec.service", message, service_key(root))
        elif root in self.winners and not split.spec.matches:
            winner = self.winners[root]
            message = f"the older {winner} already splits {written}; delete one of the two"
            yield refuse(Reason.CONFLICTED, "spec.service", message, winner)

    def _candidate(self, key: Key, split: TrafficSplit, index: int) -> BackendCandidate:
        backend = split.spec.backends[index]
        name = service_name(backend.service, key.namespace, self.settings.domain)
        reason, message = None, ""
        if name and not permitted(self.snapshot, key, name):
            reason = Reason.REF_NOT_PERMITTED
            message = (
                f"traffic will not be split for {backend.service}: its namespace does not allow this reference; "
                f"{grant_hint(key, name)}"
            )
        elif name not in self.snapshot.services:
            reason = Reason.BACKEND_NOT_FOUND
            message = f"{missing(name, backend.service)}; it gets no traffic until it exists"
        return BackendCandidate(
            index=index, written=backend.service, service=name, weight=backend.weight, reason=reason, message=message
        )

    def _add_port(self, key: Key, split: TrafficSplit, root: PortRef, candidates: Iterable[BackendCandidate]) -> Route:
        keep_share = split.metadata.annotations.get(NO_ENDPOINTS) == "fail"
        on_port = [
            candidate if candidate.reason else self._on_port(candidate, root, keep_share=keep_share)
            for candidate in candidates
        ]
        if not keep_share:
            on_port = self._prefer_ready(on_port, root)
        reported = {candidate.index for candidate in candidates if candidate.reason}
        self.findings += [
            _finding(key, candidate) for candidate in on_port if candidate.reason and candidate.index not in reported
        ]
        decided = _decide(on_port, root, keep_share=keep_share)
        if len(decided.targets) > 1 and self._is_analyzed(split):
            decided = structs.replace(decided, order="random")
        if not decided.targets and not any(candidate.reason is Reason.NO_READY_ENDPOINTS for candidate in on_port):
            self.findings.append(self._nothing_left(key, root, on_port))
        decided = self._sticky(key, split, root, decided=decided, on_port=on_port)
        self.outcomes.append(_outcome(key, root, on_port, decided))
        usable = {
            candidate.written: Target(ref=PortRef(candidate.service, root.port), weight=1, protocol=candidate.protocol)
            for candidate in on_port
            if not candidate.reason and self.choices[root].protocol.is_http
        }
        return Route(split=decided, origin=key, mirrors=split_mirrors(key, split.metadata.annotations, usable))

    def _is_analyzed(self, split: TrafficSplit) -> bool:
        """Return whether the split belongs to a Canary whose analysis compares the backends."""
        owners = [owner for owner in split.metadata.owner_references if owner.kind == CANARY.kind]
        canaries = (self.snapshot.objects.get(CANARY.key(split.metadata.namespace, owner.name)) for owner in owners)
        return any(isinstance(canary, Canary) and canary.spec.analysis for canary in canaries)

    def _nothing_left(self, key: Key, root: PortRef, on_port: Iterable[BackendCandidate]) -> Finding:
        """Return the finding for a port where no backend gets traffic; it names the weights or the unusable backends."""
        effect = self._effect(root, REFUSED)
        weighted = [candidate for candidate in on_port if candidate.weight]
        if not weighted:
            message = f"every backend has the weight 0, so no backend serves {root} and {effect}; set a weight above 0"
            return Finding(key, Reason.ALL_WEIGHTS_ZERO, "spec.backends", message)
        names = ", ".join(candidate.service or candidate.written for candidate in weighted)
        message = f"no usable backend with a weight above 0 is left for {root} ({names} can't be used), so {effect}"
        return _finding(key, structs.replace(weighted[0], message=message))

    def _sticky(
        self, key: Key, split: TrafficSplit, root: PortRef, *, decided: Split, on_port: Iterable[BackendCandidate]
    ) -> Split:
        """Return the split with hash slots for users, if its annotation requests sticky users and the port is HTTP."""
        sticky = sticky_of(split.metadata.annotations)
        if sticky is None:
            return decided
        protocol, why, _ = self.choices[root]
        failing = bool(decided.broken)
        sticky_backends = [
            StickyBackend(
                PortRef(candidate.service, root.port), failing and candidate.reason is Reason.NO_READY_ENDPOINTS
            )
            for candidate in on_port
        ]
        if not protocol.is_http:
            message = f"port {root.port} is {protocol.value}, {why}; only HTTP can be sticky, so each connection goes to a backend by weight"
            finding = Finding(key, Reason.STICKY_NOT_APPLICABLE, STICKY_FIELD, message)
            self.findings.append(finding)
            return decided
        if message := rounding_note(decided, sticky_backends):
            message = f"on port {root.port} {message}"
            finding = Finding(key, Reason.WEIGHTS_ROUNDED, STICKY_FIELD, message)
            self.findings.append(finding)
        return with_slots(decided, sticky, sticky_backends)

    def _prefer_ready(self, on_port: list[BackendCandidate], root: PortRef) -> list[BackendCandidate]:
        """Take the share of each backend whose endpoints are all terminating, if another backend is ready (D9, D31)."""
        usable = [candidate for candidate in on_port if not candidate.reason and candidate.weight]
        ending = {
            candidate.index for candidate in usable if self.ready[PortRef(candidate.service, root.port)][0].terminating
        }
        if not ending or len(ending) == len(usable):
            return on_port
        return [
            self._without_endpoints(candidate, root, LEFT_OUT) if candidate.index in ending else candidate
            for candidate in on_port
        ]

    def _without_endpoints(self, candidate: BackendCandidate, root: PortRef, effect: str) -> BackendCandidate:
        message = f"Service {candidate.service} has no ready endpoint on port {root.port}; {effect}"
        return structs.replace(candidate, reason=Reason.NO_READY_ENDPOINTS, message=message, endpoints=0)

    def _on_port(self, candidate: BackendCandidate, root: PortRef, *, keep_share: bool) -> BackendCandidate:
        ref = PortRef(candidate.service, root.port)
        if ref not in self.ready:
            _, service = self.snapshot.services[candidate.service]
            offered = ", ".join(f"port {port.port}" for port in routed_ports(service)) or "no TCP port"
            message = (
                f"traffic will not be split for {candidate.written} on port {root.port}: Service {candidate.service} has only {offered}; "
                f"add port {root.port} to it (with any targetPort)"
            )
            return structs.replace(candidate, reason=Reason.PORT_MISMATCH, message=message)
        protocol, why, declared = self.choices[ref]
        root_protocol, because, _ = self.choices[root]
        if declared and protocol.is_http is not root_protocol.is_http:
            message = (
                f"traffic will not be split for {candidate.written} on port {root.port}: the port is {protocol.value}, {why}; the "
                f"root's port is {root_protocol.value}, {because}. Give both ports the same appProtocol"
            )
            return structs.replace(candidate, reason=Reason.PROTOCOL_MISMATCH, message=message)
        count = len(self.ready[ref])
        if not count and candidate.weight:
            return self._without_endpoints(
                candidate, root, self._effect(root, SHARE_REFUSED) if keep_share else LEFT_OUT
            )
        follows = not declared and protocol is not root_protocol
        return structs.replace(candidate, endpoints=count, protocol=root_protocol if follows else None)

    def _effect(self, root: PortRef, words: tuple[str, str]) -> str:
        """Choose the text for requests or for connections, by the protocol of the root's port."""
        return words[0 if self.choices[root].protocol.is_http else 1]


REFUSED = ("its requests are answered with 503", "its connections are closed")
LEFT_OUT = "it gets no traffic there until it has one"
SHARE_REFUSED = ("its share is answered with 503", "the connections of its share are closed")
_NOTHING = Fraction(0)
_UNRESOLVED = {
    Reason.BACKEND_NOT_FOUND,
    Reason.REF_NOT_PERMITTED,
    Reason.PORT_MISMATCH,
    Reason.PROTOCOL_MISMATCH,
}


def _decide(candidates: list[BackendCandidate], root: PortRef, *, keep_share: bool) -> Split:
    live = [candidate for candidate in candidates if candidate.reason is None and candidate.weight]
    failed = [candidate for candidate in candidates if keep_share and candidate.reason is Reason.NO_READY_ENDPOINTS]
    if not any(candidate.weight for candidate in candidates):
        return Split(targets=())
    if not live and not failed and all(candidate.reason in _UNRESOLVED for candidate in candidates):
        return plain(root)
    weights = whole_weights([candidate.weight for candidate in (*live, *failed)])
    targets = zip(live, weights, strict=False)
    broken = zip(failed, weights[len(live) :], strict=True)
    return Split(
        targets=tuple(
            Target(ref=PortRef(candidate.service, root.port), weight=weight, protocol=candidate.protocol)
            for candidate, weight in targets
        ),
        broken=tuple(Broken(weight=weight, reason=Reason.NO_READY_ENDPOINTS.value) for _, weight in broken),
    )


def plain(ref: PortRef) -> Split:
    """Return the split of a Service that no TrafficSplit changes: all traffic to its own endpoints."""
    return Split(targets=(Target(ref=ref, weight=1),))


def plain_table(ref: PortRef, protocol: Protocol) -> RouteTable:
    """Return the route table of a Service port that no other object changes."""
    return RouteTable(ref=ref, routes=(Route(split=plain(ref)),), protocol=protocol)


def _outcome(key: Key, root: PortRef, candidates: Collection[BackendCandidate], split: Split) -> SplitOutcome:
    shares = {target.ref.service: share for target, share in fractions(split) if isinstance(target, Target)}
    return SplitOutcome(
        about=key,
        ref=root,
        shares=tuple(
            Share(
                service=candidate.service or candidate.written,
                weight=candidate.weight,
                share=_NOTHING if candidate.reason else shares.get(candidate.service, _NOTHING),
                endpoints=candidate.endpoints,
                left_out=candidate.reason,
            )
            for candidate in candidates
        ),
        # a split may name its own root as a backend (D1); that is not the case without usable backends
        root=shares.get(root.service, _NOTHING) if all(candidate.reason for candidate in candidates) else _NOTHING,
        failed=1 - sum(shares.values(), _NOTHING),
    )


def _finding(key: Key, candidate: BackendCandidate) -> Finding:
    related = (service_key(candidate.service),) if candidate.service else ()
    reason = candidate.reason or Reason.INVALID
    return Finding(key, reason, f"spec.backends[{candidate.index}].service", candidate.message, related=related)
