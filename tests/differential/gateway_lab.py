"""The gateway's Envoy: a lab that serves random worlds one after the other, and sends requests."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote

from tests.differential.backends import Member, Responder
from tests.differential.envoy_lab import SETTLED_S, EnvoyLab
from tests.differential.lab import MEMBERS, Objects
from tests.ports import free_port
from tests.wire import Address

from headgate.compiler.report import Compiled
from headgate.envoy import names, pb
from headgate.envoy.config import ROUTES, SCOPES
from headgate.envoy.gateway_hosts import has_own_scope, scope_name
from headgate.envoy.view import Node, ProxyView, project
from headgate.model.evaluate import Decision
from headgate.model.routing import GatewayPort, Mesh, PortRef

NODE = "differential"
METADATA = "headgate"


class GatewayLab(EnvoyLab):
    """A gateway as a context manager: `serve` a world, then `send` requests. `http_proxy` is the address of its HTTP proxy."""

    def __init__(self) -> None:
        super().__init__(NODE)
        self.http_proxy = Address("127.0.0.1", free_port())
        self._home = ""
        self._node = Node(id=NODE, proxy_address=self.http_proxy.host, proxy_port=self.http_proxy.port)

    async def prepare(self) -> None:
        """Start the members."""
        self.members = [await Member(number, self.server_tls).start() for number in range(MEMBERS)]

    def view(self, mesh: Mesh) -> ProxyView:
        """Return the part of a mesh for the gateway."""
        return project(mesh.seen_from(self._home), self._node)

    def serve(self, world: Objects, home: str = "") -> Compiled:
        """Compile a world; wait until the proxy has acknowledged every resource, and return the compiled result.

        With `home`, the proxy has the routes for clients of this namespace, as its sidecars have.
        """
        result, self._home = self.compiled(world), home
        self.network.run(self.settle(result.mesh))
        return result

    def draws(self, decision: Decision) -> bool:
        """Return whether a proxy's route for a decision has weighted clusters or rows, and so draws a random number."""
        place, route = decision.entry, decision.route
        if place is None or route is None or not decision.protocol.is_http:
            return True
        about = [str(route.origin) if route.origin else "", route.name]
        rendered = [
            route
            for route in self._routes(place, decision.host)
            if [route.metadata.filter_metadata[METADATA].fields[key].string_value for key in ("origin", "name")]
            == about
        ]
        rewrites = [share.filters.rewrite for share in decision.shares]
        has_rows = any(edit and edit.path for edit in rewrites) or any(share.redirect for share in decision.shares)
        return has_rows or not rendered or any(route.route.HasField("weighted_clusters") for route in rendered)

    def _routes(self, place: PortRef | GatewayPort, host: str) -> Iterator[pb.Route]:
        """Yield the routes of a Service port, or of a host of a Gateway port."""
        config = self.proxy.config.get() or {}
        if isinstance(place, PortRef):
            encoded = config[ROUTES].get(names.outbound(place))
            table = encoded and pb.RouteConfiguration.FromString(_content(encoded.body))
        else:
            scope = scope_name(f"gateway/{place.gateway}/{place.port}", host if has_own_scope(host) else "*")
            encoded = config[SCOPES].get(scope)
            table = encoded and pb.ScopedRouteConfiguration.FromString(_content(encoded.body)).route_configuration
        for virtual_host in table.virtual_hosts if table else ():
            if not host or host in virtual_host.domains:
                yield from virtual_host.routes

    def copies(self, mirrors: Iterable[str]) -> Mapping[str, int]:
        """Return how many requests the proxy has sent to each mirror so far; a mirror may have several clusters."""
        return {mirror: self.network.run(self._copies(mirror)) for mirror in mirrors}

    async def _copies(self, mirror: str) -> int:
        pattern = f"^cluster.{mirror}(/(from|to)/[^.]*)?.upstream_rq_total$"
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


def _content(body: bytes) -> bytes:
    """Return the message in a resource."""
    return pb.Resource.FromString(body).resource.value
