"""How a route's split becomes clusters: decided here, from the model alone (ADR 0003).

A split is one cluster with a weighted locality for each backend: exact to the request, and a change of weights or
endpoints is one small resource. Where a share must fail, or backends share an endpoint (Envoy keeps only one of two
equal addresses in a cluster), it is one cluster for each backend, and the route draws between them.
"""

from collections.abc import Iterator, Mapping

from headgate.envoy import names
from headgate.model.routing import Endpoint, PortRef, RouteTable, Split
from headgate.resources.meta import Value


class Locality(Value, frozen=True, kw_only=True):
    """The endpoints of one backend (`namespace/name`) and its weight within the cluster."""

    backend: str
    weight: int
    endpoints: tuple[Endpoint, ...]


class ClusterPlan(Value, frozen=True, kw_only=True):
    """One cluster and what is in it."""

    name: str
    localities: tuple[Locality, ...] = ()


class WeightedName(Value, frozen=True, kw_only=True):
    """A cluster and its share of a route."""

    cluster: str
    weight: int


class RoutePlan(Value, frozen=True, kw_only=True):
    """The routes of a Service port: the clusters to draw from."""

    name: str
    clusters: tuple[WeightedName, ...]


def plan(table: RouteTable, ready: Mapping[PortRef, tuple[Endpoint, ...]]) -> tuple[RoutePlan, tuple[ClusterPlan, ...]]:
    """Decide which clusters the routes of a Service port need."""
    split = table.routes[0].split
    if split.broken or _overlap(split, ready):
        clusters = tuple(_separate(table.ref, split, ready))
        weights = [target.weight for target in split.targets]
        if split.broken:
            weights.append(sum(share.weight for share in split.broken))
    else:
        clusters = (ClusterPlan(name=names.outbound(table.ref), localities=tuple(_localities(split, ready))),)
        weights = [1]
    weighted = (
        WeightedName(cluster=cluster.name, weight=weight) for cluster, weight in zip(clusters, weights, strict=True)
    )
    return RoutePlan(name=names.outbound(table.ref), clusters=tuple(weighted)), clusters


def _overlap(split: Split, ready: Mapping[PortRef, tuple[Endpoint, ...]]) -> bool:
    places = [(item.address, item.port) for target in split.targets for item in ready[target.ref]]
    return len(places) != len(set(places))


def _localities(split: Split, ready: Mapping[PortRef, tuple[Endpoint, ...]]) -> Iterator[Locality]:
    for target in split.targets:
        if endpoints := ready[target.ref]:
            yield Locality(backend=target.ref.service, weight=target.weight, endpoints=endpoints)


def _separate(ref: PortRef, split: Split, ready: Mapping[PortRef, tuple[Endpoint, ...]]) -> Iterator[ClusterPlan]:
    for target in split.targets:
        service = target.ref.service
        locality = Locality(backend=service, weight=1, endpoints=ready[target.ref])
        yield ClusterPlan(name=names.backend(ref, service), localities=(locality,) if locality.endpoints else ())
    if split.broken:
        yield ClusterPlan(name=names.none(ref))
