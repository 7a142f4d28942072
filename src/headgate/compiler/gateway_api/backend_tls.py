"""Compile BackendTLSPolicies: the TLS of Gateways' connections to backends (GEP-1897).

A policy applies to Gateways only. Sidecars call each other by mutual TLS of the mesh, and what an application sends over its own
TLS they pass on.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from msgspec import structs

from headgate.compiler.gateway_api.parents import AttachedRoute, Parents
from headgate.compiler.gateway_api.rules import CompiledRoute
from headgate.compiler.gateway_api.server_tls import server_tls
from headgate.compiler.gateway_api.statuses import first
from headgate.compiler.protocols import choice_at
from headgate.compiler.reasons import ConditionType, Reason
from headgate.compiler.references import service_key
from headgate.compiler.report import AncestorOutcome, Finding, GatewayOutcome, PolicyOutcome, StatusCondition
from headgate.compiler.services import routed_ports
from headgate.compiler.snapshot import Snapshot
from headgate.model.edge_tls import BackendTls, ListenerCertificate
from headgate.model.failing_targets import failing_targets
from headgate.model.routing import Broken, Mirror, PortRef, Protocol, Route, Split, Target
from headgate.resources.core.config_map import ConfigMap
from headgate.resources.core.secret import Secret
from headgate.resources.core.service import Service
from headgate.resources.gateway_api.backend_tls_policy import (
    BackendTLSPolicy,
    TLSPolicyTarget,
)
from headgate.resources.gateway_api.grpc_route import GRPCRoute
from headgate.resources.gateway_api.http_route import HTTPRoute
from headgate.resources.meta import Key
from headgate.resources.registry import SERVICE

Policies = Mapping[PortRef, BackendTls]
"""The TLS of each Service port with a policy."""
_FAULTS = {Reason.NO_VALID_CA_CERTIFICATE, Reason.UNSUPPORTED_VALUE}
_REQUESTS = {HTTPRoute.__name__, GRPCRoute.__name__}
_BACKEND = "a backend", "its share is", "let clients in the mesh call the backend themselves"
_AUTH_SERVER = "the authorization server", "all requests of the rule are", "name a port of the server without TLS"


class BackendPolicies(NamedTuple):
    """All policies: the TLS of Service ports, findings, and by policy the ports that it targets."""

    by_port: Policies
    findings: tuple[Finding, ...]
    ports: Mapping[Key, tuple[PortRef, ...]]


NO_POLICIES = BackendPolicies({}, (), {})
READ = (BackendTLSPolicy, ConfigMap, Secret, Service)


def backend_policies(snapshot: Snapshot) -> BackendPolicies:
    """Compile all policies. Of two for the same target the oldest one decides, and one for a port before one for a Service."""
    invalid = ((key, kept) for key, kept in snapshot.fail_closed.items() if isinstance(kept, BackendTLSPolicy))
    policies = sorted(
        (*snapshot.of(BackendTLSPolicy), *invalid), key=lambda entry: (entry[1].metadata.creation_timestamp, entry[0])
    )
    if not policies:
        return NO_POLICIES
    findings: list[Finding] = []
    owners: dict[tuple[str, str], Key] = {}
    settings: dict[Key, BackendTls] = {}
    targeted: dict[Key, list[PortRef]] = {key: [] for key, _ in policies}
    whole: dict[PortRef, Key] = {}
    named: dict[PortRef, Key] = {}
    for key, policy in policies:
        tls, faults = server_tls(
            snapshot,
            key,
            policy.spec.validation,
            where="spec.validation",
            effect="its Services get no requests of Gateways",
        )
        settings[key] = tls
        findings += faults
        for index, target in enumerate(policy.spec.target_refs):
            ports = _ports(snapshot, key, target, f"spec.targetRefs[{index}]")
            if isinstance(ports, Finding):
                findings.append(ports)
                continue
            targeted[key] += ports
            owner = owners.setdefault((f"{key.namespace}/{target.name}", target.section_name), key)
            if owner == key:
                (named if target.section_name else whole).update(dict.fromkeys(ports, key))
            else:
                part = f"port {target.section_name} of " if target.section_name else ""
                message = (
                    f"{owner} is older and already decides about {part}Service {key.namespace}/{target.name}; delete one of "
                    "the two, or give them different targets"
                )
                findings.append(Finding(key, Reason.CONFLICTED, f"spec.targetRefs[{index}]", message, (owner,)))
    decided = {**whole, **named}
    return BackendPolicies(
        {ref: structs.replace(settings[key], opaque=_is_tls(snapshot, ref)) for ref, key in sorted(decided.items())},
        tuple(findings),
        {key: tuple(refs) for key, refs in targeted.items()},
    )


def _is_tls(snapshot: Snapshot, ref: PortRef) -> bool:
    return not choice_at(snapshot, ref).protocol.is_http


def _ports(snapshot: Snapshot, key: Key, target: TLSPolicyTarget, field: str) -> tuple[PortRef, ...] | Finding:
    """Return the Service ports of a target, or a finding that says why there are none."""
    name = f"{key.namespace}/{target.name}"
    if (target.group, target.kind) != (SERVICE.group, SERVICE.kind):
        message = f"{target.kind} {target.name} is not a Service; write group: '' and kind: Service"
        return Finding(key, Reason.TARGET_NOT_FOUND, f"{field}.kind", message)
    related = (service_key(name),)
    if name not in snapshot.services:
        message = f"Service {name} not found; create it or correct the name"
        return Finding(key, Reason.TARGET_NOT_FOUND, f"{field}.name", message, related)
    ports = routed_ports(snapshot.services[name][1])
    chosen = tuple(PortRef(name, port.port) for port in ports if target.section_name in {"", port.name})
    if chosen:
        return chosen
    offered = ", ".join(port.name for port in ports if port.name) or "none has a name"
    message = f"Service {name} has no TCP port with the name {target.section_name}; the names of its ports: {offered}"
    return Finding(key, Reason.TARGET_NOT_FOUND, f"{field}.sectionName", message, related)


def at_gateway(policies: Policies, client: ListenerCertificate | None) -> Policies:
    """Return the policies for a Gateway, which presents its certificate `client` to backends."""
    if client is None:
        return policies
    return {ref: structs.replace(tls, client=client.secret) for ref, tls in policies.items()}


def with_tls(policies: Policies, route: Route) -> Route:
    """Return a route of a Gateway, with the policies of its backends.

    The policy of a backend decides, and if it has none, that of the root whose split leads to it, even if the route names
    the backend itself too. A backend whose policy has a fault, or whose roots have different policies, gets no traffic: its
    share gets 503, and it gets no copies. Without its authorization server, all requests of a route get 503.
    """
    if not policies:
        return route
    if route.external_auth and (tls := policies.get(route.external_auth.ref)):
        auth = structs.replace(route.external_auth, tls=tls)
        route = _closed(route, tls.fault, 503) if tls.fault else structs.replace(route, external_auth=auth)
    called = {target: _policy(policies, target) for target in route.split.targets}
    mirrors = tuple(_mirror(policies, route, mirror) for mirror in route.mirrors)
    if not any(called.values()) and mirrors == route.mirrors:
        return route
    failing = {target: tls.fault for target, tls in called.items() if tls and tls.fault}
    split = failing_targets(route.split, failing, status=503)
    targets = tuple(_secured(route, target, called[target]) for target in split.targets)
    return structs.replace(
        route,
        split=structs.replace(split, targets=targets),
        mirrors=tuple(mirror for mirror in mirrors if mirror.targets),
    )


def _closed(route: Route, reason: str, status: int) -> Route:
    """Return a route that answers all requests, because its authorization server can't be called."""
    split = Split(targets=(), broken=(Broken(weight=1, reason=reason, status=status),))
    return structs.replace(route, split=split, redirect=None, external_auth=None, session=None, mirrors=())


