"""What a rendered proxy does not carry out of the filters of rules (docs/tasks/gateway-api.md)."""

from collections.abc import Iterable, Iterator

from msgspec import structs

from headgate.model.routing import Broken, Route, Split
from headgate.model.sanitizing import FORBIDDEN
from headgate.render.omissions import Omission, OmissionReason

_CORS = "the proxy forwards preflights to the backends, and adds no headers to responses for scripts of other origins"
_AUTH = "the proxy does not call the authorization server, so it answers all requests of the rule with 403"


def filter_omissions(routes: Iterable[Route]) -> Iterator[Omission]:
    """Yield an omission for each rule with a CORS policy or an authorization server."""
    for route in routes:
        if route.cors:
            yield from _omission(route, "CORS filter", OmissionReason.CORS, _CORS)
        if route.external_auth:
            yield from _omission(route, "ExternalAuth filter", OmissionReason.EXTERNAL_AUTH, _AUTH)


def closed(route: Route) -> Route:
    """Return a route as a proxy carries it out that calls no authorization server: it is closed if it needs one."""
    if route.external_auth is None:
        return route
    answer = Broken(weight=1, reason=OmissionReason.EXTERNAL_AUTH.value, status=FORBIDDEN)
    return structs.replace(route, split=Split(targets=(), broken=(answer,)), redirect=None, mirrors=())


def _omission(route: Route, what: str, reason: OmissionReason, message: str) -> Iterator[Omission]:
    if route.origin:
        yield Omission(origin=route.origin, where=f"route {route.name}", what=what, reason=reason, message=message)
