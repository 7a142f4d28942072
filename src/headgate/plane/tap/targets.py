"""Which proxies record requests for a tap, and which records it shows. Pure."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from headgate.envoy import names
from headgate.envoy.view import pod_of, sidecar
from headgate.model.routing import Mesh, PortRef
from headgate.resources.meta import Value
from headgate.resources.pod_owners import POD, Ref
from headgate.telemetry.answers.object_graph import SERVICE, ObjectGraph
from headgate.telemetry.reports.tap_records import Record

ROUTES = frozenset({"TrafficSplit", "HTTPRoute", "GRPCRoute"})
"""Kinds whose requests are known by the route that a client's proxy chose."""
GATEWAY = "Gateway"


class TapProxies(NamedTuple):
    """The proxies of one moment: node ids of gateways, and the sidecars of the mesh's workloads.

    `callers` are the identities that called the target's own proxies since the tap began.
    """

    mesh: Mesh
    gateways: Sequence[str]
    callers: frozenset[str]


class Target(Protocol):
    """What a user taps."""

    def proxies(self, present: TapProxies) -> Iterator[str]:
        """Yield node ids of the proxies that record."""

    def wants(self, record: Record) -> bool:
        """Say whether a record is about the target."""


class PodTarget(Value, frozen=True, kw_only=True):
    """The pods of a resource: what they receive, what they send, and what their callers' proxies say of it."""

    target: Ref
    graph: ObjectGraph

    def proxies(self, present: TapProxies) -> Iterator[str]:
        """Yield the pods' own proxies, the gateways, and the proxies of callers."""
        yield from present.gateways
        for workload in present.mesh.workloads:
            if workload.identity in present.callers or self._has(workload.name):
                yield sidecar(workload).id

    def wants(self, record: Record) -> bool:
        """Say whether a pod of the resource sent or took the request; for a Service, whether it was the one called."""
        own = pod_of(record.node)
        if record.port:
            return self._has(own)
        if self.target.kind == SERVICE and str(self.target) in (record.backend, service_called(record)):
            return True
        return self._has(record.server.pod) or (self.target.kind != SERVICE and self._has(own))

    def _has(self, pod: str) -> bool:
        if not pod:
            return False
        return self.target in self.graph.resources_of(Ref(POD, *pod.split("/", 1)), self.target.kind)


class RouteTarget(Value, frozen=True, kw_only=True):
    """The requests that a route object decides about, or that come in at a Gateway: they are the client's side."""

    kind: str
    name: str

    def proxies(self, present: TapProxies) -> Iterator[str]:
        """Yield every proxy: each may have clients that use the route. A Gateway is the gateways' alone."""
        yield from present.gateways
        if self.kind != GATEWAY:
            yield from (sidecar(workload).id for workload in present.mesh.workloads)

    def wants(self, record: Record) -> bool:
        """Say whether the route was chosen."""
        if self.kind == GATEWAY:
            place = place_called(record)
            return isinstance(place, names.GatewayRef) and place.gateway == self.name
        return record.route == f"{self.kind} {self.name}"


def target_of(ref: Ref, graph: ObjectGraph) -> Target:
    """Return what is tapped."""
    if ref.kind in ROUTES or ref.kind == GATEWAY:
        return RouteTarget(kind=ref.kind, name=str(ref))
    return PodTarget(target=ref, graph=graph)


def place_called(record: Record) -> names.RouteParent | None:
    """Return the port of a Service or Gateway that a client called; None when the cluster is not headgate's."""
    try:
        return names.parse(record.cluster) or names.parse_gateway(record.cluster)
    except ValueError:
        return None


def service_called(record: Record) -> str:
    """Return the Service (`namespace/name`) that a client called."""
    place = place_called(record)
    return place.service if isinstance(place, PortRef) else ""
