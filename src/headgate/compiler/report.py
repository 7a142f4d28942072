"""What the compiler has to say about the user's objects."""

from collections.abc import Sequence

from headgate.compiler.reasons import Reason
from headgate.model.routing import Mesh, PortRef
from headgate.resources.meta import Key, Value

_NAMED_PODS = 3  # at most, in a message


class Finding(Value, frozen=True):
    """Something to tell about an object: `field` is the path as the user wrote it, `related` are other objects in it."""

    about: Key
    reason: Reason
    field: str
    message: str
    related: tuple[Key, ...] = ()


class Share(Value, frozen=True, kw_only=True):
    """What one backend of a split gets on one port: `weight` as written, `numerator`/`denominator` of the requests.

    `left_out` says why a backend gets less than its weight asks for.
    """

    service: str
    weight: int
    numerator: int
    denominator: int
    endpoints: int
    left_out: Reason | None = None


class SplitOutcome(Value, frozen=True, kw_only=True):
    """What a split does on one port of its root."""

    about: Key
    ref: PortRef
    shares: tuple[Share, ...]


class StatusCondition(Value, frozen=True, kw_only=True):
    """One condition of a status, in the words of the Gateway API: type, True or False, reason, message."""

    type: str
    status: bool
    reason: str
    message: str = ""


class ParentStatus(Value, frozen=True, kw_only=True):
    """What `spec.parentRefs[index]` of a route came to, for parents that are headgate's own.

    `ports` are the Service ports that the route decides for, `gateway_ports` the ports of the Gateway (the parent).
    """

    about: Key
    index: int
    parent: Key
    conditions: tuple[StatusCondition, ...]
    ports: tuple[PortRef, ...] = ()
    gateway_ports: tuple[int, ...] = ()


class ListenerOutcome(Value, frozen=True, kw_only=True):
    """What a listener came to; `kinds` are the kinds of routes that it takes, as (group, kind), `attached` how many."""

    name: str
    attached: int
    kinds: tuple[tuple[str, str], ...]
    conditions: tuple[StatusCondition, ...]


class GatewayOutcome(Value, frozen=True, kw_only=True):
    """What a Gateway came to; `ports` are those that proxies serve. Programmed is for whoever knows the proxies."""

    about: Key
    ports: tuple[int, ...]
    listeners: tuple[ListenerOutcome, ...]
    conditions: tuple[StatusCondition, ...]


class SelectedPods(Value, frozen=True, kw_only=True):
    """The pods (`namespace/pod`) that a TLSConfig or a TrafficTarget is about: those with a sidecar, and those without."""

    about: Key
    workloads: tuple[str, ...] = ()
    without_sidecar: tuple[str, ...] = ()


class Report(Value, frozen=True, kw_only=True):
    """Findings and outcomes, sorted by object; `seen` are the objects that were looked at, with their generations.

    `parents` and `gateways` are what the statuses of routes and Gateways say, `selected` what those of TLSConfigs and
    TrafficTargets say.
    """

    seen: dict[Key, int]
    findings: tuple[Finding, ...] = ()
    outcomes: tuple[SplitOutcome, ...] = ()
    parents: tuple[ParentStatus, ...] = ()
    gateways: tuple[GatewayOutcome, ...] = ()
    selected: tuple[SelectedPods, ...] = ()


class Compiled(Value, frozen=True, kw_only=True):
    """The compiler's answer for one revision of the objects."""

    revision: int
    mesh: Mesh
    report: Report


def pod_list(pods: Sequence[str]) -> str:
    """Name pods, a few at most: `pod default/a`, `pods default/a, default/b, default/c and 7 more`."""
    names = ", ".join(pods[:_NAMED_PODS])
    if len(pods) == 1:
        return f"pod {names}"
    return f"pods {names} and {len(pods) - _NAMED_PODS} more" if len(pods) > _NAMED_PODS else f"pods {names}"
