"""Attach each route to its parents: listeners of Gateways, and ports of Services (GAMMA).

The result for a route depends on its parents, and on no other route: `conflicts` compares it with those of older routes.
"""

import operator
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from headgate.compiler.gateway_api.gateways import (
    ANY_HOST,
    ListenerPlan,
    class_findings,
    gateway_states,
    namespace_labels,
    own_gateways,
    plan_listeners,
)
from headgate.compiler.gateway_api.links import Attachment, Link, Parent, Place, to_service
from headgate.compiler.gateway_api.listener_sets import PlannedSet, SetParents, merged, validated
from headgate.compiler.gateway_api.rules import CompiledRoute
from headgate.compiler.gateway_api.served_ports import served_ports
from headgate.compiler.gateway_api.statuses import route_conditions
from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding, ParentStatus, finding_order
from headgate.compiler.snapshot import Snapshot
from headgate.model.host_names import host_fits
from headgate.model.routing import PortRef, Protocol
from headgate.resources.core.config_map import ConfigMap
from headgate.resources.core.namespace import Namespace
from headgate.resources.core.service import Service
from headgate.resources.gateway_api.gateway import GROUP, Gateway
from headgate.resources.gateway_api.listener_set import ListenerSet
from headgate.resources.gateway_api.routes import ParentReference
from headgate.resources.meta import Key
from headgate.resources.registry import SERVICE
from headgate.resources.selectors import selects
from headgate.settings import Settings
from headgate.shared_map import SharedMap, replaced

_WITH_LISTENERS = {(GROUP, "Gateway"), (GROUP, "ListenerSet")}
_NO_SET = PlannedSet(gateway=Key("", "", "", ""), created="")
_CORE = "core"  # the guides of Flagger and Linkerd write this for the core API group, which is ""


class AttachedRoute(NamedTuple):
    """A route with its links, the statuses for its parents, and all findings about it, in order.

    `entries` has the places and hostnames of a usable route; at a Service port, only TLSRoutes have hostnames.
    """

    route: CompiledRoute
    links: tuple[Link, ...]
    entries: tuple[tuple[Place, str], ...]
    statuses: tuple[ParentStatus, ...]
    findings: tuple[Finding, ...]


class Parents:
    """The Gateways of headgate's classes, their ListenerSets and the Services, to which routes can attach.

    `offered` has the ports of Services with their protocols, and `sets` the ListenerSets. Of the snapshot, only the kinds in
    `READ` are used. `defaults` has the default Gateways, `plans` has the listeners by Gateway and ListenerSet, and `attached_sets` the ListenerSets of each Gateway.
    `served` has the ports of Gateways. `findings` are about Gateways, their classes and ListenerSets.
    """

    READ = (*SetParents.READ, ConfigMap, ListenerSet, Service)

    def __init__(
        self,
        snapshot: Snapshot,
        offered: Iterable[tuple[PortRef, Protocol]],
        settings: Settings,
        sets: SharedMap[Key, PlannedSet],
    ) -> None:
        self.snapshot, self.sets = snapshot, sets
        self.ports: Mapping[str, list[tuple[PortRef, Protocol]]] = defaultdict(list)  # by Service
        for ref, protocol in offered:
            self.ports[ref.service].append((ref, protocol))
        gateways = own_gateways(snapshot)
        self.defaults = tuple(key for key, gateway in gateways.items() if gateway.is_default)
        self.states = gateway_states(snapshot, gateways, settings)
        own = {key: plan_listeners(snapshot, key, gateway, settings) for key, gateway in gateways.items()}
        listeners = merged(own, sets)
        listeners = listeners._replace(plans=validated(snapshot, gateways, listeners))
        self.plans, self.attached_sets = listeners
        self.served = tuple(served_ports(self.states, listeners))
        states, plans = self.states.values(), [plan for several in self.plans.values() for plan in several]
        self.findings: Sequence[Finding] = [
            *class_findings(snapshot),
            *(finding for own in states for finding in own.findings),
            *(own.client_fault for own in states if own.client_fault),
            *dict.fromkeys(finding for plan in plans for finding in (*plan.faults, *plan.warnings)),
            *(planned.refusal for planned in sets.values() if planned.refusal),
        ]

    def gateway_of(self, parent: Key) -> Key:
        """Return the Gateway of a Gateway or ListenerSet."""
        planned = self.sets.get(parent)
        return planned.gateway if planned else parent

    def changed_since(self, before: "Parents") -> AbstractSet[Key] | None:
        """Return the Gateways and ListenerSets to which routes may attach in another way than `before`; None for all parents."""
        same_kinds = all(
            self.snapshot.source(kind) == before.snapshot.source(kind) for kind in (Gateway, Namespace, Service)
        )
        invalid = (parents.snapshot.source(ListenerSet).mistakes for parents in (before, self))
        if not same_kinds or operator.ne(*invalid) or self.ports != before.ports or self.states != before.states:
            return None
        plans, gone = replaced(before.plans, self.plans)
        sets, gone_sets = replaced(before.sets, self.sets)
        changed = {key for key, plan in plans.items() if before.plans.get(key) != plan}
        return {*changed, *gone, *sets, *gone_sets}


