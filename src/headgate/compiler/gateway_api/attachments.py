"""Routes to the listeners and Service ports that they name in parentRefs, or why not."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from headgate.compiler.gateway_api.hostnames import attached_hosts, intersection
from headgate.compiler.gateway_api.listeners import ListenerPlan
from headgate.compiler.gateway_api.rules import CompiledRoute
from headgate.compiler.reasons import Reason
from headgate.compiler.snapshot import Snapshot
from headgate.resources.core import Namespace
from headgate.resources.gateway import Listener
from headgate.resources.meta import Key, Value
from headgate.resources.routes import ParentReference
from headgate.resources.workloads import selects


class Attachment(Value, frozen=True, kw_only=True):
    """A route at a listener (by its name): the hosts that both have."""

    route: CompiledRoute
    listener: str
    hosts: tuple[str, ...] = ()


Older: TypeAlias = Mapping[tuple[str, str], Sequence[Attachment]]
_RIVALS = MappingProxyType({"HTTPRoute": "GRPCRoute", "GRPCRoute": "HTTPRoute", "TCPRoute": "TCPRoute"})


class Refusal(NamedTuple):
    """Why a route is not attached."""

    reason: Reason
    message: str


def attach(
    snapshot: Snapshot,
    route: CompiledRoute,
    ref: ParentReference,
    *,
    plans: Sequence[ListenerPlan],
    older: Older,
) -> tuple[Attachment, ...] | Refusal:
    """Attach a route to the listeners of a Gateway that its parentRef names and that take it, or say why none does.

    `older` is what the Gateway has already, by listener and kind.
    """
    gateway_namespace = ref.namespace or route.key.namespace
    named = [plan for plan in plans if _is_named(plan.listener, ref)]
    if not named:
        offered = ", ".join(f"{plan.listener.name} (port {plan.listener.port})" for plan in plans)
        message = f"Gateway {gateway_namespace}/{ref.name} has no such listener; it has {offered or 'none'}"
        return Refusal(Reason.NO_MATCHING_PARENT, message)
    allowed = [plan for plan in named if _takes(snapshot, plan, route.key, gateway_namespace)]
    if not allowed:
        message = (
            f"no listener of Gateway {gateway_namespace}/{ref.name} takes {route.key.kind}s from the namespace "
            f"{route.key.namespace}; see "
            "allowedRoutes of its listeners (as a default they take routes of the Gateway's own namespace)"
        )
        return Refusal(Reason.NOT_ALLOWED_BY_LISTENERS, message)
    found = [
        Attachment(route=route, listener=plan.listener.name, hosts=attached_hosts(plan.host, route.hostnames))
        for plan in allowed
    ]
    served = tuple(item for item in found if item.hosts)
    if not served:
        message = (
            f"the hostnames {', '.join(route.hostnames)} are none that the listeners serve: "
            f"{', '.join(plan.host for plan in allowed)}"
        )
        return Refusal(Reason.NO_MATCHING_LISTENER_HOSTNAME, message)
    free = tuple(item for item in served if not _rival(item, older))
    return free or Refusal(Reason.CONFLICTED, _taken(served[0], older))


def _rival(item: Attachment, older: Older) -> Attachment | None:
    """Return an older route that excludes one at its listener.

    Nothing tells connections apart, so the oldest TCPRoute has them all; and hosts are for HTTPRoutes or for GRPCRoutes.
    """
    others = older.get((item.listener, _RIVALS[item.route.key.kind]), ())
    if item.route.connections:
        return next((other for other in others if other.route.key != item.route.key), None)
    return next(
        (other for other in others for host in other.hosts for own in item.hosts if intersection(own, host)), None
    )


def _taken(item: Attachment, older: Older) -> str:
    rival = _rival(item, older)
    name = rival.route.key if rival else ""
    what = "connections" if item.route.connections else "hosts"
    return f"the listener {item.listener} gives these {what} to {name} already, which is older; change one of the two"


def _is_named(listener: Listener, ref: ParentReference) -> bool:
    return ref.section_name in {"", listener.name} and ref.port in {None, listener.port}


def _takes(snapshot: Snapshot, plan: ListenerPlan, about: Key, gateway_namespace: str) -> bool:
    if about.kind not in plan.kinds:
        return False
    namespaces = plan.listener.allowed_routes.namespaces
    if namespaces.from_ == "All":
        return True
    if namespaces.from_ == "Same":
        return about.namespace == gateway_namespace
    if namespaces.from_ != "Selector" or namespaces.selector is None:
        return False
    return selects(namespaces.selector, _labels(snapshot, about.namespace))


def _labels(snapshot: Snapshot, namespace: str) -> Mapping[str, str]:
    """Return a namespace's labels, with the one that every namespace has of itself."""
    item = snapshot.objects.get(Key("", "Namespace", "", namespace))
    own = item.metadata.labels if isinstance(item, Namespace) else {}
    return {"kubernetes.io/metadata.name": namespace} | own
