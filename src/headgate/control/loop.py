"""Snapshot to mesh to each proxy's configuration: the one writer of what is current (ARCHITECTURE.md, rule 2)."""

import asyncio
import logging
import time
from collections.abc import Sequence

from headgate.compiler.compile import compile_mesh
from headgate.compiler.report import Compiled
from headgate.compiler.snapshot import Snapshot
from headgate.envoy.encode import Memo, encode
from headgate.envoy.view import Node, project
from headgate.latest import Latest
from headgate.settings import Settings
from headgate.xds.fleet import Fleet

log = logging.getLogger(__name__)


class Loop:
    """Compiles each new snapshot and gives every proxy its part. `compiled` is what is current; a bug leaves it as it is."""

    def __init__(
        self, snapshot: Latest[Snapshot | None], fleet: Fleet, nodes: Sequence[Node], settings: Settings
    ) -> None:
        self.compiled: Latest[Compiled | None] = Latest(None)
        self.failures = 0
        self.memo = Memo()
        self._snapshot = snapshot
        self._fleet = fleet
        self._nodes = nodes
        self._settings = settings

    async def run(self) -> None:
        """Build for ever: at once when idle; in a storm of changes, at most half of the time."""
        async for snapshot in self._snapshot.changes():
            if snapshot is None:
                continue
            began = time.monotonic()
            self._attempt(snapshot)
            await asyncio.sleep(time.monotonic() - began)

    def _attempt(self, snapshot: Snapshot) -> None:
        try:
            self._build(snapshot)
        except Exception:
            self.failures += 1
            log.exception("revision %d can't be built; the proxies keep the last one", snapshot.revision)

    def _build(self, snapshot: Snapshot) -> None:
        compiled = compile_mesh(snapshot, self._settings)
        self.memo.turn()
        configs = [(node.id, encode(project(compiled.mesh, node), self.memo)) for node in self._nodes]
        for node_id, config in configs:
            self._fleet.expect(node_id).config.set(config)
        self.compiled.set(compiled)
