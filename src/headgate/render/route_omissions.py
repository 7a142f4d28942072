"""Omissions of routes that several proxies have, and the places that all omissions of routes name."""

from headgate.compiler.references import service_key
from headgate.model.routing import PortRef, Route, Split
from headgate.render.omissions import Collector, OmissionReason, Place
from headgate.render.proxy_ports import PortHost, ProxyPort, Selection


def place_of(port: PortHost | ProxyPort, route: Route) -> Place:
    """Return the place of a route. The owner of the port defines the route if no object does."""
    return Place(route.origin or port.owner, f"{port.where}, route {route.name}" if route.name else port.where)


def service_place(ref: PortRef) -> Place:
    """Return the place of a Service port, or of the server of an XBackend."""
    return Place(service_key(ref.service), f"port {ref.port}")


def add_sticky(collector: Collector, place: Place, split: Split, *, proxy: str, call: str) -> None:
    """Add the omission of a sticky split; `call` is `request` or `connection`."""
    if sticky := split.sticky:
        what = f"sticky by {sticky.kind} {sticky.name}".rstrip()
        message = f"{proxy} has another hash than headgate; each {call} goes to a backend by weight"
        collector.add(place, what, OmissionReason.STICKY, message)


def add_external_names(collector: Collector, selection: Selection, message: str) -> None:
    """Add an omission for each port of a Service with an external name."""
    for ref in selection.refs() if not selection.dns else ():
        if any(endpoint.resolved for endpoint in selection.endpoints.get(ref, ())):
            collector.add(service_place(ref), "external name", OmissionReason.EXTERNAL_NAME, message)
