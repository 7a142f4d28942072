"""How a route's split becomes clusters: decided here, from the model alone (ADR 0003).

A split is one cluster with a weighted locality for each backend: exact to the request, and a change of weights or
endpoints is one small resource. Where a share must fail, where backends have filters or protocols of their own, or where
they share an endpoint (Envoy keeps only one of two equal addresses in a cluster), or one is a name that the proxy
resolves, it is one cluster for each backend, and the route draws between them. Where users stay on their side, the route
does not draw: it looks up the user's slot.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from math import lcm
from types import MappingProxyType

from msgspec import structs

from headgate.envoy import names
from headgate.envoy.names import RouteParent
from headgate.envoy.route_filters import ListenerInfo, complete_redirect
from headgate.envoy.upstream_tls import Peer
from headgate.model.requests import ANY, NO_FILTERS, Filters, Match, Redirect, Timeouts
from headgate.model.routing import Endpoint, PortRef, Protocol, Route, RouteTable, Split, Sticky, Target, server_name
from headgate.resources.meta import Key, Value

Ready = Mapping[PortRef, tuple[Endpoint, ...]]
Protocols = Mapping[PortRef, Protocol]
"""What is spoken on the Service ports that are not plain HTTP."""

NO_PROTOCOLS: Protocols = MappingProxyType({})
UNAVAILABLE = 503
MAX_WEIGHT_SUM = 2**32 - 1  # of the weights in a cluster


class Locality(Value, frozen=True, kw_only=True):
    """The endpoints of one backend (`namespace/name`) and its weight within the cluster.

    `server_name` is how the proxy says which of the backend's ports it means, to endpoints with an identity; without it
    the proxy has no identity of its own, and calls them like all others. `opaque`: the port is not HTTP.
    """

    backend: str
    weight: int
    endpoints: tuple[Endpoint, ...]
    server_name: str = ""
    opaque: bool = False

    def peer(self, endpoint: Endpoint) -> Peer | None:
        """Return who an endpoint must prove to be; none where it is called in plaintext."""
        if not endpoint.identity or not self.server_name:
            return None
        return Peer(identity=endpoint.identity, server_name=self.server_name, opaque=self.opaque)

    @property
    def uses_tls(self) -> bool:
        """Whether an endpoint is called by TLS; then all are, once they are apart (`ClusterPlan.localities_by_tls`)."""
        return any(self.peers)

    @property
    def peers(self) -> set[Peer | None]:
        """The peers of all endpoints; None among them stands for plaintext."""
        return {self.peer(endpoint) for endpoint in self.endpoints}

    def split_by_tls(self) -> list["Locality"]:
        """Return those that are called by TLS, and those in plaintext; only what is there."""
        secured = tuple(item for item in self.endpoints if self.peer(item))
        plaintext = tuple(item for item in self.endpoints if not self.peer(item))
        return [structs.replace(self, endpoints=found) for found in (secured, plaintext) if found]


class ClusterPlan(Value, frozen=True, kw_only=True):
    """One cluster and what is in it. `copies`: it gets only copies of requests."""

    name: str
    localities: tuple[Locality, ...] = ()
    protocol: Protocol = Protocol.HTTP
    is_mirror: bool = False

    @property
    def localities_by_tls(self) -> tuple[Locality, ...]:
        """Return the localities with endpoints in plaintext apart from those by TLS; each keeps its share.

        To Envoy an endpoint is another one in another locality. Elsewhere it would go on with its open connections, in
        plaintext, for as long as they are used. Where weights would become too large, they stay together.
        """
        parts = [locality.split_by_tls() for locality in self.localities]
        scale = lcm(*(len(item.endpoints) for item, several in zip(self.localities, parts, strict=True) if several[1:]))
        if scale * sum(item.weight for item in self.localities) > MAX_WEIGHT_SUM:
            return self.localities
        return tuple(
            structs.replace(part, weight=item.weight * scale * len(part.endpoints) // len(item.endpoints))
            for item, several in zip(self.localities, parts, strict=True)
            for part in several
        )

    @property
    def uses_dns(self) -> bool:
        """Whether it is of a name outside the mesh; then it has no other endpoint."""
        return any(endpoint.resolved for locality in self.localities for endpoint in locality.endpoints)

    @property
    def peers(self) -> tuple[Peer, ...]:
        """Return everybody whom the endpoints must prove to be; nobody where all are called in plaintext."""
        return tuple(sorted({peer for locality in self.localities for peer in locality.peers if peer}))


class ClusterWeight(Value, frozen=True, kw_only=True):
    """A cluster and its share of a route; `filters` are for this share only."""

    cluster: str
    weight: int
    filters: Filters = NO_FILTERS


class MirrorPlan(Value, frozen=True, kw_only=True):
    """A cluster and the fraction of a route's requests that it gets copies of, with another Host if there is one."""

    cluster: str
    numerator: int
    denominator: int
    host: str = ""


