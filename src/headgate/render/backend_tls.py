"""Backends that Gateways call over TLS by a policy: rendered proxies don't, and must not call them in plaintext."""

from collections.abc import Iterable, Iterator

from msgspec import structs

from headgate.model.failing_targets import failing_targets
from headgate.model.routing import Route
from headgate.render.omissions import Omission, OmissionReason

_MESSAGE = "the proxy can't check the server's certificate by the policy, so the backend gets no traffic; use Envoy for this Gateway"


def without_tls(route: Route) -> Route:
    """Return a route in which backends with a policy get 503 for their share, and no copies."""
    failing = {target: OmissionReason.BACKEND_TLS.value for target in route.split.targets if target.tls}
    mirrors = tuple(
        structs.replace(mirror, targets=tuple(target for target in mirror.targets if not target.tls))
        for mirror in route.mirrors
    )
    if not failing and mirrors == route.mirrors:
        return route
    return structs.replace(
        route,
        split=failing_targets(route.split, failing, status=503),
        mirrors=tuple(mirror for mirror in mirrors if mirror.targets),
    )


def tls_omissions(routes: Iterable[Route]) -> Iterator[Omission]:
    """Yield an omission for each backend of a route that a policy secures."""
    for route in routes:
        for target in (*route.split.targets, *(target for mirror in route.mirrors for target in mirror.targets)):
            if target.tls and route.origin:
                where = f"route {route.name}, backend {target.ref}"
                yield Omission(
                    origin=target.tls.origin, where=where, what="", reason=OmissionReason.BACKEND_TLS, message=_MESSAGE
                )
