"""What a rendered proxy does not carry out of persistent sessions (docs/tasks/gateway-api.md)."""

from collections.abc import Iterable, Iterator

from msgspec import structs

from headgate.model.routing import Route
from headgate.render.omissions import Omission, OmissionReason

_MESSAGE = "each request goes to an endpoint by weight, also those of one session"


def without_drained(route: Route) -> Route:
    """Return a route without the backends that get only the sessions they have."""
    targets = tuple(target for target in route.split.targets if target.weight)
    if len(targets) == len(route.split.targets):
        return route
    return structs.replace(route, split=structs.replace(route.split, targets=targets))


def session_omissions(routes: Iterable[Route]) -> Iterator[Omission]:
    """Yield an omission for each rule with sessions."""
    for route in routes:
        if route.session and route.origin:
            yield Omission(
                origin=route.origin,
                where=f"route {route.name}",
                what="sessionPersistence",
                reason=OmissionReason.SESSION,
                message=_MESSAGE,
            )
