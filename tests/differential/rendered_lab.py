"""Another proxy than Envoy, with a rendered configuration: a lab that serves random worlds, and sends requests.

Each Gateway and each Service has its own address, so requests reach a Service with any host. On `shared`, all Services
share their ports, and the host selects the Service.
"""

import os
import ssl
import tempfile
from base64 import b64encode
from collections import Counter
from pathlib import Path

import yaml
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st
from msgspec import structs
from tests.differential.backends import Member, ask
from tests.differential.lab import MEMBERS
from tests.differential.protocols import protocols
from tests.differential.routing_expectation import place_of
from tests.differential.worlds import requests, root_worlds, worlds
from tests.envoy.inbound_rig import Authority
from tests.wire import Network

from headgate.compiler.compile import compile_mesh
from headgate.model.authorities import resolve
from headgate.model.evaluate import by_host
from headgate.model.routing import Protocol
from headgate.plane.feed import snapshot_of
from headgate.render.proxy_ports import Chosen, select
from headgate.render.shares import grouped
from headgate.resources.meta import Key
from headgate.settings import Settings
from headgate.standalone.address_pool import LAST_RANGE

WITHOUT_HOST = b"GET / HTTP/1.1\r\n\r\n"
"""A request that every proxy rejects. It is read when the request before it is done, with all its copies."""
WORLDS = int(os.environ.get("FUZZ_WORLDS", "40"))
FIRST_ADDRESS = 120
"""The last number of the first address. The Envoys of the same process have lower ones."""


class RenderedLab:
    """A proxy as a context manager. `render` returns a configuration, `serving(rendered, directory)` runs the proxy."""

    def __init__(self, render, serving):
        self._render = render
        self._serving = serving
        self.network = Network()
        self.subnet = f"127.{LAST_RANGE + 1 + os.getpid() % 128}.{os.getpid() // 128 % 255}"
        shown = Authority().issue("", "*.example.com")
        self._secret = {"chain": shown.chain, "key": shown.key.reveal()}
        self._client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._client.check_hostname = False
        self._client.verify_mode = ssl.CERT_NONE
        self._running = None

    def __enter__(self):
        self.directory = tempfile.TemporaryDirectory(prefix="hg")
        self.network.run(self._start())
        return self

    def __exit__(self, *_):
        self.network.run(self._stop())
        self.network.close()
        self.directory.cleanup()

    async def _start(self):
        self.members = [await Member(number).start() for number in range(MEMBERS)]

    async def _stop(self):
        await self._end()
        for member in self.members:
            member.close()

    async def _end(self):
        running, self._running = self._running, None
        if running:
            await running.__aexit__(None, None, None)

    def placed(self, value):
        """Return a value with the placeholders filled in: of members, addresses, and the parts of a certificate."""
        if isinstance(value, dict):
            return {name: self.placed(item) for name, item in value.items()}
        if isinstance(value, list):
            return [self.placed(item) for item in value]
        if not isinstance(value, str):
            return value
        if value in self._secret:
            return b64encode(self._secret[value].encode()).decode()
        kind, _, number = value.rpartition("-")
        if kind == "member":
            return self.members[int(number)].port
        return f"{self.subnet}.{FIRST_ADDRESS + int(number)}" if kind == "address" else value

    @property
    def shared(self):
        """Return the address on which all Services share their ports."""
        return f"{self.subnet}.{FIRST_ADDRESS}"

    def serve(self, world):
        """Compile a world and run the proxy with it; return the mesh, the selection of `shared`, and what was rendered."""
        mesh = compile_mesh(snapshot_of(self.placed(world)), Settings()).mesh
        together = select(mesh, Chosen(services=[item.service for item in mesh.frontends], address=self.shared))
        alone = [
            *(select(mesh, Chosen(gateways=[item.gateway], address=item.address)) for item in mesh.gateways[:1]),
            *(select(mesh, Chosen(services=[item.service], address=item.address)) for item in mesh.frontends),
        ]
        ports = tuple(port for item in (*alone, together) for port in item.ports)
        rendered = self._render(structs.replace(together, ports=ports))
        self.network.run(self._replace(rendered))
        return mesh, together, rendered

    async def _replace(self, rendered):
        await self._end()
        place = Path(tempfile.mkdtemp(dir=self.directory.name))
        place.chmod(0o755)  # workers may run as another user
        self._running = self._serving(rendered, place)
        await self._running.__aenter__()

    def member(self, endpoint):
        """Return the name of the member that listens on an endpoint."""
        number = next(member.number for member in self.members if member.port == endpoint.port)
        return f"member {number}"

    def forget(self):
        """Reset the counters of the members."""
        for member in self.members:
            member.take()

    def extra(self, counted):
        """Return how many copies each member has received, in addition to the counted requests."""
        found = Counter({f"member {item.number}": item.requests for item in self.members})
        found.subtract({name: count for name, count in counted.items() if name in found})
        return found

    def send(self, where, head, count, *, each_connects=False, server_name=""):
        """Send a request `count` times to `where` (host, port), over TLS if `server_name` is set; return a Tally."""
        tls = (self._client, server_name) if server_name else None
        last = b"" if each_connects else WITHOUT_HOST
        return self.network.run(ask(where, head, count, each_connects=each_connects, tls=tls, last=last))


