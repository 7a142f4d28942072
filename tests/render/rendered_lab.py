"""Random worlds through another proxy, whose configuration is rendered: its answers are compared with the model's.

A world is compiled and rendered, and the proxy starts with the files. The ports of all Services and Gateways are on one
address, so the host of a request selects the Service.
"""

from pathlib import Path

from tests.differential.backends import Member
from tests.differential.content_expectation import misplaced_content
from tests.differential.lab import MEMBERS, Lab
from tests.differential.odd_headers import OF_ANY, OF_HTTP1
from tests.differential.routing_expectation import disagreement, expected
from tests.differential.test_routing import connected, head

from headgate.compiler.compile import compile_mesh
from headgate.model.authorities import canonical
from headgate.model.evaluate import best_name, without_port
from headgate.plane.feed import snapshot_of
from headgate.render.omissions import Reason
from headgate.render.proxy_ports import Chosen, select
from headgate.settings import Settings

NOT_FOUND = 404
SAMPLE = 24
ENVOYS_OWN = {name for name, _ in (*OF_ANY, *OF_HTTP1)} - {"x-a", "x-b"}
"""Headers that Envoy removes, joins or rejects in ways of its own."""
LEFT_OUT = {Reason.MATCH, Reason.REGULAR_EXPRESSION}


class RenderedLab(Lab):
    """A proxy as a context manager. `render` makes its files, and `program(directory)` is a process with `start(rendered)`."""

    def __init__(self, render, program):
        super().__init__()
        self._render = render
        self._program = program
        self._running = None

    async def _start(self, directory):
        self.files = directory
        self.members = [await Member(number).start() for number in range(MEMBERS)]
        self.address = f"{self.subnet}.200"

    async def _stop(self):
        if self._running:
            await self._running.stop()
        for member in self.members:
            member.close()

    def serve(self, world):
        """Compile and render a world, and start the proxy again with the files; return a Served."""
        mesh = compile_mesh(snapshot_of(self.placed(world)), Settings()).mesh
        selection = select(mesh, Chosen(address=self.address))
        rendered = self._render(selection)
        if selection.ports:
            self.network.run(self._restart(rendered))
        return Served(mesh, selection, rendered)

    async def _restart(self, rendered):
        if self._running:
            await self._running.stop()
        self._running = self._program(Path(self.files))
        await self._running.start(rendered)

    def draws(self, _decision):
        """Return False: each cycle of a split is exact."""
        return False


class Served:
    """A compiled world, the selected ports, and what was rendered."""

    def __init__(self, mesh, selection, rendered):
        self.mesh = mesh
        self.ports = {port.port: port for port in selection.ports}
        self.omitted = rendered.omissions

    def readdressed(self, sent):
        """Return a request to the Service or Gateway that gets it by its port and host; None if there is none."""
        port = self.ports[sent.port]
        if sent.via == "gateway":
            return sent
        owner = port.owner
        if port.hosts:
            named = {name: host for host in port.hosts for name in host.names}
            found = best_name(named, without_port(canonical(sent.authority)))
            if found is None:
                return None
            owner = named[found].owner
        place = f"{owner.namespace}/{owner.name}"
        return sent._replace(via="address", service=place, authority=canonical(sent.authority))

    def is_comparable(self, wanted):
        """Return whether all routes up to the route of a request are rendered completely."""
        left_out = {item.origin for item in self.omitted if item.reason in LEFT_OUT}
        tried = wanted.decision.tried if wanted.decision else ()
        sticky = wanted.decision and wanted.decision.route and wanted.decision.route.split.sticky
        return not sticky and not any(item.route.origin in left_out for item in tried)


def _is_odd(sent):
    """Return whether a request has headers that Envoy treats in a way of its own."""
    agents = [value for name, value in sent.headers if name.lower() == "user-agent"]
    odd = any(name.lower() in ENVOYS_OWN or len(value) > 100 or "\x01" in value for name, value in sent.headers)
    return odd or len(agents) > 1


def compare(lab, served, sent):
    """Send a request, several times if the model predicts shares; return how the answers differ, or None if not sent."""
    port = served.ports.get(sent.port)
    if port is None or _is_odd(sent):
        return None
    if (sent.via == "gateway") != (port.owner.kind == "Gateway"):
        return None
    place = served.readdressed(sent)
    where = (lab.address, sent.port)
    if place is None:
        tally = lab.send(where, head(sent._replace(via="address")), 1)
        return "" if set(tally.counted) == {NOT_FOUND} else f"{dict(tally.counted)} instead of 404"
    wanted = expected(served.mesh, place, name_of=lab.member, draws=lab.draws)
    if not served.is_comparable(wanted):
        return None
    lab.forget()
    count = SAMPLE if len(wanted.shares) > 1 else 1
    tally = lab.send(where, head(place._replace(authority=sent.authority)), count, **connected(place, wanted))
    ready = {entry.ref: entry.ready for entry in served.mesh.endpoints}
    found = disagreement(wanted, tally.counted, sigmas=0) or misplaced_content(wanted, place, tally, lab, ready)
    return f"{found}\ncounted {dict(tally.counted)}\nwanted {wanted}" if found else ""
