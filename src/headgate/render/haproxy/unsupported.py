"""What HAProxy cannot carry over of a route, as omissions that name the object and the reason."""

from collections.abc import Iterator, Mapping

from headgate.model.requests import Filters
from headgate.model.routing import Endpoint, PortRef, Route, TlsMode, Workload
from headgate.render.haproxy.conditions import fault
from headgate.render.haproxy.filters import unwritable
from headgate.render.haproxy.shares import Division
from headgate.render.omissions import Omission, Reason
from headgate.render.proxy_ports import Selection
from headgate.resources.meta import Key

NO_AGENT = (
    "HAProxy copies requests only through an SPOE agent (spoa-mirror), which is a separate program; no copies are sent"
)
NO_SLOTS = "HAProxy's cookies name a server, not one of the 10 000 hash slots; requests are divided by weight alone"
START_ONLY = (
    "HAProxy limits the wait for the start of the response and each pause in it, not the time of the complete response"
)
ONE_ADDRESS = "HAProxy calls one address of the name at a time, not all in turn"


class RoutePlace:
    """A route and its place: the object that defines it, and the port, host and rule as text."""

    def __init__(self, owner: Key, where: str, route: Route) -> None:
        self.origin = route.origin or owner
        self.where = f"{where}, route {route.name}" if route.name else where
        self.route = route

    def omit(self, what: str, reason: Reason, message: str) -> Omission:
        """Return an omission of this route."""
        return Omission(origin=self.origin, where=self.where, what=what, reason=reason, message=message)


def unmatched(place: RoutePlace) -> Omission | None:
    """Return the omission of a route whose conditions HAProxy can't check; its requests reach later routes."""
    reason = fault(place.route.match)
    expression = reason.startswith("the regular expression")
    kind = Reason.REGULAR_EXPRESSION if expression else Reason.MATCH
    return place.omit("match", kind, f"{reason}; the route is left out") if reason else None


def of_route(place: RoutePlace, division: Division, selection: Selection) -> Iterator[Omission]:
    """Yield the omissions of a route whose conditions are rendered."""
    route = place.route
    if route.split.sticky:
        yield place.omit(f"sticky {route.split.sticky.kind}", Reason.STICKY, NO_SLOTS)
    for mirror in route.mirrors:
        yield place.omit(f"mirror to {mirror.ref}", Reason.MIRROR, NO_AGENT)
    if route.timeouts.request:
        yield place.omit(f"request timeout of {route.timeouts.request} ms", Reason.TIMEOUT, START_ONLY)
    if division.rounded:
        yield place.omit("shares", Reason.ROUNDED_SHARE, "the total weight is above 2^32; the shares are rounded")
    for filters in (route.filters, *(target.filters for target in route.split.targets)):
        yield from _of_filters(place, filters)
    if not route.redirect:
        yield from of_endpoints(place, selection)


def of_endpoints(place: RoutePlace, selection: Selection) -> Iterator[Omission]:
    """Yield the omissions about the backends of a route: names with several addresses, identities, access rules."""
    for target in place.route.split.targets:
        for endpoint in selection.endpoints.get(target.ref, ()):
            if endpoint.resolved:
                yield place.omit(f"address {endpoint.address}", Reason.EXTERNAL_NAME, ONE_ADDRESS)
            yield from _of_workload(place, target.ref, endpoint, selection.workloads)


def _of_filters(place: RoutePlace, filters: Filters) -> Iterator[Omission]:
    for name in unwritable(filters):
        message = "the value has a control character, which HAProxy's configuration cannot contain; it is not written"
        yield place.omit(f"header {name}", Reason.HEADER, message)


def _of_workload(
    place: RoutePlace, ref: PortRef, endpoint: Endpoint, workloads: Mapping[str, Workload]
) -> Iterator[Omission]:
    workload = workloads.get(endpoint.workload)
    if endpoint.identity:
        strict = workload is not None and workload.tls_mode is TlsMode.STRICT
        result = "the pods refuse it" if strict else "the pods accept it without an identity"
        message = f"HAProxy has no certificate of the mesh, so it sends plaintext; {result}"
        yield place.omit(f"mutual TLS to {ref}", Reason.MUTUAL_TLS, message)
    if workload and (workload.access.closed or workload.access.audited):
        result = "the pods refuse it" if workload.access.closed else "the audit counts its requests as refused"
        message = f"HAProxy has no identity that a rule could allow; {result}"
        yield place.omit(f"access to {ref}", Reason.ACCESS, message)