def draws(mesh, decision):
    """Return whether the proxy draws a random number for a decision, because its shares are in several groups."""
    if decision.route is None:
        return True
    ready = {entry.ref: entry.ready for entry in mesh.endpoints}
    shares = grouped(decision.route.split, ready, {table.ref: table.protocol for table in mesh.tables})
    mirrored = bool(decision.route.mirrors and shares.failing)
    return decision.protocol.is_http and (len(shares.groups) > 1 or not shares.groups or mirrored)


def without_users(mesh):
    """Return a mesh whose sticky splits distribute requests by weight."""
    tables = tuple(structs.replace(item, routes=tuple(map(_plain, item.routes))) for item in mesh.tables)
    gateways = tuple(
        structs.replace(
            port,
            hosts=by_host(
                *(structs.replace(item, routes=tuple(map(_plain, item.routes))) for item in port.hosts.values())
            ),
            connections=port.connections and _plain(port.connections),
        )
        for port in mesh.gateways
    )
    return structs.replace(mesh, tables=tables, gateways=gateways)


def _plain(route):
    return structs.replace(route, split=structs.replace(route.split, sticky=None))


def compare_worlds(lab, is_usual, check):
    """Run `check` for the usual ones of random requests in random worlds."""

    @settings(max_examples=WORLDS, suppress_health_check=list(HealthCheck), print_blob=False)
    @given(st.one_of(worlds(protocols()), root_worlds()), st.lists(requests(), min_size=6, max_size=16, unique=True))
    def each(world, sent):
        sent = [item for item in sent if is_usual(item)]
        assume(sent)
        note("---\n".join(yaml.safe_dump(lab.placed(obj), sort_keys=False) for obj in world.values()))
        mesh, together, rendered = lab.serve(world)
        plain = without_users(mesh)
        for item in sent:
            check(lab, plain, together, rendered.omissions, item)

    each()


def left(omissions, route):
    """Return the reasons why something of a route was omitted."""
    return {
        item.reason
        for item in omissions
        if item.origin == route.origin and (not route.name or item.where.endswith(f"route {route.name}"))
    }


def destination(lab, mesh, together, sent):
    """Return the address of a request and the request as it is sent there; no address if the proxy serves it nowhere."""
    if sent.via == "gateway":
        place = place_of(mesh, sent)
        return place and (place.address, sent.port), sent
    if sent.via == "proxy":
        ref = resolve(mesh, sent.authority)
        owners = {host.owner for port in together.ports if ref and port.port == ref.port for host in port.hosts}
        if ref is None or Key("", "Service", *ref.service.split("/")) not in owners:
            return None, sent
        sent = sent._replace(via="address", service=ref.service, port=ref.port)
        where = lab.shared, ref.port
    else:
        fronts = [front for front in mesh.frontends if front.service == sent.service and sent.port in front.ports]
        where = (fronts[0].address, sent.port) if fronts else None
    spoken = {(table.ref.service, table.ref.port): table.protocol for table in mesh.tables}
    if spoken.get((sent.service, sent.port)) is Protocol.HTTP2:  # this client has HTTP/1.1
        return None, sent
    return where, sent
