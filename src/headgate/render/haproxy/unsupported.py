"""What HAProxy cannot carry over of a route, as omissions that name the object and the reason."""

from headgate.model.routing import Route, Split
from headgate.render.haproxy.conditions import check
from headgate.render.haproxy.shares import Division
from headgate.render.omissions import Collector, NotExpressible, OmissionReason, Place
from headgate.render.route_omissions import add_sticky

NO_AGENT = (
    "HAProxy copies requests only through an SPOE agent (spoa-mirror), which is a separate program; no copies are sent"
)
START_ONLY = "HAProxy limits the wait for the response's start and each pause in it, not the complete response"
ONE_ADDRESS = "HAProxy calls one address of the name at a time, not all in turn"
ROUNDED = "the total weight is above 2^32, the number of turns that HAProxy can count; the shares are rounded"


def is_left_out(collector: Collector, place: Place, route: Route) -> bool:
    """Return whether HAProxy can't check a condition of a route, and add the omission; requests reach later routes."""
    try:
        check(route.match)
    except NotExpressible as error:
        collector.add_error(place, error)
        return True
    return False


def add_omissions(collector: Collector, place: Place, route: Route, division: Division) -> None:
    """Add the omissions of a route for requests."""
    add_of_split(collector, place, route.split, division, call="request")
    for mirror in route.mirrors:
        if mirror.numerator:
            collector.add(place, f"mirror to {mirror.ref}", OmissionReason.MIRROR, NO_AGENT)
    if limit := route.timeouts.shortest:
        collector.add(place, f"timeout {limit} ms", OmissionReason.TIMEOUT, START_ONLY)


def add_of_split(collector: Collector, place: Place, split: Split, division: Division, *, call: str) -> None:
    """Add the omissions of a split; `call` is `request` or `connection`."""
    add_sticky(collector, place, split, proxy="HAProxy", call=call)
    if division.rounded:
        collector.add(place, "weights", OmissionReason.ROUNDED_SHARE, ROUNDED)