class PlannedRoute(Value, frozen=True, kw_only=True):
    """Requests, and the clusters that they are drawn between; without clusters, `status` or `redirect` is the answer.

    With `sticky`, the clusters are the slots of users in their order, and one cluster may stand there several times.
    With `issues_cookie` they are users who have no cookie yet. With `reads_path` the route is looked up again, with the
    path as a state of the request. `origin` and `name` say which route of which object it is.
    """

    match: Match
    clusters: tuple[ClusterWeight, ...] = ()
    status: int = 0
    redirect: Redirect | None = None
    filters: Filters = NO_FILTERS
    mirrors: tuple[MirrorPlan, ...] = ()
    timeouts: Timeouts = Timeouts()
    sticky: Sticky | None = None
    issues_cookie: bool = False
    reads_path: bool = False
    origin: str = ""
    name: str = ""

    @property
    def needs(self) -> Iterator[str]:
        """Yield every cluster that a proxy must hold before it gets the route."""
        yield from (item.cluster for item in self.clusters if item.cluster != names.MISSING)
        yield from (item.cluster for item in self.mirrors)


class RoutePlan(Value, frozen=True, kw_only=True):
    """The routes of a Service port, in their order."""

    name: str
    routes: tuple[PlannedRoute, ...]

    @property
    def connections(self) -> tuple[ClusterWeight, ...]:
        """Return the clusters that connections are drawn between, where nobody looks at requests: those of the last route."""
        return self.routes[-1].clusters if self.routes else ()

    @property
    def clusters(self) -> tuple[str, ...]:
        """Return every cluster that the routes name."""
        return tuple(dict.fromkeys(name for route in self.routes for name in route.needs))


