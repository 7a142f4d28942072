"""Pass the host of a tunnel (CONNECT) and its client's address to the listener in the proxy that routes the requests in it."""

from headgate.envoy import pb
from headgate.envoy.filter_state import value

CONNECT = "CONNECT"
_REFUSAL = "headgate: only the HTTP proxy accepts CONNECT\\n"
HEADER = "x-headgate-tunnel"
"""A request header inside a proxy, which selects the scope: the host of the tunnel in which the request arrived, or a name below
`.localhost`."""
KEY = "headgate.tunnel"
"""The filter state of the host, and the name of the filter that writes it."""
SOURCE_KEY = "headgate.source"
"""The filter state of the client's address, which connections inside the proxy don't have."""


def state() -> tuple[pb.FilterStateValue, ...]:
    """Return the filter state of host and client. It can be hashed, as tunnels of one HTTP/2 connection may lead to several hosts."""
    return (
        value(KEY, "%REQ(:AUTHORITY)%", shared=True),
        value(SOURCE_KEY, "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%", shared=True),
    )


def state_filter() -> pb.HttpFilter:
    """Return the filter that writes the filter state; it runs only on routes that enable it."""
    written = pb.HttpSetFilterState(on_request_headers=state())
    return pb.HttpFilter(name=KEY, typed_config=pb.pack(written), disabled=True)


def refuse(connection: pb.HttpConnectionManager) -> None:
    """Refuse CONNECT on a listener that shares the routes of the HTTP proxy, whose first route accepts it.

    Such a tunnel would have no host, and each request in it no route. Other requests do not pass the filters.
    """
    code = pb.DataSource(
        inline_string=f"function envoy_on_request(r) r:respond({{[':status']='404'}}, '{_REFUSAL}') end"
    )
    filters = [
        pb.HttpFilter(name="refusal", typed_config=pb.pack(pb.Lua(default_source_code=code))),
        pb.HttpFilter(name="envoy.filters.http.router", typed_config=pb.pack(pb.Router())),
    ]
    upgrade = pb.HttpConnectionManager.UpgradeConfig(upgrade_type=CONNECT, filters=filters)
    connection.upgrade_configs.append(upgrade)


def enable(route: pb.Route) -> None:
    """Enable the filter on the route of tunnels."""
    route.typed_per_filter_config[KEY].CopyFrom(pb.pack(pb.RouteFilterConfig(config=pb.Any())))
