"""A long-lived Envoy that serves one world after the other over xDS; `lab` and `sidecar_lab` send requests to it.

Worlds contain placeholders: `member-3` for the port of a backend, `address-2` for an address. The lab fills in the
values of this test run, so that a world is the same value in every run.
"""

import asyncio
import os
import tempfile
from pathlib import Path

from tests.wire import Network

from headgate.compiler.compile import compile_mesh
from headgate.envoy.bootstrap import bootstrap
from headgate.envoy.config import LISTENER, SCOPES
from headgate.envoy.encode import Memo, encode
from headgate.latest import until
from headgate.plane.feed import snapshot_of
from headgate.settings import Settings
from headgate.standalone.address_pool import LAST_RANGE
from headgate.standalone.proxies.envoy_process import EnvoyProcess, find_envoy
from headgate.xds.fleet import Fleet
from headgate.xds.server import XdsServer

SETTLED_S = 60
NAMED_NOWHERE_ELSE = (LISTENER, SCOPES)  # a proxy uses these resources until their deletion, so the lab waits for it


class EnvoyLab:
    """An Envoy as a context manager. Subclasses define `prepare`, which starts the members, and the proxy's `view`."""

    def __init__(self, node_id):
        self.node_id = node_id
        self.network = Network()
        self.memo = Memo()
        self.fleet = Fleet()
        self.proxy = self.fleet.expect(node_id)
        # Concurrent test runs have different addresses, and headgate uses none of them.
        self.subnet = f"127.{LAST_RANGE + 1 + os.getpid() % 128}.{os.getpid() // 128 % 255}"
        self.members = []

    def __enter__(self):
        self.directory = tempfile.TemporaryDirectory(prefix="hg")
        self.network.run(self._start(Path(self.directory.name)))
        return self

    def __exit__(self, *_):
        self.network.run(self._stop())
        self.network.close()
        self.directory.cleanup()

    async def _start(self, directory):
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

    async def _stop(self):
        await self.envoy.stop()
        await self.server.stop()
        for member in self.members:
            member.close()

    def placed(self, value):
        """Return a value with the placeholders filled in."""
        if isinstance(value, dict):
            return {name: self.placed(item) for name, item in value.items()}
        if isinstance(value, list):
            return [self.placed(item) for item in value]
        kind, _, number = value.rpartition("-") if isinstance(value, str) else ("", "", "")
        if kind == "member":
            return self.members[int(number)].port
        return f"{self.subnet}.{number}" if kind == "address" else value

    def forget(self):
        """Reset the counters of the members."""
        for member in self.members:
            member.take()

    def _offer(self, mesh):
        self.memo.begin_build()
        self.proxy.config.set(encode(self.view(mesh), self.memo))

    async def settle(self, mesh):
        """Push a mesh, and wait until the proxy has acknowledged every resource. Fail if it rejects a resource."""
        self._offer(mesh)
        try:
            async with asyncio.timeout(SETTLED_S):
                await until(lambda: not self._awaited(), self.fleet.change_count)
        except TimeoutError:
            raise AssertionError(f"the proxy has not acknowledged {self._awaited()}") from None
        refused = list(self.proxy.rejections())
        assert not refused, f"the proxy rejected {refused}"

    def is_needed(self, _type_url, _name):
        """Return whether the proxy subscribes to a resource of its configuration; subclasses may override this."""
        return True

    def _awaited(self):
        """Return the resources that the proxy has not acknowledged yet; the prefix `-` marks resources to delete."""
        config = self.proxy.config.get()
        if self.proxy.session is None:
            return ["to connect"]
        refused = {(item.type_url, item.name) for item in self.proxy.rejections()}
        missing = [
            name
            for type_url, items in config.items()
            for name in items
            if self.proxy.is_out_of_sync(type_url, name)
            and (type_url, name) not in refused
            and self.is_needed(type_url, name)
        ]
        subscriptions = self.proxy.session.subscriptions
        return missing + [
            f"-{name}" for kind in NAMED_NOWHERE_ELSE for name in subscriptions[kind].acknowledged.keys() - config[kind]
        ]