class Planner:
    """Plans the routes of one parent; `clusters` are those that they need, by name.

    `domain` is that of the mesh, where the proxy calls endpoints with an identity by mutual TLS; empty is in plaintext.
    `opaque` are the Service ports whose pods take connections.
    """

    def __init__(
        self,
        parent: RouteParent,
        ready: Ready,
        protocols: Protocols = NO_PROTOCOLS,
        *,
        domain: str = "",
        opaque: Collection[PortRef] = (),
    ) -> None:
        self.clusters: dict[str, ClusterPlan] = {}
        self._parent = parent
        self._ready = ready
        self._protocols = protocols
        self._domain = domain
        self._opaque = opaque

    def plan_routes(self, routes: Iterable[Route], listener: ListenerInfo) -> Iterator[PlannedRoute]:
        """Plan the routes of a Service port or a host, for requests that come in there.

        A request that may fit several conditions on the path is first looked up without them: it gets the next route of
        the same rule, which lets it be looked up again.
        """
        rule_with_paths: tuple[Key | None, str] | None = None
        for route in routes:
            rule, found = (route.origin, route.name), self.plan_route(route, listener)
            yield structs.replace(found, reads_path=True) if rule == rule_with_paths else found
            rule_with_paths = rule if route.match.other_paths else rule_with_paths

    def plan_route(self, route: Route, listener: ListenerInfo) -> PlannedRoute:
        """Plan one route for requests that come in there."""
        origin = str(route.origin) if route.origin else ""
        if route.redirect:
            redirect = complete_redirect(route.redirect, listener)
            return PlannedRoute(
                match=route.match, redirect=redirect, filters=route.filters, origin=origin, name=route.name
            )
        weighted, status = self._weighted(route)
        return PlannedRoute(
            match=route.match,
            origin=origin,
            name=route.name,
            clusters=weighted,
            status=status,
            filters=route.filters,
            mirrors=tuple(self._mirrors(route)) if weighted else (),
            timeouts=route.timeouts,
            sticky=route.split.sticky if weighted else None,
        )

    def plan_pod(self, ref: PortRef, name: str) -> tuple[RoutePlan, ClusterPlan]:
        """Plan what leads to one pod of a Service port, the only one that is ready, whatever is said about the Service."""
        target = Target(ref=ref, weight=1)
        localities = tuple(self._localities([target]))
        cluster = ClusterPlan(name=name, localities=localities, protocol=self._protocol(target))
        share = ClusterWeight(cluster=self._need(cluster), weight=1)
        return RoutePlan(name=name, routes=(PlannedRoute(match=ANY, clusters=(share,)),)), cluster

    def _weighted(self, route: Route) -> tuple[tuple[ClusterWeight, ...], int]:
        """Return the clusters that a route draws between, or the status that answers every request."""
        split = route.split
        statuses = {share.status for share in split.broken}
        if not split.targets and statuses and UNAVAILABLE not in statuses:
            return (), min(statuses)
        if split.sticky:
            return tuple(self._by_slots(route, split.sticky)), 0
        if split.broken or _filtered(split) or not self._fit_together(split.targets) or len(self._spoken(route)) > 1:
            return tuple(self._separate(route)), 0
        cluster = ClusterPlan(
            name=_name(self._parent, route),
            localities=tuple(self._localities(split.targets)),
            protocol=next(iter(self._spoken(route)), Protocol.HTTP),
        )
        filters = split.targets[0].filters if len(split.targets) == 1 else NO_FILTERS
        return (ClusterWeight(cluster=self._need(cluster), weight=1, filters=filters),), 0

    def _separate(self, route: Route) -> Iterator[ClusterWeight]:
        for target in route.split.targets:
            cluster = ClusterPlan(
                name=_of_backend(self._parent, route, target),
                localities=tuple(self._localities([Target(ref=target.ref, weight=1)])),
                protocol=self._protocol(target),
            )
            yield ClusterWeight(cluster=self._need(cluster), weight=target.weight, filters=target.filters)
        weights = {True: 0, False: 0}
        for share in route.split.broken:
            weights[share.status == UNAVAILABLE] += share.weight
        if weight := weights[True]:
            none = ClusterPlan(name=names.no_endpoints(self._parent))
            yield ClusterWeight(cluster=self._need(none), weight=weight)
        if weight := weights[False]:
            yield ClusterWeight(cluster=names.MISSING, weight=weight)

    def _by_slots(self, route: Route, sticky: Sticky) -> Iterator[ClusterWeight]:
        drawn = tuple(self._separate(route))
        by_ref = {target.ref: item for target, item in zip(route.split.targets, drawn, strict=False)}
        for side in sticky.slot_ranges:
            if side.ref:
                yield structs.replace(by_ref[side.ref], weight=side.slots)
            else:
                failing = names.no_endpoints(self._parent) if side.status == UNAVAILABLE else names.MISSING
                yield ClusterWeight(cluster=failing, weight=side.slots)

    def _mirrors(self, route: Route) -> Iterator[MirrorPlan]:
        """Yield a cluster for each mirror, whose copies go to its localities by weight.

        Where the backends of a split can't be in one cluster, each gets its fraction for itself: as proxies draw once for
        all mirrors of a request, one request may then be copied twice, and another not at all.
        """
        for mirror in (item for item in route.mirrors if item.numerator):
            name = names.mirror(mirror.ref, mirror.split)
            spoken = {self._protocol(target) for target in mirror.targets}
            if len(spoken) == 1 and self._fit_together(mirror.targets):
                self._need_copies(name, mirror.targets, spoken.pop())
                host = _hostname(mirror.targets[0])
                yield MirrorPlan(cluster=name, numerator=mirror.numerator, denominator=mirror.denominator, host=host)
                continue
            total = sum(target.weight for target in mirror.targets)
            for target in mirror.targets:
                one = names.backend_mirror(name, target.ref.service)
                self._need_copies(one, [target], self._protocol(target))
                part = Fraction(mirror.numerator * target.weight, mirror.denominator * total)
                host = _hostname(target)
                yield MirrorPlan(cluster=one, numerator=part.numerator, denominator=part.denominator, host=host)

    def _need_copies(self, name: str, targets: Iterable[Target], protocol: Protocol) -> None:
        localities = tuple(self._localities(targets))
        self._need(ClusterPlan(name=name, localities=localities, protocol=protocol, is_mirror=True))

    def _need(self, cluster: ClusterPlan) -> str:
        self.clusters[cluster.name] = cluster
        return cluster.name

    def _spoken(self, route: Route) -> set[Protocol]:
        return {self._protocol(target) for target in route.split.targets}

    def _protocol(self, target: Target) -> Protocol:
        spoken = target.protocol or self._protocols.get(target.ref, Protocol.HTTP)
        return spoken if spoken.is_http else Protocol.TCP  # what is not looked at is called alike

    def _fit_together(self, targets: Sequence[Target]) -> bool:
        """Say whether backends can be in one cluster: it has each address once, or is of one name that is resolved."""
        found = [item for target in targets for item in self._ready.get(target.ref, ())]
        addresses = {(item.address, item.port) for item in found}
        return len(addresses) == len(found) and (len(targets) == 1 or not any(item.resolved for item in found))

    def _localities(self, targets: Iterable[Target]) -> Iterator[Locality]:
        for target in targets:
            if endpoints := self._ready.get(target.ref):
                yield Locality(
                    backend=target.ref.service,
                    weight=target.weight,
                    endpoints=endpoints,
                    server_name=server_name(target.ref, self._domain) if self._domain else "",
                    opaque=target.ref in self._opaque,
                )


