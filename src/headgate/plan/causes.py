"""The changed objects that cause a change to requests or to access, or a finding about another object."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property

from headgate.compiler.references import external_service, group_key
from headgate.compiler.report import Finding
from headgate.compiler.snapshot import Snapshot
from headgate.kinds import GATEWAY, SPECS
from headgate.model.routing import Route
from headgate.plan.access import AccessChange
from headgate.plan.traffic import RequestClass
from headgate.plan.world import Origin, World
from headgate.resources.gateway_api.backend_tls_policy import BackendTLSPolicy
from headgate.resources.gateway_api.backend_traffic_policy import XBackendTrafficPolicy
from headgate.resources.gateway_api.grpc_route import GRPCRoute
from headgate.resources.gateway_api.http_route import HTTPRoute
from headgate.resources.gateway_api.listener_set import ListenerSet
from headgate.resources.gateway_api.reference_grant import ReferenceGrant
from headgate.resources.gateway_api.tcp_route import GatewayTCPRoute
from headgate.resources.gateway_api.tls_route import TLSRoute
from headgate.resources.gateway_api.udp_route import GatewayUDPRoute
from headgate.resources.meta import Key
from headgate.resources.registry import BACKEND, ENDPOINT_SLICE, POD, SERVICE, TLS_CONFIG, TRAFFIC_SPLIT, WORKLOADS

_OF_BACKENDS = frozenset(kind.kind for kind in (BACKEND, SERVICE, ENDPOINT_SLICE, *WORKLOADS, POD))


def route_causes(request_class: RequestClass, world: World) -> Iterator[Origin]:
    """Yield the changed objects that define the routes of a class.

    Without any, yield the routes of other server names or of other requests, the changed backends, policies,
    ReferenceGrants and ListenerSets, the Gateway, or the only changed object.
    """
    fields: dict[Key, str] = {}
    for route in (request_class.new_route, request_class.old_route):
        for key, field in _defining(route) if route else ():
            fields.setdefault(key, field)
    causes = [world.cause(key, field) for key, field in fields.items() if key in world.changed]
    named = [route.origin for route in request_class.named_routes if route.origin in world.changed]
    if not causes:
        causes = [world.cause(key, "spec.hostnames") for key in named if key]
        causes += [world.cause(key, "spec.rules") for key in request_class.unmatched_objects if key in world.changed]
    yield from dict.fromkeys(causes)
    if not causes:
        yield from _backend_causes(request_class, world)


def _defining(route: Route) -> Iterator[tuple[Key, str]]:
    if route.origin is None:
        return
    is_split = route.origin.kind == TRAFFIC_SPLIT.kind
    yield route.origin, "spec.backends" if is_split else f"spec.rules[{route.name}]"
    group, _, match = route.name.partition("/")
    if is_split and match:
        yield group_key(route.origin.namespace, group), "spec.matches"
    for step in route.split_matches:
        yield step.split, "spec.backends"


def _backend_causes(request_class: RequestClass, world: World) -> Iterator[Origin]:
    entry = request_class.entry
    near = (*_backends(request_class, world), *_policies(request_class, world), *_of_attachment(request_class, world))
    at = Key(GATEWAY, entry.kind, *entry.name.split("/"))
    changed = {world.makers.get(key, key) for key in world.changed}
    alone = list(changed) if len(changed) == 1 else []
    causes = [key for key in near if key in world.changed] or [key for key in (at,) if key in world.changed] or alone
    yield from dict.fromkeys(world.cause(key, "spec") for key in causes)


def _backends(request_class: RequestClass, world: World) -> Iterator[Key]:
    called = {name for route in _routes(request_class) for name in _called(route)} | {request_class.entry.name}
    for key in sorted(world.changed):
        if key.kind in _OF_BACKENDS:
            name = external_service(key) if key.kind == BACKEND.kind else f"{key.namespace}/{key.name}"
            if any(name == service or name.startswith(f"{service}-") for service in called):
                yield key


def _policies(request_class: RequestClass, world: World) -> Iterator[Key]:
    """Yield the policies of the called Services, and the ConfigMaps and Secrets with the authorities of their servers."""
    targets = [target for route in _routes(request_class) for target in route.split.targets]
    services = {name for target in targets for name in (target.root, *target.policy_roots)}
    services |= {name for route in _routes(request_class) for name in _called(route)}
    for snapshot in world.snapshots or ():
        services |= {name for route in _routes(request_class) for name in _written(route, snapshot)}
        for key, traffic in snapshot.of(XBackendTrafficPolicy):
            if any(f"{key.namespace}/{target.name}" in services for target in traffic.spec.target_refs):
                yield key
        for key, tls in snapshot.of(BackendTLSPolicy):
            if any(f"{key.namespace}/{target.name}" in services for target in tls.spec.target_refs):
                references = tls.spec.validation.ca_certificate_refs
                yield from (key, *(Key(ref.group, ref.kind, key.namespace, ref.name) for ref in references))


def _of_attachment(request_class: RequestClass, world: World) -> Iterator[Key]:
    """Yield the ReferenceGrants for new or lost backends, and the ListenerSets of the Gateway if another route decides."""
    old, new = request_class.old_route, request_class.new_route
    called = (set(_called(route)) if route else set() for route in (old, new))
    namespaces = {name.partition("/")[0] for name in set.symmetric_difference(*called)}
    kept = old is not None and new is not None and (old.origin, old.name) == (new.origin, new.name)
    for snapshot in world.snapshots or ():
        yield from (key for key, _ in snapshot.of(ReferenceGrant) if kept and key.namespace in namespaces)
        for key, listeners in snapshot.of(ListenerSet):
            at = listeners.gateway
            if not kept and (at.kind, f"{at.namespace}/{at.name}") == (
                request_class.entry.kind,
                request_class.entry.name,
            ):
                yield key


def _routes(request_class: RequestClass) -> Iterator[Route]:
    yield from (route for route in (request_class.old_route, request_class.new_route) if route)


def _called(route: Route) -> Iterator[str]:
    yield from (ref.service for ref in route.callees)


def _written(route: Route, snapshot: Snapshot) -> Iterator[str]:
    """Yield the backends of a rule as its object names them, which the route lacks while they can't be called."""
    written = snapshot.objects.get(route.origin) if route.origin else None
    if route.origin and isinstance(written, (HTTPRoute, GRPCRoute, GatewayTCPRoute, TLSRoute, GatewayUDPRoute)):
        rules, index = written.spec.rules, int(route.name)
        for ref in rules[index].backend_refs if index < len(rules) else ():
            yield f"{ref.namespace or route.origin.namespace}/{ref.name}"


