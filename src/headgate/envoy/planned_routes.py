"""Routes before they are rendered: their clusters by name, and what the proxy itself does."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec import structs

from headgate.envoy import names
from headgate.model.cors import Cors
from headgate.model.requests import NO_FILTERS, Filters, Match, Redirect, Timeouts
from headgate.model.resilience import Retry
from headgate.model.routing import ExternalAuth, Sticky
from headgate.model.sessions import PersistentSession
from headgate.resources.meta import Value

FINEST = 1_000_000
"""Envoy's largest denominator of a fraction."""


class ClusterWeight(Value, frozen=True, kw_only=True):
    """A cluster and its weight in a route; `filters` apply to this share only. With `redirect`, there is no cluster.

    `session` has the sessions of this share, if those of other shares have another name.
    """

    cluster: str
    weight: int
    filters: Filters = NO_FILTERS
    redirect: Redirect | None = None
    session: PersistentSession | None = None

    @property
    def rewrites_path(self) -> bool:
        """Return whether the filters of the share change the path."""
        return bool(self.filters.rewrite and self.filters.rewrite.path)


def with_own_sessions(
    shares: Sequence[ClusterWeight], of_route: PersistentSession | None = None
) -> Iterator[ClusterWeight]:
    """Yield shares with cookies whose names no other share has; a share keeps its name when weights change.

    Shares have the sessions `of_route`, or else their own ones, which several shares of one Service can have. Shares of one
    cluster have different filters.
    """
    uses = Counter(share.session for share in shares)
    for share in shares:
        session = of_route or share.session
        if session is None or (session == share.session and uses[session] == 1):
            yield share
            continue
        identity = msgspec.json.encode((share.cluster, share.filters))
        digest = hashlib.sha256(identity).hexdigest()[:8]
        yield structs.replace(share, session=structs.replace(session, name=f"{session.name}-{digest}"))


class MirrorPlan(Value, frozen=True, kw_only=True):
    """A mirror cluster and the fraction of a route's requests that is mirrored to it.

    The mirrored requests have the Host header `host`, if it is not empty.
    """

    cluster: str
    numerator: int
    denominator: int
    host: str = ""


class PlannedRoute(Value, frozen=True, kw_only=True):
    """A match, and the weighted clusters for its requests; without clusters, `status` or `redirect` is the answer.

    With `sticky`, the clusters are in the order of the users' hash slots, and a cluster may occur several times. With
    `issues_cookie`, the route is for users without a cookie. With `reads_path`, Envoy writes the path as filter state
    and selects the route again. `auth_cluster` is that of the server of `external_auth`. With `allows_origin`, all its requests have an origin that `cors` allows. With `draws`, a filter draws the cluster of each request (`draw`).
    The route takes requests whose random number, one below `FINEST`, is less than `below` (`backend_rows`).
    `session` has the sessions at the endpoints of all clusters; the sessions of the shares `kept` have rows of their own (`sessions`).
    Cookies of sessions are for TLS only if the requests arrive over TLS (`secure`). `origin` and `name` identify the route's object and the route in it.
    """

    match: Match
    clusters: tuple[ClusterWeight, ...] = ()
    status: int = 0
    redirect: Redirect | None = None
    cors: Cors | None = None
    external_auth: ExternalAuth | None = None
    auth_cluster: str = ""
    allows_origin: bool = False
    filters: Filters = NO_FILTERS
    mirrors: tuple[MirrorPlan, ...] = ()
    timeouts: Timeouts = Timeouts()
    retry: Retry | None = None
    sticky: Sticky | None = None
    issues_cookie: bool = False
    reads_path: bool = False
    draws: bool = False
    below: int = FINEST
    session: PersistentSession | None = None
    kept: tuple[ClusterWeight, ...] = ()
    secure: bool = False
    origin: str = ""
    name: str = ""

    @property
    def needs(self) -> Iterator[str]:
        """Yield the clusters that a proxy must have before it gets the route."""
        yield from (share.cluster for share in (*self.kept, *self.clusters) if share.cluster not in {names.MISSING, ""})
        yield from (mirror.cluster for mirror in self.mirrors)
        if self.auth_cluster:
            yield self.auth_cluster


class ServerNamePlan(Value, frozen=True, kw_only=True):
    """The clusters of TLS connections with the server name `host`; with `secrets`, the proxy ends TLS."""

    host: str
    shares: tuple[ClusterWeight, ...]
    secrets: tuple[str, ...] = ()


def clusters_of(server_names: Iterable[ServerNamePlan]) -> tuple[str, ...]:
    """Return the clusters of connections that a proxy must have before it gets their listener."""
    shares = (share for planned in server_names for share in planned.shares)
    return tuple(dict.fromkeys(share.cluster for share in shares if share.cluster != names.MISSING))


class RoutePlan(Value, frozen=True, kw_only=True):
    """The routes of a Service port, in order of precedence, or its server names."""

    name: str
    routes: tuple[PlannedRoute, ...]
    server_names: tuple[ServerNamePlan, ...] = ()

    @property
    def connections(self) -> tuple[ClusterWeight, ...]:
        """The weighted clusters for TCP connections: those of the last route, as there are no requests to match."""
        return self.routes[-1].clusters if self.routes else ()

    @property
    def clusters(self) -> tuple[str, ...]:
        """The clusters that the routes name."""
        of_routes = (name for route in self.routes for name in route.needs)
        return tuple(dict.fromkeys((*of_routes, *clusters_of(self.server_names))))