def _hostname(target: Target) -> str:
    return target.filters.rewrite.hostname if target.filters.rewrite else ""


def plan_service_port(
    table: RouteTable,
    ready: Ready,
    protocols: Protocols = NO_PROTOCOLS,
    *,
    domain: str = "",
    opaque: Collection[PortRef] = (),
) -> tuple[RoutePlan, tuple[ClusterPlan, ...]]:
    """Decide which clusters the routes of a Service port need; with `domain`, endpoints are called by mutual TLS.

    `opaque` are the Service ports whose pods take connections.
    """
    planner = Planner(table.ref, ready, protocols, domain=domain, opaque=opaque)
    listener = ListenerInfo(scheme="http", port=table.ref.port)
    planned = tuple(planner.plan_routes(table.routes, listener))
    return RoutePlan(name=names.outbound(table.ref), routes=planned), tuple(planner.clusters.values())


def _filtered(split: Split) -> bool:
    return len(split.targets) > 1 and any(target.filters != NO_FILTERS for target in split.targets)


def _name(parent: RouteParent, route: Route) -> str:
    """Name the cluster of a whole split: the routes that share one share its connections and its turns."""
    if route.origin and route.origin.kind != names.TRAFFIC_SPLIT:
        return names.rule(
            parent, route.origin, route.name, [(step.split, step.ref.port) for step in route.split_matches]
        )
    if isinstance(parent, PortRef) and route.name:  # a group may match everything, and is no less apart then
        return names.matched_requests(parent, route.origin)
    return names.parent(parent)


def _of_backend(parent: RouteParent, route: Route, target: Target) -> str:
    plain = route.origin is None or (route.origin.kind == names.TRAFFIC_SPLIT and not route.name)
    if isinstance(parent, PortRef) and plain:
        return names.backend(parent, target.ref.service)
    return f"{_name(parent, route)}/{target.ref.service}/{target.ref.port}"
