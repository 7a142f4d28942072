"""The changed objects that cause a change to requests."""

from collections.abc import Iterator

from headgate.compiler.references import external_service, group_key
from headgate.kinds import GATEWAY
from headgate.model.routing import Route
from headgate.plan.traffic import RequestClass
from headgate.plan.world import Origin, World
from headgate.resources.meta import Key
from headgate.resources.registry import BACKEND, ENDPOINT_SLICE, POD, SERVICE, TRAFFIC_SPLIT, WORKLOADS

_OF_BACKENDS = frozenset(kind.kind for kind in (BACKEND, SERVICE, ENDPOINT_SLICE, *WORKLOADS, POD))


def route_causes(request_class: RequestClass, world: World) -> Iterator[Origin]:
    """Yield the changed objects that define the routes of a class.

    Without any, yield the routes of other server names, the changed objects of the backends, or the Gateway.
    """
    fields: dict[Key, str] = {}
    for route in (request_class.new_route, request_class.old_route):
        for key, field in _defining(route) if route else ():
            fields.setdefault(key, field)
    causes = [world.cause(key, field) for key, field in fields.items() if key in world.changed]
    named = [route.origin for route in request_class.named_routes if route.origin in world.changed]
    yield from causes or dict.fromkeys(world.cause(key, "spec.hostnames") for key in named if key)
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
