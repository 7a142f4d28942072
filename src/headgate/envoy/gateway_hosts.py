"""Select the routes of a Gateway port by the host of a request (ADR 0013).

Each host has a scope with its routes, so Envoy builds only the routes of the host that changes. All wildcards of a port
share one scope, in which Envoy finds the most specific one. The key of a scope is its name: the port, and the host
without its port, or `*` for the wildcards. A request finds the scope of its host; if there is none, two filters select
the scope of the wildcards. Scopes of hosts disable these filters.
"""

from collections.abc import Sequence

from headgate.envoy import pb
from headgate.envoy.filter_state import FILTER, state_writer
from headgate.envoy.http_connections import route_configuration, write_header
from headgate.model.evaluate import MISDIRECTED

KEY = "x-headgate-host"
"""A request header inside a gateway: the key of the scope, followed by the port of the request's host, if any."""
LISTENER = "x-headgate-listener"
"""A request header inside a gateway: the hostname of the connection's TLS listener."""
_OF_ENVOY = ("x-envoy-external-address", "x-envoy-internal")
"""Headers about the client that Envoy adds at a gateway. Applications read x-forwarded-for, as behind other proxies."""
WILDCARDS = "*"
_MISDIRECTED = (
    "headgate: this TLS connection was opened for another listener of the Gateway; open a new one for this host\n"
)
_OTHER_HOSTS = "headgate.other_hosts"
_STATE = f"{FILTER}_of_other_hosts"
_LUA = f"""
function envoy_on_request(request)
  local headers = request:headers()
  local key = headers:get("{KEY}")
  local lower = string.gsub(string.gsub(string.lower(key), "%.$", ""), "%.(:%d*)$", "%1")
  if lower ~= key then
    headers:replace("{KEY}", lower)
    request:clearRouteCache()
    request:metadata()
  end
  for _ in pairs(request:virtualHost():metadata()) do return end
  local wildcards = string.gsub(lower, "/[^/]*$", "/{WILDCARDS}")
  headers:replace("{KEY}", wildcards)
end
"""


def has_own_scope(host: str) -> bool:
    """Return whether a host has a scope of its own; all wildcards of a port share one."""
    return not host.startswith("*")


def scope_name(port: str, host: str) -> str:
    """Return the name and key of the scope for a host on a Gateway port; `port` is the name of the port's listener."""
    return f"{port}/{host}"


def write_headers(port: str, tls_listener: str) -> list[pb.HeaderMutationRule]:
    """Return the rules that write both headers; they overwrite headers that the client sent."""
    headers = {KEY: scope_name(port, "%REQ(:AUTHORITY)%")} | ({LISTENER: tls_listener} if tls_listener else {})
    return [write_header(key, value) for key, value in headers.items()]


def other_hosts_filters() -> tuple[pb.HttpFilter, ...]:
    """Return the filters for requests without a scope of their host: they select another scope.

    Scope keys are compared byte by byte, so a host is tried in lower case and without a final dot first. Hosts without
    a scope get that of the wildcards. Envoy reads only once which filters a route enables, so the second filter also writes
    the filter state that the route may need; then it clears the route cache.
    """
    lua = pb.Lua(default_source_code=pb.DataSource(inline_string=_LUA))
    return (
        pb.HttpFilter(name=_OTHER_HOSTS, typed_config=pb.pack(lua)),
        pb.HttpFilter(name=_STATE, typed_config=pb.pack(state_writer())),
    )


def misdirected(tls_listener: str) -> pb.Route:
    """Return the 421 response for requests on a connection to another TLS listener than that of their host."""
    own = pb.HeaderMatcher(name=LISTENER, string_match=pb.StringMatcher(exact=tls_listener), invert_match=True)
    body = pb.DataSource(inline_string=_MISDIRECTED)
    return pb.Route(
        match=pb.RouteMatch(prefix="", headers=[own]),
        direct_response=pb.DirectResponseAction(status=MISDIRECTED, body=body),
    )


def scope(port: str, host: str, virtual_hosts: Sequence[pb.VirtualHost]) -> pb.ScopedRouteConfiguration:
    """Return the scope for a host, or for all `WILDCARDS` of a port."""
    configuration = route_configuration("", virtual_hosts)
    configuration.ignore_port_in_host_matching = True
    configuration.request_headers_to_remove.extend((KEY, LISTENER, *_OF_ENVOY))
    configuration.validate_clusters.CopyFrom(pb.BoolValue(value=False))  # false by default, except in inline routes
    if host != WILDCARDS:
        _keep(configuration)
    name = scope_name(port, host)
    fragment = pb.ScopedRouteConfiguration.Key.Fragment(string_key=name)
    key = pb.ScopedRouteConfiguration.Key(fragments=[fragment])
    return pb.ScopedRouteConfiguration(name=name, route_configuration=configuration, key=key)


def _keep(configuration: pb.RouteConfiguration) -> None:
    """Disable the filters that select other scopes.

    The Lua filter runs nevertheless if no route of the host matches. It finds metadata for itself at the virtual host
    then, and selects no other scope.
    """
    for name in (_OTHER_HOSTS, _STATE):
        configuration.typed_per_filter_config[name].CopyFrom(pb.pack(pb.RouteFilterConfig(disabled=True)))
    for host in configuration.virtual_hosts:
        host.metadata.filter_metadata[_OTHER_HOSTS].fields["found"].bool_value = True
