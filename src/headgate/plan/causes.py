"""The changed objects that cause a change to requests or to access, or a finding about another object."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property

from headgate.compiler.references import external_service, group_key
from headgate.compiler.report import Finding
from headgate.kinds import GATEWAY, SPECS
from headgate.model.routing import Route
from headgate.plan.access import AccessChange
from headgate.plan.traffic import RequestClass
from headgate.plan.world import Origin, World
from headgate.resources.meta import Key
from headgate.resources.registry import BACKEND, ENDPOINT_SLICE, POD, SERVICE, TLS_CONFIG, TRAFFIC_SPLIT, WORKLOADS

_OF_BACKENDS = frozenset(kind.kind for kind in (BACKEND, SERVICE, ENDPOINT_SLICE, *WORKLOADS, POD))


def route_causes(request_class: RequestClass, world: World) -> Iterator[Origin]:
    """Yield the changed objects that define the routes of a class.

    Without any, yield the routes of other server names or of other requests, the changed objects of the backends, or the Gateway.
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
    routes = [route for route in (request_class.old_route, request_class.new_route) if route]
    services = {ref.service for route in routes for ref in route.callees} | {entry.name}
    names = {
        key: external_service(key) if key.kind == BACKEND.kind else f"{key.namespace}/{key.name}"
        for key in sorted(world.changed)
        if key.kind in _OF_BACKENDS
    }
    causes = dict.fromkeys(
        world.cause(key, "spec")
        for key, name in names.items()
        if any(name == service or name.startswith(f"{service}-") for service in services)
    )
    at = Key(GATEWAY, entry.kind, *entry.name.split("/"))
    yield from causes or ([world.cause(at, "spec")] if at in world.changed else [])


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
