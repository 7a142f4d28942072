"""Another proxy than Envoy, with a rendered configuration: a lab that serves random worlds, and sends requests.

Each Gateway and each Service has its own address, so requests reach a Service with any host. On `shared`, all Services
share their ports, and the host selects the Service.
"""

import os
import tempfile
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Self, TypeAlias

import yaml
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st
from msgspec import structs
from tests.differential.backends import Member
from tests.differential.lab import MEMBERS, MemberLab, Objects
from tests.differential.protocols import protocols
from tests.differential.routing_expectation import place_of
from tests.differential.worlds import Sent, edge_worlds, requests, root_worlds, worlds
from tests.make.values import with_local_names
from tests.wire import Address

from headgate.compiler.compile import compile_mesh
from headgate.model.authorities import resolve
from headgate.model.evaluate import Decision
from headgate.model.host_names import by_host
from headgate.model.routing import GatewayPort, Mesh, Protocol, Route
from headgate.plane.feed import snapshot_of
from headgate.render.backend_tls import without_tls
from headgate.render.filter_omissions import closed
from headgate.render.omissions import Omission, OmissionReason
from headgate.render.output import Rendered
from headgate.render.proxy_ports import Chosen, Selection, select
from headgate.render.shares import grouped
from headgate.resources.meta import Key
from headgate.settings import Settings

WITHOUT_HOST = b"GET / HTTP/1.1\r\n\r\n"
"""A request that every proxy rejects. It is read when the request before it is done, with all its copies."""
WORLDS = int(os.environ.get("FUZZ_WORLDS", "20"))
Serving: TypeAlias = Callable[[Rendered, Path], AbstractAsyncContextManager[int]]
FIRST_ADDRESS = 120
"""The last number of the first address. The Envoys of the same process have lower ones."""


