"""Draw a backend for each request to a split with a random order, without replacement (docs/tasks/canary.md).

Envoy's own order of the weights repeats exactly. A client whose requests repeat in step with it would send each kind of
request to the same backend, and an analysis would compare kinds of requests instead of versions. So a filter draws from
the backends that are due in the cycle: each worker's share stays exact in each cycle, and the order is a new one.

A route with `HEADER` selects the cluster by the value: the filter writes the first number of the cluster's range. The
filter is in every chain. It has a program, and costs something, only on routes that enable it. The program keeps its
state for each route and worker, and begins again when the route changes.
"""

from collections.abc import Sequence

from headgate.envoy import pb

FILTER = "headgate.draw"
HEADER = "x-headgate-draw"
"""A request header inside a proxy: the number that selects the cluster. The filter overwrites that of a client, and the
route removes it."""
_DRAW = """
local weights = {%s}
local left, total = {}, 0
math.randomseed(os.time() + tonumber(string.match(tostring(left), "0x(%%x+)"), 16) %% 2147483647)
function envoy_on_request(request)
  if total == 0 then
    for i, weight in ipairs(weights) do
      left[i] = weight
      total = total + weight
    end
  end
  local drawn, first = math.random(total), 0
  for i, weight in ipairs(weights) do
    if drawn <= left[i] then
      left[i] = left[i] - 1
      total = total - 1
      request:headers():replace("%s", string.format("%%.0f", first))
      request:clearRouteCache()
      return
    end
    drawn = drawn - left[i]
    first = first + weight
  end
end
"""


def draw_filter(*, reselects: bool = False) -> pb.HttpFilter:
    """Return the filter; it runs only on routes that enable it.

    Envoy reads only once which disabled filters a route enables. If earlier filters often select another route
    (`reselects`), the filter is not disabled: it does nothing until a route gives it a program.
    """
    return pb.HttpFilter(name=FILTER, typed_config=pb.pack(pb.Lua()), disabled=not reselects)


def enable(route: pb.Route, weights: Sequence[int]) -> None:
    """Make a route draw from clusters with these weights."""
    run(route, _DRAW % (", ".join(map(str, weights)), HEADER))
    route.request_headers_to_remove.append(HEADER)


def run(route: pb.Route, source: str) -> None:
    """Make a route run a Lua program."""
    program = pb.LuaPerRoute(source_code=pb.DataSource(inline_string=source))
    route.typed_per_filter_config[FILTER].CopyFrom(pb.pack(program))


def enable_later(route: pb.Route) -> None:
    """Make a route run the filter for requests that another route gets in the end, which may draw."""
    route.typed_per_filter_config[FILTER].CopyFrom(pb.pack(pb.RouteFilterConfig(config=pb.Any())))


def standby_first() -> pb.RetryPolicy.RetryPriority:
    """Return the priority of retries: they leave the drawn backend for the standby (`cluster_plan.Locality`)."""
    config = pb.PreviousPriorities(update_frequency=1)
    return pb.RetryPolicy.RetryPriority(name="envoy.retry_priorities.previous_priorities", typed_config=pb.pack(config))
