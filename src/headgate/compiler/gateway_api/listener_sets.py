"""Attach ListenerSets to their Gateways, and find listeners that are in conflict with those of other objects (GEP-1713).

The listeners of a Gateway come first, then those of its ListenerSets: the oldest first, and of the same age by namespace and
name. Of two listeners that can't share a port, the first is served.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import structs

from headgate.compiler.gateway_api.client_certificates import port_validation
from headgate.compiler.gateway_api.gateways import (
    KINDS,
    ListenerPlan,
    namespace_labels,
    own_gateways,
    plan_listener,
    share_port,
)
from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.compiler.snapshot import Snapshot
from headgate.resources.core.namespace import Namespace
from headgate.resources.core.secret import Secret
from headgate.resources.gateway_api.gateway import GROUP, Gateway
from headgate.resources.gateway_api.gateway_class import GatewayClass
from headgate.resources.gateway_api.listener_set import ListenerSet
from headgate.resources.gateway_api.reference_grant import ReferenceGrant
from headgate.resources.meta import Key, Value
from headgate.resources.selectors import selects
from headgate.settings import Settings
from headgate.shared_map import SharedMap


class PlannedSet(Value, frozen=True, kw_only=True):
    """A ListenerSet with its Gateway, and the plans of its listeners without regard to other objects.

    With a `refusal`, it has no plans: its Gateway is missing or not valid, or does not allow it. It is `foreign` if its Gateway has
    another controller, or its parent is no Gateway.
    """

    gateway: Key
    created: str
    foreign: bool = False
    plans: tuple[ListenerPlan, ...] = ()
    refusal: Finding | None = None


class SetParents:
    """What the plans of ListenerSets depend on. Of the snapshot, only the kinds in `READ` are used."""

    READ = (Gateway, GatewayClass, Namespace, ReferenceGrant, Secret)

    def __init__(self, snapshot: Snapshot, settings: Settings) -> None:
        self.snapshot = snapshot
        self.gateways = own_gateways(snapshot)
        self.settings = settings


def plan_set(parents: SetParents, key: Key, listener_set: ListenerSet) -> PlannedSet:
    """Plan the listeners of a ListenerSet."""
    parent, created = listener_set.gateway, listener_set.metadata.creation_timestamp
    gateway = parents.gateways.get(parent)
    if gateway is None:
        if (parent.group, parent.kind) != (GROUP, "Gateway") or parent in parents.snapshot.objects:
            return PlannedSet(gateway=parent, created=created, foreign=True)
        invalid = parent in parents.snapshot.mistakes
        what, fix = ("is not valid", "correct it") if invalid else ("not found", "create it or correct the name")
        message = f"{parent} {what}, so no proxy serves these listeners; {fix}"
        refusal = Finding(key, Reason.NO_MATCHING_PARENT, "spec.parentRef.name", message)
        return PlannedSet(gateway=parent, created=created, refusal=refusal)
    if not allows(parents.snapshot, gateway, key.namespace):
        message = (
            f"{parent} does not allow ListenerSets from namespace {key.namespace}; change its spec.allowedListeners, which "
            "allows none by default"
        )
        refusal = Finding(key, Reason.NOT_ALLOWED, "spec.parentRef", message, (parent,))
        return PlannedSet(gateway=parent, created=created, refusal=refusal)
    plans = tuple(
        plan_listener(parents.snapshot, key, listener, f"spec.listeners[{index}]", parents.settings)
        for index, listener in enumerate(listener_set.spec.listeners)
    )
    return PlannedSet(gateway=parent, created=created, plans=plans)


def allows(snapshot: Snapshot, gateway: Gateway, namespace: str) -> bool:
    """Return whether a Gateway allows ListenerSets of a namespace."""
    allowed = gateway.spec.allowed_listeners.namespaces
    match allowed.from_:
        case "All":
            return True
        case "Same":
            return namespace == gateway.metadata.namespace
        case "Selector":
            return allowed.selector is not None and selects(allowed.selector, namespace_labels(snapshot, namespace))
        case _:
            return False


class MergedListeners(NamedTuple):
    """The plans of all listeners, by Gateway and ListenerSet, and the ListenerSets of each Gateway in order of precedence."""

    plans: Mapping[Key, tuple[ListenerPlan, ...]]
    sets: Mapping[Key, Sequence[Key]]


def merged(own: Mapping[Key, tuple[ListenerPlan, ...]], sets: SharedMap[Key, PlannedSet]) -> MergedListeners:
    """Merge the listeners of Gateways, which are `own`, with those of ListenerSets.

    The plans of a ListenerSet without a conflict are the same objects as in `sets`.
    """
    attached = ((key, planned) for key, planned in sets.items() if planned.gateway in own and not planned.refusal)
    by_gateway: dict[Key, list[Key]] = {key: [] for key in own}
    places = {key: _Places() for key in own}
    for key, plans in own.items():
        for plan in plans:
            places[key].add(key, plan)
    plans_of = dict(own)
    for key, planned in sorted(attached, key=lambda entry: (entry[1].created, entry[0])):
        by_gateway[planned.gateway].append(key)
        plans_of[key] = _without_conflicts(places[planned.gateway], key, planned.plans)
    return MergedListeners(plans_of, by_gateway)


def validated(
    snapshot: Snapshot, gateways: Mapping[Key, Gateway], listeners: MergedListeners
) -> Mapping[Key, tuple[ListenerPlan, ...]]:
    """Return the plans of all listeners, with the certificates that their Gateways require of clients.

    The setting of a port applies to the listeners of ListenerSets too: a client could request their hosts on the connection to
    another listener of the port.
    """
    plans = dict(listeners.plans)
    for key, sets in listeners.sets.items():
        frontend = gateways[key].spec.tls.frontend
        if frontend.default.validation or frontend.per_port:
            for parent in (key, *sets):
                plans[parent] = tuple(_validated(snapshot, key, gateways[key], plan) for plan in plans[parent])
    return plans


def _validated(snapshot: Snapshot, key: Key, gateway: Gateway, plan: ListenerPlan) -> ListenerPlan:
    """Return the plan of a listener with the certificates that its clients need. Without an authority, it is not served."""
    if not plan.listener.terminates_tls:
        return plan
    validation = port_validation(snapshot, key, gateway, plan.listener.port)
    return structs.replace(
        plan,
        client_certificates=validation.certificates,
        faults=(*plan.faults, *validation.faults),
        warnings=(*plan.warnings, *validation.warnings),
    )


def _without_conflicts(places: "_Places", key: Key, plans: tuple[ListenerPlan, ...]) -> tuple[ListenerPlan, ...]:
    """Return the plans of a ListenerSet, with a fault in each that gives way to an earlier listener; add the remaining ones."""
    conflicts: dict[int, Finding] = {}
    for index, plan in enumerate(plans):
        conflict = places.conflict(key, plan, f"spec.listeners[{index}]")
        if conflict:
            conflicts[index] = conflict
        else:
            places.add(key, plan)
    if not conflicts:
        return plans
    return tuple(
        structs.replace(plan, faults=(conflicts[index], *plan.faults)) if index in conflicts else plan
        for index, plan in enumerate(plans)
    )


class _Places:
    """The ports and hostnames that the listeners of one Gateway have so far, each with its first listener.

    A listener that can't be served for another reason, such as its certificate, keeps its place.
    """

    def __init__(self) -> None:
        self._by_host: dict[tuple[tuple[int, bool], str], tuple[Key, ListenerPlan]] = {}
        self._by_protocol: dict[tuple[int, bool], dict[str, tuple[Key, ListenerPlan]]] = defaultdict(dict)

    def add(self, key: Key, plan: ListenerPlan) -> None:
        """Add a listener of the Gateway or ListenerSet `key`. Listeners with an unknown protocol have no place."""
        listener = plan.listener
        if listener.protocol in KINDS:
            self._by_host.setdefault((listener.socket, plan.host), (key, plan))
            self._by_protocol[listener.socket].setdefault(listener.protocol, (key, plan))

    def conflict(self, key: Key, plan: ListenerPlan, field: str) -> Finding | None:
        """Return a finding if a listener can't share its port with an earlier one."""
        listener = plan.listener
        by_protocol = self._by_protocol.get(listener.socket, {})
        if not by_protocol or listener.protocol not in KINDS:
            return None
        for protocol, (first, other) in by_protocol.items():
            if protocol == listener.protocol or share_port({protocol, listener.protocol}):
                continue
            has = f"{first} has the listener {other.listener.name}"
            message = f"{has} with protocol {other.listener.protocol} on port {listener.port}; give listener {listener.name} another port"
            return Finding(key, Reason.LISTENER_PROTOCOL_CONFLICT, f"{field}.protocol", message, _related(key, first))
        if same := self._by_host.get((listener.socket, plan.host)):
            first, other = same
            message = (
                f"{first} has the listener {other.listener.name} with the same port and hostname; give listener "
                f"{listener.name} another hostname or port"
            )
            return Finding(key, Reason.LISTENER_HOSTNAME_CONFLICT, f"{field}.hostname", message, _related(key, first))
        return None


def _related(key: Key, first: Key) -> tuple[Key, ...]:
    return (first,) if first != key else ()
