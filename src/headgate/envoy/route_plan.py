"""Plan the routes and clusters of a split, from the model alone (ADR 0003).

Normally a split is one cluster with a weighted locality for each backend. Envoy distributes requests exactly, and a
change to weights or endpoints changes one small resource. A split gets a cluster for each backend, and the route
selects one at random, in these cases: a share must fail; backends have filters or protocols of their own; they share
an endpoint (Envoy keeps one of two equal addresses in a cluster); a backend is a DNS name. With sticky users, the
route selects the cluster by the user's hash slot.

With a random order of the backends, a split that fits into one cluster gets one for each backend too. The route selects
the cluster by a number that a filter draws (`draw`). The other backends are the standby of each cluster, so a retry
leaves the backend, as in one cluster.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from msgspec import structs

from headgate.envoy import names
from headgate.envoy.cluster_plan import ClusterPlan, Locality
from headgate.envoy.names import RouteParent
from headgate.envoy.planned_routes import ClusterWeight, MirrorPlan, PlannedRoute, RoutePlan, with_own_sessions
from headgate.envoy.route_filters import ListenerInfo, complete_redirect
from headgate.envoy.upstream_tls import peer_key
from headgate.model.authorities import server_name
from headgate.model.edge_tls import BackendTls
from headgate.model.evaluate import copies
from headgate.model.requests import ANY, NO_FILTERS, Timeouts
from headgate.model.resilience import DEFAULT, Resilience
from headgate.model.routing import (
    Endpoint,
    ExternalAuth,
    Mirror,
    PortRef,
    Protocol,
    Route,
    RouteTable,
    Split,
    Sticky,
    Target,
)
from headgate.resources.meta import Key

Ready = Mapping[PortRef, tuple[Endpoint, ...]]
Protocols = Mapping[PortRef, Protocol]
"""The protocols of the Service ports that are not plain HTTP."""

NO_PROTOCOLS: Protocols = MappingProxyType({})
UNAVAILABLE = 503


class Planner:
    """Plans the routes of one parent; `clusters` collects the clusters that they need, by name.

    `domain` is the domain of the mesh if the proxy calls endpoints with an identity by mTLS; empty for plaintext.
    `opaque` has the Service ports whose pods are called with TCP, not HTTP.
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
        """Plan the routes of a Service port or a host, for requests that arrive at `listener`.

        An Envoy route matches one path expression; further expressions match filter state. A request that may match
        several expressions first selects another route of the same rule, which writes the filter state.
        """
        rule_with_paths: tuple[Key | None, str] | None = None
        for route in routes:
            rule, planned = (route.origin, route.name), self.plan_route(route, listener)
            self._need_auth(planned)
            yield structs.replace(planned, reads_path=True) if rule == rule_with_paths else planned
            rule_with_paths = rule if route.match.other_paths else rule_with_paths

    def plan_route(self, route: Route, listener: ListenerInfo) -> PlannedRoute:
        """Plan one route for requests that arrive at `listener`."""
        origin = str(route.origin) if route.origin else ""
        if route.redirect:
            redirect = complete_redirect(route.redirect, listener)
            return PlannedRoute(
                match=route.match,
                redirect=redirect,
                cors=route.cors,
                external_auth=route.external_auth,
                auth_cluster=self._auth_cluster(route.external_auth),
                filters=route.filters,
                origin=origin,
                name=route.name,
            )
        weighted, status = self._weighted(route, listener)
        return PlannedRoute(
            match=route.match,
            origin=origin,
            name=route.name,
            clusters=tuple(share for share in weighted if share.weight),
            status=status,
            cors=route.cors,
            external_auth=route.external_auth,
            auth_cluster=self._auth_cluster(route.external_auth),
            filters=route.filters,
            mirrors=tuple(self._mirrors(route)) if weighted else (),
            timeouts=route.timeouts,
            retry=route.retry,
            sticky=route.split.sticky if weighted else None,
            draws=self._draws(route),
            session=route.session if weighted and self._fits(route) else None,
            kept=tuple(share for share in weighted if share.session),
            secure=listener.scheme == "https",
        )

    def plan_pod(self, table: RouteTable, name: str) -> tuple[RoutePlan, ClusterPlan]:
        """Plan the route to the only ready pod of a Service port, without the routes of the Service."""
        target, settings = Target(ref=table.ref, weight=1), table.resilience
        cluster = ClusterPlan(
            name=name,
            localities=tuple(self._localities([target])),
            protocol=self._protocol(target),
            resilience=settings,
        )
        route = PlannedRoute(
            match=ANY,
            clusters=(ClusterWeight(cluster=self._need(cluster), weight=1),),
            timeouts=Timeouts(request=settings.timeouts.request, backend=settings.timeouts.attempt),
            retry=settings.retry,
        )
        return RoutePlan(name=name, routes=(route,)), cluster

    def _weighted(self, route: Route, listener: ListenerInfo) -> tuple[tuple[ClusterWeight, ...], int]:
        """Return the weighted clusters of a route and 0, or no clusters and the status that answers every request."""
        split = route.split
        statuses = {share.status for share in split.broken}
        if not (split.targets or split.redirected) and statuses and UNAVAILABLE not in statuses:
            return (), min(statuses)
        if split.sticky:
            return tuple(self._by_slots(route, split.sticky)), 0
        if self._fits(route) and not self._draws(route):
            return (self._whole(route, weight=1),), 0
        served = structs.replace(route, split=structs.replace(split, broken=(), redirected=()))
        if route.session and split.targets and self._fits(served) and not self._draws(route):
            whole = self._whole(served, weight=sum(target.weight for target in split.targets))
            return (
                structs.replace(whole, session=route.session),
                *self._failing(split),
                *_redirects(split, listener),
            ), 0
        shares = tuple(self._separate(route))
        if not self._draws(route):
            by_cookie = route.session if route.session and route.session.kind == "cookie" else None
            shares = tuple(with_own_sessions(shares, by_cookie))
        return (*shares, *self._failing(split), *_redirects(split, listener)), 0

    def _whole(self, route: Route, *, weight: int) -> ClusterWeight:
        """Return the cluster with all backends of a route."""
        split = route.split
        cluster = ClusterPlan(
            name=_name(self._parent, route),
            localities=tuple(self._localities(split.targets)),
            protocol=next(iter(self._spoken(route)), Protocol.HTTP),
            counts_sizes=_is_compared(route.mirrors),
            resilience=_resilience(route),
            servers=_servers(split.targets),
        )
        filters = split.targets[0].filters if len(split.targets) == 1 else NO_FILTERS
        return ClusterWeight(cluster=self._need(cluster), weight=weight, filters=filters)

    def _fits(self, route: Route) -> bool:
        """Return whether the backends of a route fit into one cluster."""
        split = route.split
        alike = not (split.broken or split.redirected or _filtered(split)) and len(self._spoken(route)) <= 1
        alike = alike and len({(target.resilience, target.session) for target in split.targets}) <= 1
        return alike and self._fit_together(split.targets)

    def _draws(self, route: Route) -> bool:
        """Return whether a filter draws the backend of each request. Otherwise separate clusters are chosen at random,
        each time independently, and connections that are not HTTP keep the rotation. A backend without a weight is not drawn.
        """
        split = route.split
        if split.order != "random" or split.sticky or not _drawn(split)[1:]:
            return False
        return self._fits(route) and all(spoken.is_http for spoken in self._spoken(route))

    def _separate(self, route: Route) -> Iterator[ClusterWeight]:
        draws = self._draws(route)
        for target in _drawn(route.split) if draws else route.split.targets:
            remaining = [other for other in route.split.targets if draws and other is not target]
            own = self._localities([structs.replace(target, weight=1)])
            standby = (structs.replace(locality, standby=True) for locality in self._localities(remaining))
            cluster = ClusterPlan(
                name=_of_backend(self._parent, route, target),
                localities=(*own, *standby),
                protocol=self._protocol(target),
                counts_sizes=_is_compared(route.mirrors),
                resilience=_resilience(route, target),
                servers=_servers([target, *remaining]),
            )
            yield ClusterWeight(
                cluster=self._need(cluster), weight=target.weight, filters=target.filters, session=target.session
            )

    def _failing(self, split: Split) -> Iterator[ClusterWeight]:
        weights = {True: 0, False: 0}
        for share in split.broken:
            weights[share.status == UNAVAILABLE] += share.weight
        if weight := weights[True]:
            none = ClusterPlan(name=names.no_endpoints(self._parent))
            yield ClusterWeight(cluster=self._need(none), weight=weight)
        if weight := weights[False]:
            yield ClusterWeight(cluster=names.MISSING, weight=weight)

    def _by_slots(self, route: Route, sticky: Sticky) -> Iterator[ClusterWeight]:
        drawn = (*self._separate(route), *self._failing(route.split))
        by_ref = {
            target.ref: cluster_weight for target, cluster_weight in zip(route.split.targets, drawn, strict=False)
        }
        for side in sticky.slot_ranges:
            if side.ref:
                yield structs.replace(by_ref[side.ref], weight=side.slots)
            else:
                failing = names.no_endpoints(self._parent) if side.status == UNAVAILABLE else names.MISSING
                yield ClusterWeight(cluster=failing, weight=side.slots)

    def _mirrors(self, route: Route) -> Iterator[MirrorPlan]:
        """Yield the clusters of each mirror; Envoy distributes the mirrored requests among its backends by weight.

        If the backends of a split cannot be in one cluster, each has its own mirror cluster and fraction. Envoy draws
        one random number for all mirrors of a request, so one request may be mirrored twice and another not at all.
        """
        for mirror in (mirror for mirror in route.mirrors if mirror.numerator):
            spoken = {self._protocol(target) for target in mirror.targets}
            if len(spoken) == 1 and self._fit_together(mirror.targets):
                name = self._mirror_name(mirror, mirror.targets[0])
                self._need_mirror(mirror, name, mirror.targets, spoken.pop())
                host = _hostname(mirror.targets[0])
                yield MirrorPlan(cluster=name, numerator=mirror.numerator, denominator=mirror.denominator, host=host)
                continue
            for target, part in copies(mirror):
                backend_name = names.backend_mirror(self._mirror_name(mirror, target), target.ref.service)
                self._need_mirror(mirror, backend_name, [target], self._protocol(target))
                host = _hostname(target)
                yield MirrorPlan(
                    cluster=backend_name, numerator=part.numerator, denominator=part.denominator, host=host
                )

    def _mirror_name(self, mirror: Mirror, target: Target) -> str:
        name = names.mirror(mirror.ref, mirror.split, by=mirror.by, protocol=target.protocol)
        return names.secured(name, self._parent) if any(each.tls for each in mirror.targets) else name

    def _need_mirror(self, mirror: Mirror, name: str, targets: Sequence[Target], protocol: Protocol) -> None:
        cluster = ClusterPlan(
            name=name,
            localities=tuple(self._localities(targets)),
            protocol=protocol,
            is_mirror=True,
            counts_sizes=_is_compared([mirror]),
            servers=_servers(targets),
        )
        self._need(cluster)

    def _need_auth(self, planned: PlannedRoute) -> None:
        if auth := planned.external_auth:
            opaque = auth.tls is not None and auth.tls.opaque
            protocol = auth.server_protocol or (Protocol.HTTP if opaque else None)
            server = Target(ref=auth.ref, weight=1, tls=auth.tls, protocol=protocol)
            cluster = ClusterPlan(
                name=planned.auth_cluster,
                localities=tuple(self._localities([server])),
                protocol=Protocol.HTTP2 if auth.protocol == "GRPC" else self._protocol(server),
                servers=_servers([server]),
            )
            self._need(cluster)

    def _auth_cluster(self, auth: ExternalAuth | None) -> str:
        """Return the name of an authorization server's cluster; empty without one."""
        if auth is None:
            return ""
        name = names.external_auth(auth.ref, grpc=auth.protocol == "GRPC")
        return names.secured(name, self._parent) if auth.tls else name

    def _need(self, cluster: ClusterPlan) -> str:
        self.clusters[cluster.name] = cluster
        return cluster.name

    def _spoken(self, route: Route) -> set[Protocol]:
        return {self._protocol(target) for target in route.split.targets}

    def _protocol(self, target: Target) -> Protocol:
        spoken = target.protocol or self._protocols.get(target.ref, Protocol.HTTP)
        return spoken if spoken.is_http else Protocol.TCP  # for Envoy, all other protocols are TCP

    def _fit_together(self, targets: Sequence[Target]) -> bool:
        """Return whether backends fit into one cluster: no shared address, and no DNS name among several backends.

        Servers with a policy and backends in the mesh do not: a cluster calls proxies only, or servers only.
        """
        if len({bool(target.tls) for target in targets}) > 1:
            return False
        endpoints = [endpoint for target in targets for endpoint in self._ready.get(target.ref, ())]
        addresses = {(endpoint.address, endpoint.port) for endpoint in endpoints}
        return len(addresses) == len(endpoints) and (
            len(targets) == 1 or not any(endpoint.resolved for endpoint in endpoints)
        )

    def _localities(self, targets: Iterable[Target]) -> Iterator[Locality]:
        for target in targets:
            if endpoints := self._ready.get(target.ref):
                yield Locality(
                    backend=target.ref.service,
                    weight=target.weight,
                    endpoints=endpoints,
                    server_name=server_name(target.ref, self._domain) if self._domain else "",
                    opaque=target.ref in self._opaque,
                    root=target.root,
                    server=target.tls,
                )