def oldest_connections(routes: Iterable[CompiledRoute], policies: Policies) -> Route | None:
    """Return the connections of the oldest route, with the TLS of its backends."""
    oldest = min(routes, key=attrgetter("age")).connections
    return oldest and with_tls(policies, oldest)


def passed_on(routes: Iterable[CompiledRoute]) -> Route | None:
    """Return the connections of the oldest route for clients whose own TLS is passed on: no proxy adds TLS to it."""
    route = oldest_connections(routes, {})
    if route is None or not any(target.tls for target in route.split.targets):
        return route
    targets = tuple(structs.replace(target, tls=None) for target in route.split.targets)
    return structs.replace(route, split=structs.replace(route.split, targets=targets))


def _mirror(policies: Policies, route: Route, mirror: Mirror) -> Mirror:
    called = [(target, _policy(policies, target, mirror.ref.service)) for target in mirror.targets]
    return structs.replace(
        mirror, targets=tuple(_secured(route, target, tls) for target, tls in called if not (tls and tls.fault))
    )


def _secured(route: Route, target: Target, tls: BackendTls | None) -> Target:
    """Return a target that is called with TLS: by an HTTPRoute over HTTP/1.1, even if the port's protocol is TLS."""
    if tls is None:
        return target
    kind = route.origin.kind if route.origin else ""
    protocol = Protocol.HTTP2 if kind == GRPCRoute.__name__ else target.protocol
    if kind == HTTPRoute.__name__ and tls.opaque:
        protocol = Protocol.HTTP
    return structs.replace(target, tls=tls, protocol=protocol)