class AttachedRoutes(NamedTuple):
    """All routes, attached to `parents`."""

    parents: Parents | None
    routes: SharedMap[Key, CompiledRoute]
    attached: SharedMap[Key, AttachedRoute]


def attached_routes(last: AttachedRoutes, parents: Parents, routes: SharedMap[Key, CompiledRoute]) -> AttachedRoutes:
    """Attach all routes. Results of `last` remain if neither the route nor a parent of it has changed."""
    if last.parents is parents:
        moved: AbstractSet[Key] | None = frozenset()
    else:
        moved = parents.changed_since(last.parents) if last.parents else None
    changed, gone = replaced({} if moved is None else last.routes, routes)
    if moved is None:
        gone = [key for key in last.attached if key not in routes]
    elif moved:
        changed |= {
            key: route
            for key, route in routes.items()
            if not moved.isdisjoint(parent.key for parent in (*_parents(route), *_defaults(parents, route)))
        }
    new: dict[Key, AttachedRoute] = {}
    for key, route in changed.items():
        attached_route = linked(parents, route, _links(parents, route))
        if last.attached.get(key) != attached_route:
            new[key] = attached_route
    return AttachedRoutes(parents, routes, last.attached.edited(new, gone))


def linked(parents: Parents, route: CompiledRoute, links: Iterable[Link]) -> AttachedRoute:
    """Return a route with these links."""
    links = tuple(links)
    findings = [
        *route.findings,
        *route.faults,
        *(finding for link in links for finding in (link.refusal, *link.notes) if finding),
    ]
    statuses = tuple(_status(parents, route, link) for link in links)
    entries = tuple(dict.fromkeys(_entries(links))) if route.usable else ()
    return AttachedRoute(route, links, entries, statuses, tuple(sorted(findings, key=finding_order)))


def _entries(links: Iterable[Link]) -> Iterator[tuple[Place, str]]:
    for link in links:
        for attachment in link.attachments:
            yield from (((link.parent.key, attachment.listener), host) for host in attachment.hosts)
        yield from ((link.place(port), name) for port in link.ports for name in link.names)


def _parents(route: CompiledRoute) -> Iterator[Parent]:
    for index, ref in enumerate(route.parents):
        group = SERVICE.group if ref.group == _CORE else ref.group
        yield Parent(index, ref, Key(group, ref.kind, ref.namespace or route.key.namespace, ref.name))


def _defaults(parents: Parents, route: CompiledRoute) -> Iterator[Parent]:
    """Yield the default Gateways of a route that its parentRefs do not name (GEP-3793)."""
    named = {parent.key for parent in _parents(route)} if route.uses_defaults else set()
    for key in parents.defaults if route.uses_defaults else ():
        if key not in named:
            yield Parent(-1, ParentReference(name=key.name, namespace=key.namespace), key)


def _to_defaults(parents: Parents, route: CompiledRoute) -> list[Link]:
    """Attach a route to the default Gateways that allow it; if none does, return why."""
    links = [_to_listeners(parents, route, parent) for parent in _defaults(parents, route)]
    return [link for link in links if not link.refusal] or links


def _links(parents: Parents, route: CompiledRoute) -> Iterator[Link]:
    for parent in _parents(route):
        kind = parent.key.group, parent.key.kind
        if kind == (SERVICE.group, SERVICE.kind):
            exists = parent.name in parents.snapshot.services
            yield to_service(route, parent, parents.ports.get(parent.name, ()), exists=exists)
        elif parent.key in parents.plans:
            yield _to_listeners(parents, route, parent)
        elif refused := parents.sets.get(parent.key, _NO_SET).refusal:
            yield Link(parent, refusal=_not_attached(route.key, parent, refused))
        elif kind in _WITH_LISTENERS and parent.key not in parents.snapshot.objects:  # else of another controller
            yield Link(parent, refusal=_no_parent(parents.snapshot, route.key, parent))
    yield from _to_defaults(parents, route)


