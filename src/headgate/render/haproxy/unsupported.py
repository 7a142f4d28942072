"""What HAProxy cannot carry over of a route, as omissions that name the object and the reason."""

from headgate.model.routing import Route, Split
from headgate.render.haproxy.conditions import fault
from headgate.render.haproxy.shares import Division
from headgate.render.omissions import Collector, Place, Reason
from headgate.render.proxy_ports import Selection
from headgate.resources.meta import Key

NO_AGENT = (
    "HAProxy copies requests only through an SPOE agent (spoa-mirror), which is a separate program; no copies are sent"
)
NO_SLOTS = "HAProxy has another hash than headgate; each {call} goes to a backend by weight"
START_ONLY = "HAProxy limits the wait for the response's start and each pause in it, not the complete response"
ONE_ADDRESS = "HAProxy calls one address of the name at a time, not all in turn"
ROUNDED = "the total weight is above 2^32, the number of turns that HAProxy can count; the shares are rounded"


def place_of(owner: Key, where: str, route: Route) -> Place:
    """Return the place of a route of `owner`, which is used if no object defines the route."""
    return Place(route.origin or owner, f"{where}, route {route.name}" if route.name else where)


def is_left_out(found: Collector, place: Place, route: Route) -> bool:
    """Say whether HAProxy can't check a condition of a route, and add the omission; requests reach later routes."""
    reason = fault(route.match)
    if reason:
        expression = reason.startswith("the regular expression")
        kind = Reason.REGULAR_EXPRESSION if expression else Reason.MATCH
        found.add(place, "match", kind, f"{reason}; the route is left out")
    return bool(reason)


def add_omissions(found: Collector, place: Place, route: Route, division: Division) -> None:
    """Add the omissions of a route for requests."""
    add_of_split(found, place, route.split, division, call="request")
    for mirror in route.mirrors:
        if mirror.numerator:
            found.add(place, f"mirror to {mirror.ref}", Reason.MIRROR, NO_AGENT)
    limits = [limit for limit in (route.timeouts.request, route.timeouts.backend) if limit]
    if limits:
        found.add(place, f"timeout {min(limits)} ms", Reason.TIMEOUT, START_ONLY)


def add_of_split(found: Collector, place: Place, split: Split, division: Division, *, call: str) -> None:
    """Add the omissions of a split; `call` is `request` or `connection`."""
    if split.sticky:
        what = f"sticky by {' '.join(filter(None, (split.sticky.kind, split.sticky.name)))}"
        found.add(place, what, Reason.STICKY, NO_SLOTS.format(call=call))
    if division.rounded:
        found.add(place, "weights", Reason.ROUNDED_SHARE, ROUNDED)


def add_of_names(found: Collector, selection: Selection) -> None:
    """Add the omissions of Services with an external name, which may have several addresses."""
    for ref in selection.refs() if not selection.dns else ():
        if any(endpoint.resolved for endpoint in selection.endpoints.get(ref, ())):
            place = Place(Key("", "Service", *ref.service.split("/")), f"port {ref.port}")
            found.add(place, "external name", Reason.EXTERNAL_NAME, ONE_ADDRESS)
