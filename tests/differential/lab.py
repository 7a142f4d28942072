"""A long-lived Envoy that takes one world after the other, over xDS as in earnest, and what it did with requests.

Worlds are written with places that exist nowhere: `member-3` for an endpoint, `address-2` for a Service. What they are
in this session is filled in here, so that a world stays the same value from run to run.
"""

import asyncio
import os
import socket
import tempfile
from collections import Counter
from pathlib import Path

from tests.differential.pool import Member, ask
from tests.e2e.wire import Network

from headgate.compiler.compile import compile_mesh
from headgate.control.feed import snapshot_of
from headgate.envoy import names, pb
from headgate.envoy.bootstrap import bootstrap
from headgate.envoy.config import LISTENER, ROUTES, SCOPES
from headgate.envoy.encode import Memo, encode
from headgate.envoy.view import Node, project
from headgate.latest import until
from headgate.local.envoy import EnvoyProcess, find_envoy
from headgate.model.refs import PortRef
from headgate.settings import Settings
from headgate.xds.fleet import Fleet
from headgate.xds.server import XdsServer

MEMBERS = 8
NODE = "differential"
SETTLED_S = 30
NAMED_NOWHERE_ELSE = (LISTENER, SCOPES)  # a proxy that still has one of these would take requests with it


class Lab:
    """Use it as a context. `serve` a world, then `send`."""

    def __init__(self):
        self.network = Network()
        self.memo = Memo()
        self.fleet = Fleet()
        self.proxy = self.fleet.expect(NODE)
        self.subnet = f"127.{os.getpid() % 200 + 20}.{os.getpid() // 200 % 250 + 1}"

    def __enter__(self):
        self.directory = tempfile.TemporaryDirectory(prefix="hg")
        self.network.run(self._start(Path(self.directory.name)))
        return self

    def __exit__(self, *_):
        self.network.run(self._stop())
        self.network.close()
        self.directory.cleanup()

    async def _start(self, directory):
        self.members = [await Member(number).start() for number in range(MEMBERS)]
        self.node = Node(id=NODE, proxy_address="127.0.0.1", proxy_port=free_port())
        self.server = XdsServer(self.fleet)
        await self.server.start(f"unix:{directory}/xds")
        self._offer(compile_mesh(snapshot_of({}), Settings()).mesh)
        content = bootstrap(node_id=NODE, xds_socket=f"{directory}/xds", admin_socket=f"{directory}/admin")
        self.envoy = EnvoyProcess(
            find_envoy(os.environ), content, directory=directory / "envoy", admin=directory / "admin"
        )
        await self.envoy.start()
        await self.envoy.ready()

    async def _stop(self):
        await self.envoy.stop()
        await self.server.stop()
        for member in self.members:
            member.close()

    def serve(self, world):
        """Compile a world, and return what came of it when the proxy has taken all of it."""
        found = compile_mesh(snapshot_of(self.placed(world)), Settings())
        self.network.run(self._settle(found.mesh))
        return found

    def placed(self, value):
        """Fill in the places of this session."""
        if isinstance(value, dict):
            return {name: self.placed(item) for name, item in value.items()}
        if isinstance(value, list):
            return [self.placed(item) for item in value]
        kind, _, number = value.rpartition("-") if isinstance(value, str) else ("", "", "")
        if kind == "member":
            return self.members[int(number)].port
        return f"{self.subnet}.{number}" if kind == "address" else value

    def member(self, endpoint):
        """Name the member of the pool that an endpoint is."""
        number = next(member.number for member in self.members if member.port == endpoint.port)
        return f"member {number}"

    def _offer(self, mesh):
        self.memo.turn()
        self.proxy.config.set(encode(project(mesh, self.node), self.memo))

    async def _settle(self, mesh):
        self._offer(mesh)
        try:
            async with asyncio.timeout(SETTLED_S):
                await until(lambda: not self._awaited(), self.fleet.news)
        except TimeoutError:
            raise AssertionError(f"the proxy has not taken {self._awaited()}") from None
        refused = list(self.proxy.refusals())
        assert not refused, f"the proxy refused {refused}"

    def _awaited(self):
        """Return what the proxy has not answered for yet, of everything that it is to hold."""
        config = self.proxy.config.get()
        if self.proxy.session is None:
            return ["to connect"]
        refused = {(item.type_url, item.name) for item in self.proxy.refusals()}
        missing = [
            name
            for type_url, items in config.items()
            for name in items
            if self.proxy.lags(type_url, name) and (type_url, name) not in refused
        ]
        shelves = self.proxy.session.shelves
        return missing + [
            f"-{name}" for kind in NAMED_NOWHERE_ELSE for name in shelves[kind].held.keys() - config[kind]
        ]

    def draws(self, decision):
        """Say whether the route that decided draws between clusters, as the proxy was told."""
        place = decision.place
        name = names.outbound(place) if isinstance(place, PortRef) else f"gateway/{place.gateway}/{place.port}"
        resource = pb.Resource.FromString(self.proxy.config.get()[ROUTES][name].body)
        hosts = pb.RouteConfiguration.FromString(resource.resource.value).virtual_hosts
        host = next(host for host in hosts if not decision.host or decision.host in host.domains)
        routes = [route for route in host.routes if not route.match.HasField("connect_matcher")]  # no part of the model
        return routes[len(decision.trail) - 1].route.HasField("weighted_clusters")

    def copies(self, refs):
        """Return how many copies the proxy has sent to each Service port, ever."""
        return {ref: self.network.run(self._copies(ref)) for ref in refs}

    async def _copies(self, ref):
        name = f"cluster.{names.mirror(ref)}.upstream_rq_total"
        page = await self.envoy.admin.get_json(f"/stats?format=json&filter=^{name}$")
        return next((item["value"] for item in page["stats"] if item.get("name") == name), 0)

    def extra(self, counted, copies):
        """Return what members got beside what they answered, when that many copies have arrived."""
        return self.network.run(self._extra(counted, copies))

    async def _extra(self, counted, copies):
        async with asyncio.timeout(SETTLED_S):
            while True:
                found = Counter({f"member {item.number}": item.requests for item in self.members})
                found.subtract({who: count for who, count in counted.items() if who in found})
                if found.total() >= copies:
                    return found
                await asyncio.sleep(0.005)  # a copy that is on its way announces itself nowhere

    def forget(self):
        """Begin to count at the members anew."""
        for member in self.members:
            member.take()

    def send(self, where, head, count, *, each_connects=False):
        """Send a request some times to (host, port); return who answered how often."""
        return self.network.run(ask(where, head, count, each_connects=each_connects))


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]
