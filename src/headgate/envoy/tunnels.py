"""Pass the host of a tunnel (CONNECT) to the listener inside the proxy that routes the requests in it."""

from headgate.envoy import pb
from headgate.envoy.filter_state import value

HEADER = "x-headgate-tunnel"
"""A request header inside a proxy: the host of the tunnel in which the request arrived. It selects the scope."""
KEY = "headgate.tunnel"
"""The filter state of the host, and the name of the filter that writes it."""


def destination() -> pb.FilterStateValue:
    """Return the filter state. Its value can be hashed, as tunnels of one HTTP/2 connection may lead to several hosts."""
    return value(KEY, "%REQ(:AUTHORITY)%", shared=True)


def destination_filter() -> pb.HttpFilter:
    """Return the filter that writes the filter state; it runs only on routes that enable it."""
    written = pb.HttpSetFilterState(on_request_headers=[destination()])
    return pb.HttpFilter(name=KEY, typed_config=pb.pack(written), disabled=True)


def enable(route: pb.Route) -> None:
    """Enable the filter on the route of tunnels."""
    route.typed_per_filter_config[KEY].CopyFrom(pb.pack(pb.RouteFilterConfig(config=pb.Any())))
