"""How a proxy knows a user again: what it hashes to a slot (requirements 2.8; the slots are those of the model).

Envoy itself issues a cookie too late: it has drawn a cluster by then. So users with a cookie and users without one have
two routes. On the second, a filter first makes up an identity, the route is looked up anew by that identity, and the
response carries it as the cookie, so that the first answer already comes from the user's own side.
"""

import re
from collections.abc import Iterator

from msgspec import structs

from headgate.envoy import pb
from headgate.envoy.filter_state import USER_KEY, enable
from headgate.envoy.route_plan import PlannedRoute
from headgate.model.requests import Header, Text
from headgate.model.routing import Sticky

COOKIE_DAYS = 30  # longer than a rollout takes; a browser that is closed in between stays on its side
_DAY = 24 * 60 * 60


def split_by_cookie(planned: PlannedRoute) -> tuple[PlannedRoute, ...]:
    """Return the routes that a route becomes: two where users get a cookie, else itself."""
    if planned.sticky is None or planned.sticky.kind != "cookie":
        return (planned,)
    given = Text(value=rf'(?:.*;\s*)?{re.escape(planned.sticky.name)}="?[^;"]+.*', regex=True)
    known = structs.replace(planned.match, headers=(*planned.match.headers, Header(name="cookie", text=given)))
    return structs.replace(planned, match=known), structs.replace(planned, issues_cookie=True)


def hash_policies(planned: PlannedRoute) -> Iterator[pb.RouteAction.HashPolicy]:
    """Yield what to hash of a request; nothing when users need not stay. Without a key, a request is drawn at random."""
    policy, sticky = pb.RouteAction.HashPolicy, planned.sticky
    if sticky is None:
        return
    if sticky.kind == "header":
        yield policy(header=policy.Header(header_name=sticky.name))
    elif sticky.kind == "source":
        yield policy(connection_properties=policy.ConnectionProperties(source_ip=True))
    elif planned.issues_cookie:
        yield policy(filter_state=policy.FilterState(key=USER_KEY))
    else:
        yield policy(cookie=policy.Cookie(name=sticky.name))


def issue_cookie(route: pb.Route, sticky: Sticky) -> None:
    """Let a route make up identities and hand them out."""
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
