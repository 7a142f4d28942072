"""Routes to the listeners and Service ports that they name in parentRefs, or why not."""

from collections.abc import Mapping, Sequence

from headgate.compiler.hostnames import attached_hosts
from headgate.compiler.listeners import ListenerPlan
from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.compiler.rules import CompiledRoute
from headgate.compiler.snapshot import Snapshot
from headgate.resources.core import Namespace
from headgate.resources.gateway import Listener
from headgate.resources.meta import Key, Value
from headgate.resources.routes import ParentReference
from headgate.resources.workloads import selects

Plans = Mapping[Key, Sequence[ListenerPlan]]


class Attachment(Value, frozen=True, kw_only=True):
    """A route at a listener (by its name): the hosts that both have."""

    route: CompiledRoute
    listener: str
    hosts: tuple[str, ...] = ()


def attach(
    snapshot: Snapshot, route: CompiledRoute, ref: ParentReference, *, plans: Sequence[ListenerPlan], field: str
) -> tuple[tuple[Attachment, ...], Finding | None]:
    """Attach a route to the listeners of a Gateway that its parentRef names and that take it, or say why none does."""

    def refusal(reason: Reason, message: str) -> tuple[tuple[Attachment, ...], Finding]:
        return (), Finding(about=route.key, reason=reason, field=field, message=message)

    named = [plan for plan in plans if _is_named(plan.listener, ref)]
    if not named:
        offered = ", ".join(f"{plan.listener.name} (port {plan.listener.port})" for plan in plans)
        message = f"the Gateway {ref.name} has no such listener; it has {offered or 'none'}"
        return refusal(Reason.NO_MATCHING_PARENT, message)
    gateway_namespace = ref.namespace or route.key.namespace
    allowed = [plan for plan in named if _takes(snapshot, plan, route.key, gateway_namespace)]
    if not allowed:
        message = (
            f"no listener of the Gateway {ref.name} takes a {route.key.kind} from the namespace {route.key.namespace}; see "
            "allowedRoutes of its listeners (as a default they take routes of the Gateway's own namespace)"
        )
        return refusal(Reason.NOT_ALLOWED_BY_LISTENERS, message)
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
        return refusal(Reason.NO_MATCHING_LISTENER_HOSTNAME, message)
    return served, None


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
