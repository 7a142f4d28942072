"""What a rendered proxy does not carry out of CORS policies (docs/gateway-api.md)."""

from collections.abc import Iterable, Iterator

from headgate.model.routing import Route
from headgate.render.omissions import Omission, OmissionReason

_MESSAGE = (
    "the proxy forwards preflights to the backends, and adds no headers to responses for scripts of other origins"
)


def cors_omissions(routes: Iterable[Route]) -> Iterator[Omission]:
    """Yield an omission for each rule with a CORS policy."""
    for route in routes:
        if route.cors and route.origin:
            yield Omission(
                origin=route.origin,
                where=f"route {route.name}",
                what="CORS filter",
                reason=OmissionReason.CORS,
                message=_MESSAGE,
            )