def _servers(targets: Iterable[Target]) -> tuple[BackendTls, ...]:
    """Return the servers that targets are called as, by policies, whether or not they have endpoints."""
    several = {peer_key(target.tls): target.tls for target in targets if target.tls}
    return tuple(several[key] for key in sorted(several))


def _redirects(split: Split, listener: ListenerInfo) -> Iterator[ClusterWeight]:
    for share in split.redirected:
        redirect = complete_redirect(share.redirect, listener)
        yield ClusterWeight(cluster="", weight=share.weight, filters=share.filters, redirect=redirect)


def _resilience(route: Route, *targets: Target) -> Resilience:
    """Return the settings for a route's cluster, by default those of its first target; the route has its own retries."""
    target = next(iter(targets or route.split.targets), None)
    return structs.replace(target.resilience if target else DEFAULT, retry=route.retry)


def _is_compared(mirrors: Iterable[Mirror]) -> bool:
    """Return whether the copies of a mirror are compared with requests: those of a rule are, not those of a split."""
    return any(mirror.numerator and not mirror.by for mirror in mirrors)


def _hostname(target: Target) -> str:
    return target.filters.rewrite.hostname if target.filters.rewrite else ""


def _drawn(split: Split) -> tuple[Target, ...]:
    return tuple(target for target in split.targets if target.weight)


def _filtered(split: Split) -> bool:
    return len(split.targets) > 1 and any(target.filters != NO_FILTERS for target in split.targets)


def _name(parent: RouteParent, route: Route) -> str:
    """Return the name of a route's cluster. Routes with the same cluster share its connections and load balancer."""
    if route.origin and route.origin.kind != names.TRAFFIC_SPLIT:
        name = names.rule(
            parent, route.origin, route.name, [(step.split, step.ref.port) for step in route.split_matches]
        )
        # The listeners of a port may both pass on the client's TLS to the backends of a TLSRoute, and end it.
        is_added = route.origin.kind == names.TLS_ROUTE and any(target.tls for target in route.split.targets)
        return names.with_tls(name) if is_added else name
    if isinstance(parent, PortRef) and route.name:  # requests that match groups of a split have a cluster of their own
        return names.matched_requests(parent, route.origin)
    return names.parent(parent)


def _of_backend(parent: RouteParent, route: Route, target: Target) -> str:
    plain = route.origin is None or (route.origin.kind == names.TRAFFIC_SPLIT and not route.name)
    if isinstance(parent, PortRef) and plain:
        return names.backend(parent, target.ref.service)
    return f"{_name(parent, route)}/{target.ref.service}/{target.ref.port}"