class RenderedLab(MemberLab):
    """A proxy as a context manager. `render` returns a configuration, `serving(rendered, directory)` runs the proxy."""

    after_last = WITHOUT_HOST

    def __init__(self, render: Callable[[Selection], Rendered], serving: Serving) -> None:
        super().__init__()
        self._render = render
        self._serving = serving
        self._running = AsyncExitStack()
        self._directory = tempfile.TemporaryDirectory(prefix="hg")

    def __enter__(self) -> Self:
        self.network.run(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self.network.run(self._stop())
        self.close()
        self._directory.cleanup()

    async def _start(self) -> None:
        self.members = [await Member(number, self.server_tls).start() for number in range(MEMBERS)]

    async def _stop(self) -> None:
        await self._running.aclose()
        for member in self.members:
            member.close()

    def address(self, number: int) -> str:
        """Return the address of a placeholder."""
        return super().address(FIRST_ADDRESS + number)

    @property
    def shared(self) -> str:
        """Return the address on which all Services share their ports."""
        return self.address(0)

    def serve(self, world: Objects) -> tuple[Mesh, Selection, Rendered]:
        """Compile a world and run the proxy with it; return the mesh, the selection of `shared`, and what was rendered."""
        mesh = with_local_names(compile_mesh(snapshot_of(self.placed(world)), Settings()).mesh)
        together = select(mesh, Chosen(services=[front.service for front in mesh.frontends], address=self.shared))
        alone = [
            *(select(mesh, Chosen(gateways=[port.gateway], address=port.address)) for port in mesh.gateways[:1]),
            *(select(mesh, Chosen(services=[front.service], address=front.address)) for front in mesh.frontends),
        ]
        ports = tuple(port for selection in (*alone, together) for port in selection.ports)
        rendered = self._render(structs.replace(together, ports=ports))
        self.network.run(self._replace(rendered))
        return mesh, together, rendered

    async def _replace(self, rendered: Rendered) -> None:
        await self._running.aclose()
        place = Path(tempfile.mkdtemp(dir=self._directory.name))
        place.chmod(0o755)  # workers may run as another user
        await self._running.enter_async_context(self._serving(rendered, place))


def draws(mesh: Mesh, decision: Decision) -> bool:
    """Return whether the proxy draws a random number for a decision, because its shares are in several groups."""
    if decision.route is None:
        return True
    ready = {entry.ref: entry.ready for entry in mesh.endpoints}
    shares = grouped(decision.route.split, ready, {table.ref: table.protocol for table in mesh.tables})
    is_mirrored = bool(decision.route.mirrors and shares.failing)
    is_divided = len(shares.groups) != 1 or bool(shares.redirected)
    return decision.protocol.is_http and (is_divided or is_mirrored)


def without_users(mesh: Mesh) -> Mesh:
    """Return a mesh as these proxies carry it out: no sticky splits, and rules with servers that they don't call are closed."""
    tables = tuple(structs.replace(table, routes=tuple(map(_plain, table.routes))) for table in mesh.tables)
    gateways = tuple(
        structs.replace(
            port,
            hosts=by_host(
                *(structs.replace(host, routes=tuple(map(_plain, host.routes))) for host in port.hosts.values())
            ),
            connections=port.connections and _plain(port.connections),
        )
        for port in mesh.gateways
    )
    return structs.replace(mesh, tables=tables, gateways=gateways)


def _plain(route: Route) -> Route:
    carried = without_tls(closed(route))
    return structs.replace(carried, split=structs.replace(carried.split, sticky=None))


def compare_worlds(
    lab: RenderedLab,
    is_usual: Callable[[Sent], bool],
    check: Callable[[RenderedLab, Mesh, Selection, tuple[Omission, ...], Sent], None],
) -> None:
    """Run `check` for the usual ones of random requests in random worlds."""

    @settings(max_examples=WORLDS, suppress_health_check=list(HealthCheck), print_blob=False)
    @given(
        st.one_of(worlds(protocols()), root_worlds(), edge_worlds()),
        st.lists(requests(), min_size=6, max_size=16, unique=True),
    )
    def each(world: Objects, drawn: list[Sent]) -> None:
        sent = list(filter(is_usual, drawn))
        assume(sent)
        note("---\n".join(yaml.safe_dump(lab.placed(obj), sort_keys=False) for obj in world.values()))
        mesh, together, rendered = lab.serve(world)
        plain = without_users(mesh)
        for request in sent:
            check(lab, plain, together, rendered.omissions, request)

    each()


def left(omissions: Iterable[Omission], route: Route) -> set[OmissionReason]:
    """Return the reasons why something of a route was omitted."""
    return {
        omission.reason
        for omission in omissions
        if omission.origin == route.origin and (not route.name or omission.where.endswith(f"route {route.name}"))
    }


def destination(lab: RenderedLab, mesh: Mesh, together: Selection, sent: Sent) -> tuple[Address | None, Sent]:
    """Return the address of a request and the request as it is sent there; no address if the proxy serves it nowhere."""
    if sent.via == "gateway":
        place = place_of(mesh, sent)
        if isinstance(place, GatewayPort) and (place.server_names or place.protocol is Protocol.UDP):
            return None, sent
        return Address(place.address, sent.port) if isinstance(place, GatewayPort) else None, sent
    if sent.via == "proxy":
        ref = resolve(mesh, sent.authority)
        owners = {host.owner for port in together.ports if ref and port.port == ref.port for host in port.hosts}
        if ref is None or Key("", "Service", *ref.service.split("/")) not in owners:
            return None, sent
        sent = sent._replace(via="address", service=ref.service, port=ref.port)
        where: Address | None = Address(lab.shared, ref.port)
    else:
        fronts = [front for front in mesh.frontends if front.service == sent.service and sent.port in front.ports]
        where = Address(fronts[0].address, sent.port) if fronts else None
    if any(
        table.server_names for table in mesh.tables if (table.ref.service, table.ref.port) == (sent.service, sent.port)
    ):
        return None, sent
    protocols = {(table.ref.service, table.ref.port): table.protocol for table in mesh.tables}
    if protocols.get((sent.service, sent.port)) is Protocol.HTTP2:  # this client has HTTP/1.1
        return None, sent
    return where, sent
