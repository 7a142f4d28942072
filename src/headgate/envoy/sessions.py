"""Render persistent sessions: a filter selects the endpoint that a request's token names (GEP-1619; docs/tasks/gateway-api.md).

The token has the endpoint's address. The filter searches it in the cluster of the route, in all localities; a token that
names no endpoint of the cluster has no effect, and the response has a new one.

Backends that do not fit into one cluster have tokens with names of their own. A route for each of these tokens comes before the
route that selects the backend by weight (`rows`).
"""

from collections.abc import Iterator
from functools import cache

from google.protobuf.internal.containers import MessageMap
from msgspec import structs

from headgate.envoy import pb
from headgate.envoy.planned_routes import PlannedRoute
from headgate.model.sessions import PersistentSession, carrying, cookie_path

NAME = "envoy.filters.http.stateful_session"


@cache
def filter_of_connections() -> pb.HttpFilter:
    """Return the filter. It does nothing on routes without sessions."""
    return pb.HttpFilter(name=NAME, typed_config=pb.pack(pb.StatefulSession()))


def rows(planned: PlannedRoute) -> Iterator[PlannedRoute]:
    """Yield a row for the sessions of each backend that has a row, then the planned route."""
    for share in planned.kept:
        if share.session:
            match = structs.replace(planned.match, headers=(*planned.match.headers, carrying(share.session)))
            only = structs.replace(share, weight=1)  # a backend that is drained has no weight, and Envoy needs one
            yield structs.replace(planned, match=match, clusters=(only,), kept=(), draws=False)
    yield planned


def enable(configs: "MessageMap[str, pb.Any]", session: PersistentSession, planned: PlannedRoute) -> None:
    """Add sessions to the configuration of filters of a route, `planned`, or of one of its shares."""
    if session.kind == "header":
        state = pb.TypedExtensionConfig(
            name="envoy.http.stateful_session.header",
            typed_config=pb.pack(pb.HeaderBasedSessionState(name=session.name)),
        )
    else:
        lifetime = pb.Duration(seconds=session.seconds) if session.seconds else None
        path = cookie_path(None if session.service else planned.match.path)
        cookie = pb.SessionCookie(name=session.name, path=path, ttl=lifetime, attributes=_attributes(planned))
        state = pb.TypedExtensionConfig(
            name="envoy.http.stateful_session.cookie", typed_config=pb.pack(pb.CookieBasedSessionState(cookie=cookie))
        )
    per_route = pb.StatefulSessionPerRoute(stateful_session=pb.StatefulSession(session_state=state))
    configs[NAME].CopyFrom(pb.pack(per_route))


def _attributes(planned: PlannedRoute) -> Iterator[pb.SessionCookieAttribute]:
    """Yield the attributes of a cookie besides its path and lifetime; Envoy adds HttpOnly.

    Browsers send the cookie over TLS only if it came over TLS. They send it with requests of other sites only if the rule's
    CORS policy allows credentials: these cookies must be secure.
    """
    if planned.secure:
        yield pb.SessionCookieAttribute(name="Secure")
    shared = planned.secure and planned.cors is not None and planned.cors.credentials
    yield pb.SessionCookieAttribute(name="SameSite", value="None" if shared else "Lax")
