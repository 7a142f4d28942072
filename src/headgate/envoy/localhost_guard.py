"""Render the filter of the listener for names below `.localhost` that refuses requests before any other filter (`envoy.localhost`)."""

from headgate.envoy import pb
from headgate.model.localhost_names import LOCALHOST

_LUA = f"""
function envoy_on_request(request)
  local headers = request:headers()
  local authority = headers:get(":authority") or ""
  if not (string.find(authority, "^[^:@%[]*:?%d*$") or string.find(authority, "^%[[%x:.]*%]:?%d*$")) then
    request:respond({{[":status"] = "400"}}, "headgate: the Host header is no host with an optional port\\n")
    return
  end
  local upgrade, origin = headers:get("upgrade"), headers:get("origin")
  if not (origin and upgrade and string.find(string.lower(upgrade), "websocket", 1, true)) then return end
  local host = string.match(string.lower(origin), "^[%w+.-]+://([%w._-]*):?%d*$") or ""
  if host == "{LOCALHOST}" or string.sub(host, -10) == ".{LOCALHOST}" then return end
  request:respond({{[":status"] = "403"}},
    "headgate: only pages of {LOCALHOST} and of names that end in .{LOCALHOST} may open WebSockets here\\n")
end
"""


def guard() -> pb.HttpFilter:
    """Return the filter. It answers a malformed host with 400, and a WebSocket of a page of another host with 403.

    Envoy takes the host for the scope up to the first `:`, whatever follows. Browsers let pages of any origin open WebSockets and
    read from them; only the server can check the origin (RFC 6455, 10.2). Programs send no Origin.
    """
    lua = pb.Lua(default_source_code=pb.DataSource(inline_string=_LUA))
    return pb.HttpFilter(name="headgate.localhost_guard", typed_config=pb.pack(lua))