def without_tls_ports(policies: Policies, route: Route) -> Route:
    """Return a route of a Service port, for clients in the mesh, whose proxies call no server that is HTTP over TLS by a policy.

    The share of such a backend gets 500, and without their authorization server all requests do.
    """
    if route.external_auth and (tls := policies.get(route.external_auth.ref)) and tls.opaque:
        return _closed(route, Reason.UNSUPPORTED_PROTOCOL.value, 500)
    called = {target: _policy(policies, target) for target in route.split.targets}
    failing = {
        target: Reason.UNSUPPORTED_PROTOCOL.value
        for target, tls in called.items()
        if tls and tls.opaque and route.origin and route.origin.kind in _REQUESTS
    }
    mirrors = tuple(
        mirror
        for mirror in route.mirrors
        if mirror.by or not any(_is_opaque(policies, mirror, target) for target in mirror.targets)
    )
    if not failing and len(mirrors) == len(route.mirrors):
        return route
    return structs.replace(route, split=failing_targets(route.split, failing, status=500), mirrors=mirrors)


def gateways_only(routes: Sequence[Route], for_mesh: Sequence[Route]) -> Iterator[Finding]:
    """Yield a finding for each route of a Service port whose requests to a backend only Gateways can send, over TLS."""
    for route, changed in zip(routes, for_mesh, strict=True):
        if route != changed and route.origin:
            is_closed = route.external_auth != changed.external_auth
            server, share, way = _AUTH_SERVER if is_closed else _BACKEND
            message = (
                f"{server} is HTTP over TLS by a BackendTLSPolicy, and only Gateways call it so; in the mesh {share} answered "
                f"with 500. Attach the route to Gateways only, or {way}"
            )
            field = f"spec.rules[{route.name}].{'filters' if is_closed else 'backendRefs'}"
            yield Finding(route.origin, Reason.UNSUPPORTED_PROTOCOL, field, message)


def _is_opaque(policies: Policies, mirror: Mirror, target: Target) -> bool:
    tls = _policy(policies, target, mirror.ref.service)
    return bool(tls and tls.opaque)


