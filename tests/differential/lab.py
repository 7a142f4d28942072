"""The gateway's Envoy: a lab that serves random worlds one after the other, and sends requests."""

import asyncio
import ssl
from base64 import b64encode
from collections import Counter
from urllib.parse import quote

from tests.differential.backends import Member, ask
from tests.differential.envoy_lab import SETTLED_S, EnvoyLab
from tests.envoy.inbound_rig import Authority
from tests.ports import free_port

from headgate.compiler.compile import compile_mesh
from headgate.envoy import names, pb
from headgate.envoy.config import ROUTES
from headgate.envoy.filter_state import USER_KEY
from headgate.envoy.view import Node, project
from headgate.model.routing import PortRef
from headgate.plane.feed import snapshot_of
from headgate.settings import Settings

MEMBERS = 8
NODE = "differential"


class Lab(EnvoyLab):
    """A gateway as a context manager: `serve` a world, then `send` requests."""

    def __init__(self):
        super().__init__(NODE)
        shown = Authority().issue("", "*.example.com")
        self._secret = {"chain": shown.chain, "key": shown.key.reveal()}
        self._client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._client.check_hostname = False
        self._client.verify_mode = ssl.CERT_NONE

    async def prepare(self):
        self.members = [await Member(number).start() for number in range(MEMBERS)]
        self.node = Node(id=NODE, proxy_address="127.0.0.1", proxy_port=free_port())

    def placed(self, value):
        if isinstance(value, str) and value in self._secret:
            return b64encode(self._secret[value].encode()).decode()
        return super().placed(value)

    def view(self, mesh):
        return project(mesh, self.node)

    def serve(self, world):
        """Compile a world; wait until the proxy has acknowledged every resource, and return the compiled result."""
        found = self.compiled(world)
        self.network.run(self.settle(found.mesh))
        return found

    def compiled(self, world):
        """Compile a world, and push nothing."""
        return compile_mesh(snapshot_of(self.placed(world)), Settings())

    def member(self, endpoint):
        """Return the name of the member that listens on an endpoint."""
        number = next(member.number for member in self.members if member.port == endpoint.port)
        return f"member {number}"

    def draws(self, decision):
        """Return whether the proxy's route for a decision has weighted clusters, and so draws a random number."""
        place = decision.entry
        name = names.outbound(place) if isinstance(place, PortRef) else f"gateway/{place.gateway}/{place.port}"
        if name not in self.proxy.config.get()[ROUTES]:
            return True  # the listener itself forwards connections
        resource = pb.Resource.FromString(self.proxy.config.get()[ROUTES][name].body)
        hosts = pb.RouteConfiguration.FromString(resource.resource.value).virtual_hosts
        host = next(host for host in hosts if not decision.host or decision.host in host.domains)
        # Routes that issue cookies belong to the preceding route. The model does not have routes for tunnels.
        routes = [
            route
            for route in host.routes
            if not route.match.HasField("connect_matcher") and USER_KEY not in route.typed_per_filter_config
        ]
        return routes[len(decision.tried) - 1].route.HasField("weighted_clusters")

    def copies(self, mirrors):
        """Return how many requests the proxy has sent to each mirror so far; a mirror may have several clusters."""
        return {mirror: self.network.run(self._copies(mirror)) for mirror in mirrors}

    async def _copies(self, mirror):
        pattern = f"^cluster.{mirror}(/to/[^.]*)?.upstream_rq_total$"
        page = await self.envoy.admin.get_json(f"/stats?format=json&filter={quote(pattern)}")
        return sum(item["value"] for item in page["stats"] if "name" in item)

    def extra(self, counted, copies):
        """Wait until members have received `copies` mirrored requests in total; return their number by member."""
        return self.network.run(self._extra(counted, copies))

    async def _extra(self, counted, copies):
        async with asyncio.timeout(SETTLED_S):
            while True:
                found = Counter({f"member {item.number}": item.requests for item in self.members})
                found.subtract({name: count for name, count in counted.items() if name in found})
                if found.total() >= copies:
                    return found
                await asyncio.sleep(0.005)  # poll until all mirrored requests have arrived

    def send(self, where, head, count, *, each_connects=False, server_name=""):
        """Send a request `count` times to `where` (host, port), over TLS if `server_name` is set; return a Tally."""
        tls = (self._client, server_name) if server_name else None
        return self.network.run(ask(where, head, count, each_connects=each_connects, tls=tls))
