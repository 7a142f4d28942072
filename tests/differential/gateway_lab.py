"""The gateway's Envoy: a lab that serves random worlds one after the other, and sends requests."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from urllib.parse import quote

from tests.differential.backends import Member, Responder
from tests.differential.envoy_lab import SETTLED_S, EnvoyLab
from tests.differential.lab import MEMBERS, Objects
from tests.ports import free_port
from tests.wire import Address

from headgate.compiler.report import Compiled
from headgate.envoy import names, pb
from headgate.envoy.config import ROUTES
from headgate.envoy.filter_state import USER_KEY
from headgate.envoy.view import Node, ProxyView, project
from headgate.model.evaluate import Decision
from headgate.model.routing import Mesh, PortRef

NODE = "differential"


class GatewayLab(EnvoyLab):
    """A gateway as a context manager: `serve` a world, then `send` requests. `http_proxy` is the address of its HTTP proxy."""

    def __init__(self) -> None:
        super().__init__(NODE)
        self.http_proxy = Address("127.0.0.1", free_port())
        self._node = Node(id=NODE, proxy_address=self.http_proxy.host, proxy_port=self.http_proxy.port)

    async def prepare(self) -> None:
        """Start the members."""
        self.members = [await Member(number).start() for number in range(MEMBERS)]

    def view(self, mesh: Mesh) -> ProxyView:
        """Return the part of a mesh for the gateway."""
        return project(mesh, self._node)

    def serve(self, world: Objects) -> Compiled:
        """Compile a world; wait until the proxy has acknowledged every resource, and return the compiled result."""
        result = self.compiled(world)
        self.network.run(self.settle(result.mesh))
        return result

    def draws(self, decision: Decision) -> bool:
        """Return whether the proxy's route for a decision has weighted clusters or rows, and so draws a random number."""
        place = decision.entry
        assert place is not None
        name = names.outbound(place) if isinstance(place, PortRef) else f"gateway/{place.gateway}/{place.port}"
        encoded = (self.proxy.config.get() or {})[ROUTES].get(name)
        if encoded is None:
            return True  # the listener itself forwards connections
        hosts = pb.RouteConfiguration.FromString(pb.Resource.FromString(encoded.body).resource.value).virtual_hosts
        host = next(host for host in hosts if not decision.host or decision.host in host.domains)
        # Routes that issue cookies belong to the preceding route, and those of requests that are not idempotent to the next
        # one. The model does not have routes for tunnels.
        routes = [
            route
            for route in host.routes
            if not route.match.HasField("connect_matcher")
            and not route.match.HasField("runtime_fraction")  # the last row of several backends has no fraction
            and USER_KEY not in route.typed_per_filter_config
            and not any(header.name == ":method" and header.invert_match for header in route.match.headers)
        ]
        rewrites = [share.filters.rewrite for share in decision.shares]
        has_rows = any(edit and edit.path for edit in rewrites) or any(share.redirect for share in decision.shares)
        return has_rows or routes[len(decision.tried) - 1].route.HasField("weighted_clusters")

    def copies(self, mirrors: Iterable[str]) -> Mapping[str, int]:
        """Return how many requests the proxy has sent to each mirror so far; a mirror may have several clusters."""
        return {mirror: self.network.run(self._copies(mirror)) for mirror in mirrors}

    async def _copies(self, mirror: str) -> int:
        pattern = f"^cluster.{mirror}(/to/[^.]*)?.upstream_rq_total$"
        page = await self.envoy.admin.get_json(f"/stats?format=json&filter={quote(pattern)}")
        return sum(int(counter["value"]) for counter in page["stats"] if "name" in counter)

    def extra(self, counted: Counter[Responder], copies: int) -> Counter[Responder]:
        """Wait until members have received `copies` mirrored requests in total; return their number by member."""
        return self.network.run(self._extra(counted, copies))

    async def _extra(self, counted: Counter[Responder], copies: int) -> Counter[Responder]:
        async with asyncio.timeout(SETTLED_S):
            while (received := self.uncounted(counted)).total() < copies:
                await asyncio.sleep(0.005)  # poll until all mirrored requests have arrived
            return received
