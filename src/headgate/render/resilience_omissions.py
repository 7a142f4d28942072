"""What a rendered proxy does not carry out of the settings about failing endpoints (docs/tasks/resilience.md)."""

from collections.abc import Iterable, Iterator

from msgspec import structs

from headgate.model.resilience import DEFAULT, Resilience, ServiceTimeouts
from headgate.model.routing import Mesh, Route
from headgate.render.omissions import Omission, OmissionReason
from headgate.resources.meta import Key
from headgate.resources.registry import SERVICE

_MESSAGE = (
    "the proxy has none of them; requests are neither repeated nor limited by this object, and no endpoint is ejected"
)
_RETRY = "the proxy repeats no request that a backend has answered"


def resilience_omissions(mesh: Mesh, routes: Iterable[Route], owners: Iterable[Key]) -> Iterator[Omission]:
    """Yield an omission for each Service and each rule whose settings some routes have.

    `owners` has the Services whose ports are rendered. Timeouts of requests and attempts are carried out.
    """
    several = tuple(routes)
    names = {f"{key.namespace}/{key.name}" for key in owners if key.kind == SERVICE.kind}
    names |= {name for route in several for target in route.split.targets for name in (target.ref.service, target.root)}
    for name in sorted({table.ref.service for table in mesh.tables if _has_more(table.resilience)} & names):
        yield _omission(SERVICE.key(*name.split("/")), "", "settings about failing endpoints", _MESSAGE)
    for route in several:
        inherited = [target.resilience.retry for target in route.split.targets]
        if route.retry and route.origin and route.retry not in inherited:
            yield _omission(route.origin, f"route {route.name}", "retry", _RETRY)


def _has_more(settings: Resilience) -> bool:
    limits = settings.timeouts
    carried = ServiceTimeouts(request=limits.request, attempt=limits.attempt)
    return settings != structs.replace(DEFAULT, timeouts=carried)


def _omission(origin: Key, where: str, what: str, message: str) -> Omission:
    return Omission(origin=origin, where=where, what=what, reason=OmissionReason.RESILIENCE, message=message)
