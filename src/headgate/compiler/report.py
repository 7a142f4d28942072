"""The report of a compilation: findings, outcomes and statuses of the user's objects."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TypeVar

from headgate.compiler.reasons import Reason
from headgate.model.routing import Mesh, PortRef
from headgate.resources.core.service import Service
from headgate.resources.gateway_api.proxies import SERVICE_GATEWAY
from headgate.resources.meta import Key, Value
from headgate.shared_map import SharedMap, replaced

K = TypeVar("K")
_NAMED_PODS = 3  # the largest number of pods that a message names


class Finding(Value, frozen=True):
    """A problem or a note about an object.

    `field` is the path as the user wrote it; `related` has other objects that the message names.
    """

    about: Key
    reason: Reason
    field: str
    message: str
    related: tuple[Key, ...] = ()


def finding_order(finding: Finding) -> tuple[object, ...]:
    """Return the sort key of the findings in a report."""
    return (finding.about, finding.field, finding.reason.value, finding.message)


class Share(Value, frozen=True, kw_only=True):
    """The exact `share` of the requests that one backend of a split gets on one port.

    `weight` is as written; `left_out` says why a backend gets less than its weight.
    """

    service: str
    weight: int
    share: Fraction
    endpoints: int
    left_out: Reason | None = None


class SplitOutcome(Value, frozen=True, kw_only=True):
    """The shares of a split on one port of its root: those of its backends, and of what is left of the requests.

    `root` is the share of the root Service's own endpoints (R42). `failed` is the share that proxies answer with 503 (D9,
    D10). All shares together are 1.
    """

    about: Key
    ref: PortRef
    shares: tuple[Share, ...]
    root: Fraction
    failed: Fraction


class StatusCondition(Value, frozen=True, kw_only=True):
    """A condition of a status as in the Gateway API: type, status, reason and message. The status None is Unknown."""

    type: str
    status: bool | None
    reason: str
    message: str = ""


class ParentStatus(Value, frozen=True, kw_only=True):
    """The status of `spec.parentRefs[index]` of a route, for parents that headgate serves; the `index` of a default Gateway is -1.

    `parent` is the Gateway, ListenerSet or Service; `gateway` is the Gateway (`namespace/name`) of the first two.
    `ports` has the Service ports where the route applies. `gateway_hosts` has ports of a Gateway, each with a host; the
    host is empty if some of the route's hosts on the port are wildcards. With `consumer`, the route applies to sidecars of this
    namespace only.
    """

    about: Key
    index: int
    parent: Key
    conditions: tuple[StatusCondition, ...]
    gateway: str = ""
    ports: tuple[PortRef, ...] = ()
    gateway_hosts: tuple[tuple[int, str], ...] = ()
    consumer: str = ""

    @property
    def gateway_ports(self) -> tuple[int, ...]:
        """The ports of a Gateway where the route applies."""
        return tuple(sorted({port for port, _ in self.gateway_hosts}))


class PassingRoute(Value, frozen=True, kw_only=True):
    """A route with other backends than Services: the TrafficSplits that its requests pass, the XBackends that they reach, and its statuses."""

    passed: tuple[Key, ...]
    parents: tuple[ParentStatus, ...]


class ListenerOutcome(Value, frozen=True, kw_only=True):
    """The status of a listener.

    `kinds` has the allowed kinds of routes as (group, kind); `attached` is the number of attached routes. `is_served` says whether
    clients can connect to it, and `secrets` has the Secrets (`namespace/name`) with its certificates.
    """

    name: str
    port: int
    host: str
    is_served: bool
    secrets: tuple[str, ...]
    attached: int
    kinds: tuple[tuple[str, str], ...]
    conditions: tuple[StatusCondition, ...]
    is_udp: bool = False


class GatewayOutcome(Value, frozen=True, kw_only=True):
    """The status of a Gateway or ListenerSet; `ports` has those ports of its listeners that proxies serve, `udp_ports` those for datagrams.

    `gateway` is the Gateway (`namespace/name`), and `sets` the number of its ListenerSets with a listener that is served; it is None
    for a ListenerSet. The plane adds the condition Programmed, because the compiler does not know the proxies. With `withdraws`, it
    only replaces a status that says Accepted: the controller of a Gateway that is gone is not known.
    """

    about: Key
    gateway: str
    sets: int | None
    ports: tuple[int, ...]
    listeners: tuple[ListenerOutcome, ...]
    conditions: tuple[StatusCondition, ...]
    udp_ports: tuple[int, ...] = ()
    withdraws: bool = False


class AncestorOutcome(Value, frozen=True, kw_only=True):
    """The status of a policy at `key`: a Gateway whose routes lead to its Services, or a Service that it targets.

    Proxies apply the policy at `ports`, which are ports of Gateways, and at the ports `services`.
    """

    key: Key
    conditions: tuple[StatusCondition, ...]
    ports: tuple[tuple[Key, int], ...] = ()
    services: tuple[PortRef, ...] = ()


class PolicyOutcome(Value, frozen=True, kw_only=True):
    """The status of a BackendTLSPolicy at Gateways, or of an XBackendTrafficPolicy at Services."""

    about: Key
    ancestors: tuple[AncestorOutcome, ...]


class SelectedPods(Value, frozen=True, kw_only=True):
    """The pods (`namespace/pod`) that a TLSConfig or TrafficTarget selects: with a sidecar, and without."""

    about: Key
    workloads: tuple[str, ...] = ()
    without_sidecar: tuple[str, ...] = ()


class SidecarPods(Value, frozen=True, kw_only=True):
    """The pods (`namespace/pod`) that a Sidecar selects.

    `current` pods have its current generation, and `outdated` pods get it when they are replaced. Pods `without_proxy`
    get nothing. `conflicts` has pairs of a pod and an item that the pod already had: `containers/agent`.
    """

    about: Key
    current: tuple[str, ...] = ()
    outdated: tuple[str, ...] = ()
    without_proxy: tuple[str, ...] = ()
    conflicts: tuple[tuple[str, str], ...] = ()

    @property
    def total(self) -> int:
        """The number of selected pods."""
        return len(self.current) + len(self.outdated) + len(self.without_proxy)


class ServiceGateway(Value, frozen=True, kw_only=True):
    """A request for a gateway: the Service `key`, the object that requests it, and the program of the proxy.

    `fault` says why the Service can't have a gateway; it is empty if it can. The gateway `serves` unless another one already
    does, that of the machine.
    """

    about: Key
    proxy: str
    key: Key
    service: Service
    fault: str = ""
    serves: bool = False

    @property
    def name(self) -> str:
        """The `namespace/name` of the Service."""
        return f"{self.key.namespace}/{self.key.name}"

    @property
    def field(self) -> str:
        """The field of the object `about` that requests the gateway: an annotation of a Service, or a field of a Canary."""
        return f"metadata.annotations.{SERVICE_GATEWAY}" if self.about == self.key else "spec.gateway"


class Report(Value, frozen=True, kw_only=True):
    """The findings and outcomes of a compilation.

    `seen` has the generation of each compiled object, `findings_of` the findings about an object in order, and
    `parents_of` the statuses of a route in order, and `passing_routes` the routes that lead to TrafficSplits and XBackends. `outcomes`, `gateways`, `policies`, `selected` and `sidecars` are sorted by object:
    the results for TrafficSplits, Gateways with their ListenerSets, BackendTLSPolicies, TLSConfigs and TrafficTargets, and Sidecars. `service_gateways` has the
    requests for gateways of existing Services, sorted by Service.
    """

    seen: SharedMap[Key, int]
    findings_of: SharedMap[Key, tuple[Finding, ...]] = SharedMap()
    parents_of: SharedMap[Key, tuple[ParentStatus, ...]] = SharedMap()
    passing_routes: SharedMap[Key, PassingRoute] = SharedMap()
    outcomes: tuple[SplitOutcome, ...] = ()
    gateways: tuple[GatewayOutcome, ...] = ()
    policies: tuple[PolicyOutcome, ...] = ()
    selected: tuple[SelectedPods, ...] = ()
    sidecars: tuple[SidecarPods, ...] = ()
    service_gateways: tuple[ServiceGateway, ...] = ()

    def listener_at(self, gateway: str, port: int, host: str) -> tuple[Key, str] | None:
        """Return the Gateway or ListenerSet of a Gateway's listener with this hostname, and the listener's name."""
        for outcome in self.gateways:
            for listener in outcome.listeners if outcome.gateway == gateway else ():
                if listener.is_served and (listener.port, listener.host) == (port, host):
                    return outcome.about, listener.name
        return None

    def certificate_owners(self) -> Mapping[tuple[str, str], tuple[Key, ...]]:
        """Return the Gateways and ListenerSets that refer to a Secret, by Gateway and Secret (both `namespace/name`)."""
        owners: dict[tuple[str, str], tuple[Key, ...]] = {}
        for outcome in self.gateways:
            for secret in {secret for listener in outcome.listeners for secret in listener.secrets}:
                owners[outcome.gateway, secret] = (*owners.get((outcome.gateway, secret), ()), outcome.about)
        return owners

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings, sorted by object."""
        return tuple(finding for key in sorted(self.findings_of) for finding in self.findings_of[key])

    @property
    def parents(self) -> tuple[ParentStatus, ...]:
        """The statuses of all routes, sorted by object."""
        return tuple(status for key in sorted(self.parents_of) for status in self.parents_of[key])


class Compiled(Value, frozen=True, kw_only=True):
    """The result of one compilation: the mesh and the report for one revision of the objects."""

    revision: int
    mesh: Mesh
    report: Report


def pod_list(pods: Sequence[str]) -> str:
    """Return the names of pods as text, at most three: `pods default/a, default/b, default/c and 7 more`."""
    names = ", ".join(pods[:_NAMED_PODS])
    if len(pods) == 1:
        return f"pod {names}"
    return f"pods {names} and {len(pods) - _NAMED_PODS} more" if len(pods) > _NAMED_PODS else f"pods {names}"


def differing(before: Mapping[K, object], now: Mapping[K, object]) -> list[K]:
    """Return the keys whose values differ; unchanged values are usually the same objects, which are compared fast."""
    new, gone = replaced(before, now)
    return [*(key for key, value in new.items() if before.get(key) != value), *gone]