def _status(parents: Parents, route: CompiledRoute, link: Link) -> ParentStatus:
    conditions = route_conditions(route, link.refusal, link.notes)
    plans = parents.plans.get(link.parent.key, ())
    ports = {plan.listener.name: plan.listener.port for plan in plans if plan.served}
    hosts = {
        (ports[attachment.listener], host)
        for attachment in (link.attachments if route.usable else ())
        if attachment.is_served and attachment.listener in ports
        for host in (("",) if route.connections else _programmed_hosts(attachment.hosts))
    }
    return ParentStatus(
        about=route.key,
        index=link.parent.index,
        gateway=_name(parents.gateway_of(link.parent.key)) if link.parent.key in parents.plans else "",
        parent=link.parent.key,
        conditions=conditions,
        ports=link.ports if route.usable else (),
        consumer=link.consumer,
        gateway_hosts=tuple(sorted(hosts)),
    )


def _programmed_hosts(hosts: tuple[str, ...]) -> tuple[str, ...]:
    return ("",) if any(host.startswith("*") for host in hosts) else hosts


def _name(key: Key) -> str:
    return f"{key.namespace}/{key.name}"


def _not_attached(about: Key, parent: Parent, refused: Finding) -> Finding:
    message = f"{parent.key} is not attached to a Gateway, so no proxy has the route: {refused.message}"
    return Finding(about, Reason.NO_MATCHING_PARENT, f"{parent.field}.name", message, (parent.key,))


def _no_parent(snapshot: Snapshot, about: Key, parent: Parent) -> Finding:
    invalid = parent.key in snapshot.mistakes
    what, fix = ("is not valid", "correct it") if invalid else ("not found", "create it or correct the name")
    message = f"{parent.key} {what}, so the route is not attached to it; {fix}"
    return Finding(about, Reason.NO_MATCHING_PARENT, f"{parent.field}.name", message)


def _to_listeners(parents: Parents, route: CompiledRoute, parent: Parent) -> Link:
    """Attach a route to the listeners of a Gateway or ListenerSet that match its parentRef and allow it."""
    plans, section, port = parents.plans[parent.key], parent.ref.section_name, parent.ref.port
    named = [plan for plan in plans if section in {"", plan.listener.name} and port in {None, plan.listener.port}]
    if not named:
        offered = ", ".join(f"{plan.listener.name} (port {plan.listener.port})" for plan in plans)
        message = f"{parent.key} has no such listener; its listeners are: {offered or 'none'}"
        return Link(parent, refusal=Finding(route.key, Reason.NO_MATCHING_PARENT, parent.field, message))
    allowed = [plan for plan in named if _allows(parents.snapshot, plan, route.key, parent.key.namespace)]
    if not allowed:
        message = (
            f"no listener of {parent.key} allows {route.key.kind}s from namespace {route.key.namespace}; change "
            f"allowedRoutes of a listener (by default it allows routes from the {parent.key.kind}'s own namespace)"
        )
        return Link(parent, refusal=Finding(route.key, Reason.NOT_ALLOWED_BY_LISTENERS, parent.field, message))
    attachments = (Attachment(plan.listener.name, attached_hosts(plan.host, route.hostnames)) for plan in allowed)
    served = tuple(attachment for attachment in attachments if attachment.hosts)
    if served:
        return Link(parent, served)
    message = (
        f"the hostnames {', '.join(route.hostnames)} match no hostname of the listeners: "
        f"{', '.join(plan.host for plan in allowed)}"
    )
    return Link(parent, refusal=Finding(route.key, Reason.NO_MATCHING_LISTENER_HOSTNAME, parent.field, message))


def attached_hosts(listener: str, written: Sequence[str]) -> tuple[str, ...]:
    """Return the hosts that a listener and a route have in common; a route without hostnames has all hosts."""
    common = (intersection(listener, host.lower()) for host in written or (ANY_HOST,))
    return tuple(dict.fromkeys(host for host in common if host))


def intersection(first: str, second: str) -> str:
    """Return the pattern for the names that both host patterns match: one of the two, or empty if there are none."""
    if host_fits(first, second):
        return second
    return first if host_fits(second, first) else ""


def _allows(snapshot: Snapshot, plan: ListenerPlan, about: Key, parent_namespace: str) -> bool:
    if about.kind not in plan.kinds:
        return False
    namespaces = plan.listener.allowed_routes.namespaces
    if namespaces.from_ == "All":
        return True
    if namespaces.from_ == "Same":
        return about.namespace == parent_namespace
    if namespaces.from_ != "Selector" or namespaces.selector is None:
        return False
    return selects(namespaces.selector, namespace_labels(snapshot, about.namespace))
