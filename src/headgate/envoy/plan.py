"""How a route's split becomes clusters: decided here, from the model alone (ADR 0003).

A split is one cluster with a weighted locality for each backend: exact to the request, and a change of weights or
endpoints is one small resource. Where a share must fail, or backends share an endpoint (Envoy keeps only one of two
equal addresses in a cluster), it is one cluster for each backend, and the route draws between them.
"""

from collections.abc import Iterator, Mapping

from headgate.envoy import names
from headgate.model.matching import ANY, Match
from headgate.model.refs import PortRef
from headgate.model.routing import Endpoint, Route, RouteTable, Split
from headgate.resources.meta import Value

Ready = Mapping[PortRef, tuple[Endpoint, ...]]


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


class Draw(Value, frozen=True, kw_only=True):
    """Requests, and the clusters that they are drawn between."""

    match: Match
    clusters: tuple[WeightedName, ...]


class RoutePlan(Value, frozen=True, kw_only=True):
    """The routes of a Service port, in their order."""

    name: str
    draws: tuple[Draw, ...]

    @property
    def clusters(self) -> tuple[str, ...]:
        """Return every cluster that the routes name."""
        return tuple(dict.fromkeys(item.cluster for draw in self.draws for item in draw.clusters))


def plan(table: RouteTable, ready: Ready) -> tuple[RoutePlan, tuple[ClusterPlan, ...]]:
    """Decide which clusters the routes of a Service port need."""
    clusters: dict[str, ClusterPlan] = {}
    draws: list[Draw] = []
    for route in table.routes:
        weighted, needed = _clusters(table.ref, route, ready)
        clusters |= {cluster.name: cluster for cluster in needed}
        draws.append(Draw(match=route.match, clusters=weighted))
    return RoutePlan(name=names.outbound(table.ref), draws=tuple(draws)), tuple(clusters.values())


def _clusters(ref: PortRef, route: Route, ready: Ready) -> tuple[tuple[WeightedName, ...], tuple[ClusterPlan, ...]]:
    split = route.split
    if not split.broken and not _overlap(split, ready):
        name = names.outbound(ref) if route.match == ANY else names.matched(ref, route.origin)
        cluster = ClusterPlan(name=name, localities=tuple(_localities(split, ready)))
        return (WeightedName(cluster=name, weight=1),), (cluster,)
    clusters = tuple(_separate(ref, split, ready))
    weights = [target.weight for target in split.targets]
    if split.broken:
        weights.append(sum(share.weight for share in split.broken))
    weighted = zip(clusters, weights, strict=True)
    return tuple(WeightedName(cluster=cluster.name, weight=weight) for cluster, weight in weighted), clusters


def _overlap(split: Split, ready: Ready) -> bool:
    places = [(item.address, item.port) for target in split.targets for item in ready[target.ref]]
    return len(places) != len(set(places))


def _localities(split: Split, ready: Ready) -> Iterator[Locality]:
    for target in split.targets:
        if endpoints := ready[target.ref]:
            yield Locality(backend=target.ref.service, weight=target.weight, endpoints=endpoints)


def _separate(ref: PortRef, split: Split, ready: Ready) -> Iterator[ClusterPlan]:
    for target in split.targets:
        service = target.ref.service
        locality = Locality(backend=service, weight=1, endpoints=ready[target.ref])
        yield ClusterPlan(name=names.backend(ref, service), localities=(locality,) if locality.endpoints else ())
    if split.broken:
        yield ClusterPlan(name=names.none(ref))
