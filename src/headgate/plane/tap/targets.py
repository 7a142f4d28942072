"""Tap targets: which proxies log requests for a tap, and which log records belong to the tap."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from headgate.envoy import names
from headgate.envoy.node_ids import pod_of
from headgate.envoy.view import sidecar
from headgate.kinds import ROUTE_KINDS
from headgate.model.routing import Mesh, PortRef
from headgate.resources.meta import Value
from headgate.resources.pod_owners import POD, Ref
from headgate.telemetry.answers.object_graph import SERVICE, ObjectGraph
from headgate.telemetry.reports.tap_records import TapRecord

ROUTES = frozenset(route.kind for route in ROUTE_KINDS)
"""Kinds for which a tap selects requests by the route that the client's proxy chose."""
GATEWAY = "Gateway"


class TapProxies(NamedTuple):
    """The proxies from which a target selects: the node IDs `gateways`, and the sidecars of the workloads in `mesh`.

    `callers` has the identities of clients that called the target since the tap began.
    """

    mesh: Mesh
    gateways: Sequence[str]
    callers: frozenset[str]


class TapTarget(Protocol):
    """The object that a user taps."""

    def proxies(self, present: TapProxies) -> Iterator[str]:
        """Yield the node IDs of the proxies that must log requests for the tap."""

    def matches(self, record: TapRecord) -> bool:
        """Return whether the request of a log record belongs to the target."""


class PodTarget(Value, frozen=True, kw_only=True):
    """The pods of an object such as a Deployment. The tap shows requests that these pods receive and send."""

    target: Ref
    graph: ObjectGraph

    def proxies(self, present: TapProxies) -> Iterator[str]:
        """Yield the pods' own proxies, the gateways, and the proxies of callers."""
        yield from present.gateways
        for workload in present.mesh.workloads:
            if workload.identity in present.callers or self._owns(workload.name):
                yield sidecar(workload).id

    def matches(self, record: TapRecord) -> bool:
        """Return whether a pod of the object sent or received the request.

        For a Service, return whether a client called the Service or reached one of its pods.
        """
        own = pod_of(record.node)
        if record.port:
            return self._owns(own)
        if self.target.kind == SERVICE and str(self.target) in (record.backend, service_called(record)):
            return True
        return self._owns(record.server.pod) or (self.target.kind != SERVICE and self._owns(own))

    def _owns(self, pod: str) -> bool:
        if not pod:
            return False
        return self.target in self.graph.resources_of(Ref(POD, *pod.split("/", 1)), self.target.kind)


class RouteTarget(Value, frozen=True, kw_only=True):
    """A route object or a Gateway, by kind and name (`namespace/name`). The tap shows requests that use the object."""

    kind: str
    name: str

    def proxies(self, present: TapProxies) -> Iterator[str]:
        """Yield all proxies, because the client of any proxy may use the route. For a Gateway, yield only the gateways."""
        yield from present.gateways
        if self.kind != GATEWAY:
            yield from (sidecar(workload).id for workload in present.mesh.workloads)

    def matches(self, record: TapRecord) -> bool:
        """Return whether the request used the route or entered at the Gateway."""
        if self.kind == GATEWAY:
            port = port_called(record)
            return isinstance(port, names.GatewayRef) and port.gateway == self.name
        return record.route == f"{self.kind} {self.name}"


def target_of(ref: Ref, graph: ObjectGraph) -> TapTarget:
    """Return the target of a tap on the object `ref`."""
    if ref.kind in ROUTES or ref.kind == GATEWAY:
        return RouteTarget(kind=ref.kind, name=str(ref))
    return PodTarget(target=ref, graph=graph)


def port_called(record: TapRecord) -> names.RouteParent | None:
    """Return the Service port or Gateway port that a client called; None if the record's cluster has no port."""
    try:
        return names.parse(record.cluster) or names.parse_gateway(record.cluster)
    except ValueError:
        return None


def service_called(record: TapRecord) -> str:
    """Return the Service (`namespace/name`) that a client called; empty if it called no Service."""
    port = port_called(record)
    return port.service if isinstance(port, PortRef) else ""
