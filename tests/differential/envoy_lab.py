"""A long-lived Envoy that serves one world after the other over xDS; `gateway_lab` and `sidecar_lab` send requests to it."""

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Self

from msgspec import structs
from tests.differential.lab import MemberLab, Objects
from tests.make.values import with_local_names

from headgate.compiler.compile import compile_mesh
from headgate.compiler.report import Compiled
from headgate.envoy.bootstrap import bootstrap
from headgate.envoy.config import LISTENER, SCOPES
from headgate.envoy.encode import Memo, encode
from headgate.envoy.view import ProxyView
from headgate.latest import until
from headgate.model.routing import Mesh
from headgate.plane.feed import snapshot_of
from headgate.settings import Settings
from headgate.standalone.proxies.envoy_binary import find_envoy
from headgate.standalone.proxies.envoy_process import EnvoyProcess
from headgate.xds.fleet import Fleet
from headgate.xds.server import XdsServer

SETTLED_S = 60
NAMED_NOWHERE_ELSE = (LISTENER, SCOPES)  # a proxy uses these resources until their deletion, so the lab waits for it


class EnvoyLab(MemberLab):
    """An Envoy as a context manager. Subclasses define `prepare`, which starts the members, and the proxy's `view`."""

    envoy: EnvoyProcess
    server: XdsServer

    def __init__(self, node_id: str) -> None:
        super().__init__()
        self.node_id = node_id
        self.memo = Memo()
        self.fleet = Fleet()
        self.proxy = self.fleet.expect(node_id)
        self.directory = tempfile.TemporaryDirectory(prefix="hg")

    def __enter__(self) -> Self:
        self.network.run(self._start(Path(self.directory.name)))
        return self

    def __exit__(self, *_: object) -> None:
        self.network.run(self._stop())
        self.close()
        self.directory.cleanup()

    async def prepare(self) -> None:
        """Start the members."""
        raise NotImplementedError

    def view(self, mesh: Mesh) -> ProxyView:
        """Return the part of a mesh for the proxy."""
        raise NotImplementedError

    async def _start(self, directory: Path) -> None:
        await self.prepare()
        self.server = XdsServer(self.fleet)
        await self.server.start(f"unix:{directory}/xds")
        self._offer(compile_mesh(snapshot_of({}), Settings()).mesh)
        content = bootstrap(node_id=self.node_id, xds_socket=f"{directory}/xds", admin_socket=f"{directory}/admin")
        self.envoy = EnvoyProcess(
            find_envoy(os.environ), content, directory=directory / "envoy", admin=directory / "admin"
        )
        await self.envoy.start()
        await self.envoy.ready(SETTLED_S)

    async def _stop(self) -> None:
        await self.envoy.stop()
        await self.server.stop()
        for member in self.members:
            member.close()

    def compiled(self, world: Objects) -> Compiled:
        """Compile a world, and push nothing. Servers outside the mesh are members."""
        result = compile_mesh(snapshot_of(self.placed(world)), Settings())
        return structs.replace(result, mesh=with_local_names(result.mesh))

    def _offer(self, mesh: Mesh) -> None:
        self.memo.begin_build()
        self.proxy.config.set(encode(self.view(mesh), self.memo))

    async def settle(self, mesh: Mesh) -> None:
        """Push a mesh, and wait until the proxy has acknowledged every resource. Fail if it rejects a resource."""
        self._offer(mesh)
        try:
            async with asyncio.timeout(SETTLED_S):
                await until(lambda: not self._awaited(), self.fleet.change_count)
        except TimeoutError:
            raise AssertionError(f"the proxy has not acknowledged {self._awaited()}") from None
        refused = list(self.proxy.rejections())
        assert not refused, f"the proxy rejected {refused}"

    def is_needed(self, _type_url: str, _name: str) -> bool:
        """Return whether the proxy subscribes to a resource of its configuration; subclasses may override this."""
        return True

    def _awaited(self) -> list[str]:
        """Return the resources that the proxy has not acknowledged yet; the prefix `-` marks resources to delete."""
        config = self.proxy.config.get() or {}
        if self.proxy.session is None:
            return ["to connect"]
        refused = {(rejection.type_url, rejection.name) for rejection in self.proxy.rejections()}
        missing = [
            name
            for type_url, resources in config.items()
            for name in resources
            if self.proxy.is_out_of_sync(type_url, name)
            and (type_url, name) not in refused
            and self.is_needed(type_url, name)
        ]
        subscriptions = self.proxy.session.subscriptions
        return missing + [
            f"-{name}" for kind in NAMED_NOWHERE_ELSE for name in subscriptions[kind].acknowledged.keys() - config[kind]
        ]
