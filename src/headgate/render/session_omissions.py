"""What a rendered proxy does not carry out of persistent sessions (docs/tasks/gateway-api.md)."""

from collections.abc import Iterable, Iterator

from msgspec import structs

from headgate.model.routing import Route
from headgate.render.omissions import Omission, OmissionReason
from headgate.resources.meta import Key
from headgate.resources.registry import SERVICE

_MESSAGE = "each request goes to an endpoint by weight, also those of one session"


def without_drained(route: Route) -> Route:
    """Return a route without the backends that get only the sessions they have."""
    targets = tuple(target for target in route.split.targets if target.weight)
    if len(targets) == len(route.split.targets):
        return route
    return structs.replace(route, split=structs.replace(route.split, targets=targets))


def session_omissions(routes: Iterable[Route]) -> Iterator[Omission]:
    """Yield an omission for each rule with sessions, and for each Service that has some by a policy."""
    services: set[str] = set()
    for route in routes:
        if route.session and not route.session.service and route.origin:
            yield _omission(route.origin, f"route {route.name}", "sessionPersistence")
        several = (route.session, *(target.session for target in route.split.targets))
        services |= {session.service for session in several if session}
    for name in sorted(services - {""}):
        yield _omission(SERVICE.key(*name.split("/")), "", "sessionPersistence of an XBackendTrafficPolicy")


def _omission(origin: Key, where: str, what: str) -> Omission:
    return Omission(origin=origin, where=where, what=what, reason=OmissionReason.SESSION, message=_MESSAGE)
