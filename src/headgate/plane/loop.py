"""Snapshot to mesh to each proxy's configuration: the one writer of what is current (ARCHITECTURE.md, rule 2)."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from msgspec import structs

from headgate.compiler.compile import Compiler, compile_mesh
from headgate.compiler.report import Compiled
from headgate.compiler.snapshot import Snapshot
from headgate.envoy.encode import Memo, encode, with_tap
from headgate.envoy.view import Node, project, sidecar
from headgate.identity.credentials import Credentials
from headgate.identity.issuers import Wanted
from headgate.latest import Latest, until
from headgate.model.identities import Credential, gateway_id
from headgate.model.routing import Mesh
from headgate.model.workloads import Stage
from headgate.plane.staging import Staging
from headgate.plane.timings import Timings
from headgate.settings import Settings
from headgate.xds.fleet import Fleet

log = logging.getLogger(__name__)


class Loop:
    """Compiles each new snapshot and gives every proxy its part. `compiled` is what is current; a bug leaves it as it is.

    `gateways` are the proxies that are there from the start; sidecars come and go with their workloads. A proxy gets
    nothing before it has a credential: half of a configuration would refuse, or worse, send plaintext.

    `taps` says which proxies (node ids) record which share of their requests, in millionths.
    """

    def __init__(
        self,
        snapshot: Latest[Snapshot | None],
        fleet: Fleet,
        gateways: Sequence[Node],
        settings: Settings,
        credentials: Credentials,
    ) -> None:
        self.compiled: Latest[Compiled | None] = Latest(None)
        self.taps: Latest[Mapping[str, int]] = Latest({})
        self.failures = 0
        self.builds = Timings()
        self.memo = Memo()
        self._compiler = Compiler()
        self.staging = Staging(fleet)
        self.probes: Callable[[str], str] = _no_probe  # the socket of a sidecar (node id) for `headgate try`
        self._snapshot = snapshot
        self._fleet = fleet
        self.gateways = tuple(node.id for node in gateways)
        self._gateways = gateways
        self.settings = settings
        self.credentials = credentials
        self._seen: tuple[Snapshot | None, Mapping[str, Stage]] = (None, {})
        self._proven: Mapping[str, Credential] = {}
        self._failed: Snapshot | None = None  # a step that can't be built is not tried again until something changes
        self._renewals = 0  # certificates since the last round
        self._given: dict[str, Credential] = {}  # what each proxy's part of the current mesh was made with
        self._pods: Mapping[str, str] = {}  # uid of each sidecar's pod
        self._taps = self.taps.get()
        self._tapped: Mapping[str, int] = {}  # what the current configurations were made with

    def proven(self, node_id: str) -> Credential | None:
        """Return the credential that a proxy's current configuration was made with."""
        return self._given.get(node_id)

    async def run(self) -> None:
        """Build for ever: at once when idle; in a storm of changes, at most half of the time."""
        while True:
            await until(self._is_due, self._snapshot, self.credentials.current, self._fleet.news, self.taps)
            began = time.monotonic()
            self._attempt()
            took = time.monotonic() - began
            self.builds.add(took)
            await asyncio.sleep(took)

    def compile(self, snapshot: Snapshot) -> Compiled:
        """Compile any snapshot as the current one would be, and publish nothing; this may run in a thread."""
        _, stages = self._seen
        return compile_mesh(snapshot, self.settings, stages)

    def _is_due(self) -> bool:
        snapshot, _ = self._seen
        return (
            self._snapshot.get() is not snapshot
            or self.credentials.current.get() is not self._proven
            or self.taps.get() is not self._taps
            or (self.staging.is_due and snapshot is not self._failed)
        )

    def _attempt(self) -> None:
        snapshot, self._proven = self._snapshot.get(), self.credentials.current.get()
        self._taps = self.taps.get()
        if snapshot is None:
            return
        stages = self.staging.next()
        try:
            compiled = self.compiled.get()
            if compiled is None or self._seen != (snapshot, stages):
                compiled = self._compiler.compile(snapshot, self.settings, stages)
            self._publish(compiled)
            self.staging.note(compiled.mesh.workloads)
        except Exception:
            self.failures += 1
            self._failed = snapshot
            log.exception("revision %d can't be built; the proxies keep the last one", snapshot.revision)
        self._seen = snapshot, stages

    def _publish(self, compiled: Compiled) -> None:
        """Give each proxy its part, where the mesh or its credential is another one, and make the mesh current."""
        mesh = compiled.mesh
        wanted = dict(_wanted(mesh, self._gateways, self.probes))
        self._let_go({node.id for node in wanted}, mesh)
        self.credentials.want({node.id: item for node, item in wanted.items()})
        self._proven = self.credentials.current.get()  # without what was another pod's
        # The memo drops what a whole round did not use; keys of certificates that were renewed must not stay in it.
        anew = compiled is not self.compiled.get() or self._renewals > len(wanted)
        given = {} if anew else self._given
        if anew:
            self.memo.turn()
        fresh = {
            node: credential
            for node in wanted
            if (credential := self._proven.get(node.id)) and given.get(node.id) != credential
        }
        configs = {node.id: encode(project(mesh, node, credential), self.memo) for node, credential in fresh.items()}
        for node in wanted:
            self._fleet.expect(node.id)
        before, self._tapped = self._tapped, self._taps
        for node_id, proxy in self._fleet.proxies.items():
            share = self._tapped.get(node_id, 0)
            config = configs.get(node_id) or (proxy.config.get() if share != before.get(node_id, 0) else None)
            if config is not None:
                proxy.config.set(with_tap(config, share))
        self._given = given | {node.id: credential for node, credential in fresh.items()}
        self._renewals = 0 if anew else self._renewals + len(fresh)
        self.compiled.set(compiled)

    def _let_go(self, wanted: AbstractSet[str], mesh: Mesh) -> None:
        """Let go of proxies that are not wanted, and of those whose pod is another one than before.

        It has the name of the one before, but must prove that it is there, and gets a key of its own.
        """
        pods = {sidecar(item).id: item.uid for item in mesh.workloads}
        others = {node_id for node_id, uid in pods.items() if self._pods.get(node_id, uid) != uid}
        for gone in (self._fleet.proxies.keys() - wanted) | others:
            self._fleet.forget(gone)
        self.credentials.begin_anew(others)
        self._pods = pods


def _no_probe(_node_id: str) -> str:
    return ""


def _wanted(mesh: Mesh, gateways: Sequence[Node], probes: Callable[[str], str]) -> Iterator[tuple[Node, Wanted]]:
    """Yield every proxy, with what its certificate is to say."""
    for node in gateways:
        yield node, Wanted(identity=gateway_id(mesh.trust_domain))
    for workload in mesh.workloads:
        node = sidecar(workload)
        yield (
            structs.replace(node, probe=probes(node.id)),
            Wanted(identity=workload.identity, subjects=workload.subjects),
        )