class AccessCauses:
    """The causes of access changes: the changed rules that decide them, or else the changed pods and what selects these."""

    def __init__(self, world: World) -> None:
        self._world = world

    def of(self, change: AccessChange) -> tuple[Origin, ...]:
        """Return the causes of an access change.

        What one rule allows, no other rule takes away or gives. So rules of the other mesh are causes only for open pods.
        """
        world = self._world
        rules = [world.cause(key, field) for key, field in _deciding(change) if key in world.changed]
        return tuple(dict.fromkeys(rules or self._about_pods(change)))

    def _about_pods(self, change: AccessChange) -> Iterator[Origin]:
        for name in change.workloads if self._world.changed else ():
            pod = POD.key(*name.split("/"))
            for key in (pod, *self._selecting.get(name, ())):
                if key in self._world.changed:
                    yield self._world.cause(key, "spec")

    @cached_property
    def _selecting(self) -> Mapping[str, list[Key]]:
        """The TLSConfigs and Services that select each pod in one of the meshes."""
        selecting = defaultdict(list)
        for side in (self._world.before, self._world.after):
            for selected in side.report.selected:
                for name in selected.workloads if selected.about.kind == TLS_CONFIG.kind else ():
                    selecting[name].append(selected.about)
            for workload in side.mesh.workloads:
                protocols = (protocol for port in workload.ports for protocol in port.protocols)
                refs = dict.fromkeys(ref.service for protocol in protocols for ref in protocol.services)
                selecting[workload.name] += [SERVICE.key(*service.split("/")) for service in refs]
        return selecting


def _deciding(change: AccessChange) -> Iterator[tuple[Key, str]]:
    """Yield the access rule of a change with the routes that it names, or the rules that close open pods."""
    if change.origin is None:
        yield from ((key, "spec") for key in change.closed_by)
        return
    yield change.origin, "spec"
    group = change.rule.partition("/")[0]
    yield group_key(change.origin.namespace, group), "spec.matches"
    yield Key(SPECS, "TCPRoute", change.origin.namespace, group), "spec.matches"


class FindingCauses:
    """The causes of new findings about objects that a change leaves as they are."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._changed = sorted({world.makers.get(key, key) for key in world.changed})

    def of(self, finding: Finding) -> tuple[Origin, ...]:
        """Return the changed objects of a finding about an unchanged one; empty if its object is changed.

        These are the ones that the finding names, or else all in its namespace, or else all: which of them it is, is not known.
        """
        if self._world.makers.get(finding.about, finding.about) in self._changed:
            return ()
        near = (
            [key for key in self._changed if key in finding.related]
            or [key for key in self._changed if key.namespace == finding.about.namespace]
            or self._changed
        )
        return tuple(self._world.cause(key, "spec") for key in near)
