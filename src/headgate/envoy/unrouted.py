"""Find the route of a request whose headers hide it from Envoy: a second attempt, by filters that only such requests run.

Envoy compares scope keys byte by byte (ADR 0002), and finds no route if X-Forwarded-Proto is empty. All route
configurations disable the filters, so they cost other requests nothing. They run for a request without a route, which in
the end gets 404 if it finds none now.

Envoy reads only once which filters a route enables. So the first filter also writes the filter state that the route may
need. A route that draws a backend (`draw`) gets no number, so Envoy draws one for each such request independently; a
number of the client does not count.
"""

from collections.abc import Sequence

from headgate.envoy import pb
from headgate.envoy.draw import HEADER
from headgate.envoy.filter_state import FILTER, state_writer

_STATE, _FIND = f"{FILTER}_of_unrouted", "headgate.unrouted"
_LUA = f"""
function envoy_on_request(request)
  local headers = request:headers()
  local host = headers:get("%s")
  local name = %s
  local has_proto = headers:get("x-forwarded-proto") ~= ""
  if name == host and has_proto then return end
  if not has_proto then headers:replace("x-forwarded-proto", headers:get(":scheme") or "http") end
  headers:remove("{HEADER}")
  headers:replace("%s", name)
  request:clearRouteCache()
  request:metadata()
  headers:replace("%s", host)
end
"""
"""The route is selected by the host as DNS compares it, and the server gets the host as the client wrote it."""
LOCALHOST_PREFIX = "localhost/"
"""The prefix of the scope keys that the listener for names below `.localhost` uses (`envoy.localhost`)."""
UNKNOWN_NAME, OTHER_HOSTS = f"{LOCALHOST_PREFIX}*.localhost", f"{LOCALHOST_PREFIX}*"
"""The keys of the scopes for names of no Service, and for hosts with another ending."""
_LUA_OF_LOCALHOST = f"""
function envoy_on_request(request)
  local headers = request:headers()
  local name = string.gsub(string.gsub(string.lower(headers:get("%s")), ":%%d*$", ""), "%%.$", "")
  if headers:get("x-forwarded-proto") == "" then headers:replace("x-forwarded-proto", headers:get(":scheme") or "http") end
  headers:remove("{HEADER}")
  headers:replace("%s", name)
  request:clearRouteCache()
  request:metadata()
  for _ in pairs(request:virtualHost():metadata()) do return end
  headers:replace("%s", string.sub(name, -10) == ".localhost" and "{UNKNOWN_NAME}" or "{OTHER_HOSTS}")
  request:clearRouteCache()
end
"""
_SAME, _AS_IN_DNS = "host", 'string.gsub(string.gsub(string.lower(host), "%.$", ""), "%.(:%d*)$", "%1")'


def second_attempt(*, host: str = "", state: Sequence[pb.FilterStateValue] = ()) -> tuple[pb.HttpFilter, ...]:
    """Return the filters. If a header with a `host` selects a scope, letter case and a final dot of the host do not count.

    `state` is further filter state that the route may need.
    """
    header = host or ":authority"
    return _filters(_LUA % (header, _AS_IN_DNS if host else _SAME, header, header), state)


def localhost_attempt(header: str) -> tuple[pb.HttpFilter, ...]:
    """Return the filters of the listener for names below `.localhost`; `header` selects a scope.

    A host without a scope gets one of those for other hosts. The routes remove the header.
    """
    return _filters(_LUA_OF_LOCALHOST % (header, header, header))


def _filters(code: str, state: Sequence[pb.FilterStateValue] = ()) -> tuple[pb.HttpFilter, ...]:
    lua = pb.Lua(default_source_code=pb.DataSource(inline_string=code), clear_route_cache=pb.BoolValue(value=False))
    return (
        pb.HttpFilter(name=_STATE, typed_config=pb.pack(state_writer(state))),
        pb.HttpFilter(name=_FIND, typed_config=pb.pack(lua)),
    )


def mark_found(configuration: pb.RouteConfiguration) -> pb.RouteConfiguration:
    """Let the filters of `localhost_attempt` see that a host has a scope: Lua reads the metadata of its own name there."""
    for host in configuration.virtual_hosts:
        host.metadata.filter_metadata[_FIND].fields["found"].bool_value = True
    return configuration


def disable_second_attempt(configuration: pb.RouteConfiguration) -> None:
    """Disable the filters for all requests that have a route."""
    for name in (_STATE, _FIND):
        configuration.typed_per_filter_config[name].CopyFrom(pb.pack(pb.RouteFilterConfig(disabled=True)))
