"""The hash policies that recognize users, so that each user stays on one backend of a split (2.8; `model.hash_slots`).

Envoy issues its own session cookies only after it has selected a cluster. So there are two routes: for users with a
cookie and for users without one. On the second route, a filter first generates an identity, and Envoy selects the route
again by it. The response sets the identity as a cookie, so even the first response comes from the user's own backend.
"""

from collections.abc import Iterator

from msgspec import structs

from headgate.envoy import pb
from headgate.envoy.filter_state import USER_KEY, enable
from headgate.envoy.planned_routes import PlannedRoute
from headgate.envoy.tunnels import SOURCE_KEY
from headgate.model.routing import Sticky
from headgate.model.sessions import with_cookie

COOKIE_DAYS = 30  # longer than a rollout, so that users stay on their backend even if they close the browser
_DAY = 24 * 60 * 60


def split_by_cookie(planned: PlannedRoute) -> tuple[PlannedRoute, ...]:
    """Split a route into two, for users with and without the cookie; a route that uses no cookie stays unchanged."""
    if planned.sticky is None or planned.sticky.kind != "cookie":
        return (planned,)
    headers = (*planned.match.headers, with_cookie(planned.sticky.name))
    match = structs.replace(planned.match, headers=headers)
    return structs.replace(planned, match=match), structs.replace(planned, issues_cookie=True)


def hash_policies(planned: PlannedRoute) -> Iterator[pb.RouteAction.HashPolicy]:
    """Yield the hash policies of a route; none without sticky users.

    A request without the hashed value goes to a random backend. In a tunnel, only filter state has the client's address.
    """
    policy, sticky = pb.RouteAction.HashPolicy, planned.sticky
    if sticky is None:
        return
    if sticky.kind == "header":
        yield policy(header=policy.Header(header_name=sticky.name))
    elif sticky.kind == "source":
        yield policy(filter_state=policy.FilterState(key=SOURCE_KEY))
        yield policy(connection_properties=policy.ConnectionProperties(source_ip=True))
    elif planned.issues_cookie:
        yield policy(filter_state=policy.FilterState(key=USER_KEY))
    else:
        yield policy(cookie=policy.Cookie(name=sticky.name))


def issue_cookie(route: pb.Route, sticky: Sticky) -> None:
    """Make a route generate identities and set them as cookies."""
    name = sticky.name.replace("%", "%%")
    lifetime = f"Max-Age={COOKIE_DAYS * _DAY}"
    value = f"{name}=%FILTER_STATE({USER_KEY}:PLAIN)%; {lifetime}; Path=/; HttpOnly; SameSite=Lax"
    route.response_headers_to_add.append(
        pb.HeaderValueOption(
            header=pb.HeaderValue(key="set-cookie", value=value),
            append_action=pb.HeaderValueOption.HeaderAppendAction.APPEND_IF_EXISTS_OR_ADD,
        )
    )
    enable(route)