def _policy(policies: Policies, target: Target, *mirrored: str) -> BackendTls | None:
    """Return the policy of a target: its own one, or that of its roots. Different policies of several roots are a fault."""
    if own := policies.get(target.ref):
        return own
    roots = mirrored or target.policy_roots or (target.root,)
    several = [tls for root in roots if (tls := policies.get(PortRef(root, target.ref.port)))]
    if len({tls.origin for tls in several}) > 1:
        return structs.replace(several[0], fault=Reason.CONFLICTED.value, opaque=any(tls.opaque for tls in several))
    return several[0] if several else None


class LeadingGateways(NamedTuple):
    """The Gateways whose accepted routes lead to each Service port, and the ports of Gateways that proxies serve."""

    by_ref: Mapping[PortRef, Collection[Key]]
    served: Mapping[str, Collection[int]]

    def ports_of(self, gateway: Key) -> Iterator[tuple[Key, int]]:
        """Yield the served ports of a Gateway."""
        yield from ((gateway, port) for port in sorted(self.served.get(f"{gateway.namespace}/{gateway.name}", ())))

    def ports_to(self, ref: PortRef) -> Iterator[tuple[Key, int]]:
        """Yield the served ports of the Gateways that lead to a Service port."""
        for gateway in self.by_ref.get(ref, ()):
            yield from self.ports_of(gateway)


def leading_gateways(
    parents: Parents, attached: Mapping[Key, AttachedRoute], gateways: Iterable[GatewayOutcome]
) -> LeadingGateways:
    """Return the Gateways that lead to Service ports by routes."""
    by_ref: dict[PortRef, set[Key]] = defaultdict(set)
    for route, links, *_ in attached.values():
        accepting = {parents.gateway_of(link.parent.key) for link in links if link.attachments and not link.refusal}
        for ref in route.backends if accepting else ():
            by_ref[ref] |= accepting
    served: dict[str, set[int]] = defaultdict(set)
    for gateway in gateways:
        served[gateway.gateway] |= {*gateway.ports}
    return LeadingGateways(by_ref, served)


def outcomes(
    policies: BackendPolicies,
    parents: Parents,
    attached: Mapping[Key, AttachedRoute],
    gateways: Iterable[GatewayOutcome],
) -> Iterator[PolicyOutcome]:
    """Yield the status of each policy: its conditions at the Gateways whose routes lead to its Services."""
    if not policies.ports:
        return
    leading = leading_gateways(parents, attached, gateways)
    by_policy: dict[Key, list[Finding]] = defaultdict(list)
    for finding in policies.findings:
        by_policy[finding.about].append(finding)
    for key, refs in policies.ports.items():
        conditions = _conditions(by_policy[key], policies, key)
        ancestors = sorted({gateway for ref in refs for gateway in leading.by_ref.get(ref, ())})
        yield PolicyOutcome(
            about=key,
            ancestors=tuple(
                AncestorOutcome(key=gateway, conditions=conditions, ports=tuple(leading.ports_of(gateway)))
                for gateway in ancestors
            ),
        )


def _conditions(findings: Sequence[Finding], policies: BackendPolicies, key: Key) -> tuple[StatusCondition, ...]:
    refs = [finding for finding in findings if finding.reason.condition is ConditionType.RESOLVED_REFS]
    accepting = [finding for finding in findings if finding not in refs]
    decides = any(tls.origin == key for tls in policies.by_port.values())
    faults = [finding for finding in accepting if finding.reason in _FAULTS or not decides]
    notes = [finding for finding in accepting if finding not in faults]
    accepted = first("Accepted", faults, success="Gateways call the Services over TLS", notes=notes)
    if accepted.reason == Reason.UNSUPPORTED_VALUE.value:
        accepted = structs.replace(accepted, reason=Reason.INVALID.value)  # the word of the Gateway API
    return (
        accepted,
        first("ResolvedRefs", refs, success="all CA certificates are usable"),
    )
