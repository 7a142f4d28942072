"""An embedded API with a machine that runs pods, for a real kubectl and for raw WebSocket clients."""

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp import ClientSession, ClientWebSocketResponse, TCPConnector, WSMsgType
from tests.api_client import access
from tests.embedded_api import TOKEN, EmbeddedApi, KubectlPort
from tests.sockets import Sockets
from tests.standalone.pods import machine as machines
from tests.standalone.pods.machine import ProcessMachine, process_pod

from headgate.standalone.apiserver.app import ComputedGroups, create_app
from headgate.standalone.apiserver.local_pods import LocalPods
from headgate.standalone.usage import UsageMeter

SLEEP = ["sleep", "3600"]
V5 = "v5.channel.k8s.io"


class PodApi(NamedTuple):
    """An embedded API with a machine that runs pods."""

    api: EmbeddedApi
    machine: ProcessMachine

    async def run(self, name: str = "web", **fields: Any) -> None:
        """Run a pod that sleeps, or has the given fields of its container."""
        await self.machine.store.create(process_pod(name, **{"command": SLEEP, **fields}))
        await self.machine.ready(name)

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator["RawClient"]:
        given, sockets = access(self.api.kubeconfig), Sockets()
        connector = TCPConnector(limit=0, socket_factory=sockets.open)
        async with ClientSession(
            f"https://{given.host}:{given.port}", headers=given.headers, connector=connector
        ) as session:
            yield RawClient(session, given.tls)
        await sockets.close()


class RawClient(NamedTuple):
    """A client that opens WebSockets by itself."""

    http: ClientSession
    tls: Any

    async def open(self, query: str, *, what: str = "exec") -> ClientWebSocketResponse[Any]:
        path = f"/api/v1/namespaces/default/pods/web/{what}?{query}"
        return await self.http.ws_connect(path, ssl=self.tls, max_msg_size=0, protocols=(V5,))

    async def refused(self, query: str, *, what: str = "exec", **more: Any) -> tuple[int, str]:
        """Request a WebSocket that the server refuses; return the code and message of its Status."""
        path = f"/api/v1/namespaces/default/pods/web/{what}?{query}"
        headers = {"connection": "upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
        headers |= {"sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==", "sec-websocket-protocol": V5}
        async with self.http.get(path, ssl=self.tls, headers=headers | more) as answer:
            status = await answer.json()
            assert status["kind"] == "Status"
            assert status["code"] == answer.status
            return answer.status, status["message"]


async def output(socket: ClientWebSocketResponse[Any]) -> tuple[bytes, Any]:
    """Read a session to its end; return stdout, and the Status (None if there is none)."""
    stdout, status = b"", None
    async for message in socket:
        assert message.type is WSMsgType.BINARY
        if message.data[0] == 1:
            stdout += message.data[1:]
        elif message.data[0] == 3:
            status = json.loads(message.data[1:])
    return stdout, status


@contextlib.asynccontextmanager
async def running_pods(port: KubectlPort, state: Path) -> AsyncIterator[PodApi]:
    async with machines.running(state) as machine:
        pods = LocalPods(machine.runtime.logs.read, machine.runtime.container)
        computed = ComputedGroups(usage=UsageMeter(machine.runtime.processes))
        app = create_app(machine.store, token=TOKEN, pods=pods, computed=computed)
        async with port.serving(machine.store, app) as api:
            yield PodApi(api, machine)
