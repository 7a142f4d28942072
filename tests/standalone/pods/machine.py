"""A local runtime that runs the processes of pods, and the pods of its tests."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from tests.decoding import admitting
from tests.make import objects
from tests.make.objects import container, pod
from tests.watching import until

from headgate.resources.meta import Key, Object
from headgate.standalone.address_pool import AddressPool, claim_range
from headgate.standalone.controllers.services import service_admission, track_cluster_ips
from headgate.standalone.pods.logs import LogOptions
from headgate.standalone.pods.runtime import LocalRuntime
from headgate.standalone.pods.sidecars import ProxyServices
from headgate.standalone.store.memory import MemoryStore

T = TypeVar("T")
SERVER = """
import os, socket, sys
listener = socket.create_server((os.environ["HOST"], int(os.environ["PORT"])))
print("listening", flush=True)
while True:
    connection, _ = listener.accept()
    try:
        connection.recv(65536)
        body = os.environ["POD_NAME"].encode()
        connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\nConnection: close\\r\\n\\r\\n%s" % (len(body), body))
    finally:
        connection.close()
"""
PORTS = [{"name": "http", "containerPort": 18080}]


def python(source: str) -> list[str]:
    return [sys.executable, "-S", "-E", "-c", source]


def process_pod(
    name: str = "web", *, command: list[str] | None = None, spec: Any = None, **fields: Any
) -> objects.Object:
    """Return a pod with a process, by default a server that answers with the name of its pod."""
    app = container(command=command or python(SERVER), **fields)
    return pod(name, containers=[app], labels={"app": "web"}, **{"terminationGracePeriodSeconds": 3, **(spec or {})})


def key(name: str = "web") -> Key:
    return Key("", "Pod", "default", name)


async def at_once(*_: object) -> None:
    """Do nothing: takes the place of the functions `wait_...` of `ProxyServices`."""


def without_proxies(**more: Any) -> ProxyServices:
    """Return proxy services for a machine without proxies."""
    given: dict[str, Any] = dict.fromkeys(ProxyServices._fields) | {
        "variables": {},
        "lowest_port": 0,
        "wait_unrouted": at_once,
        "wait_for_report": at_once,
    }
    return ProxyServices(**given | more)


class ProcessMachine:
    """A store and its runtimes. Each start creates a new runtime, as a restart of headgate does."""

    def __init__(self, state: Path, a: int) -> None:
        self.state = state
        self.addresses = AddressPool(a)
        self.store = MemoryStore(
            admit=admitting(service_admission(self.addresses)), kept=track_cluster_ips(self.addresses)
        )
        self.unrouted: Callable[[str], Any] = at_once
        self.runtime: LocalRuntime
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        proxying = without_proxies(variables={"EXTRA": "given"}, wait_unrouted=self.unrouted)
        self.runtime = LocalRuntime(self.store, self.state, self.addresses, proxying)
        self._task = asyncio.create_task(self.runtime.run())

    async def abandon(self) -> None:
        """End the runtime and leave the processes running, as if headgate were killed."""
        assert self._task
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def until(self, holds: Callable[[], Awaitable[T | None]], seconds: float = 60.0) -> T:
        return await until(self.store, holds, seconds)

    async def get(self, name: str = "web") -> Object:
        return await self.store.get(key(name))

    async def ready(self, name: str = "web") -> Object:
        async def holds() -> Object | None:
            found = await self.get(name)
            facts = (found.get("status") or {}).get("conditions", ())
            return found if any(fact["type"] == "Ready" and fact["status"] == "True" for fact in facts) else None

        return await self.until(holds)

    async def gone(self, name: str = "web") -> None:
        async def holds() -> bool:
            return all(found["metadata"]["name"] != name for found in (await self.store.list("", "Pod")).items)

        await self.until(holds)

    async def state_of(self, reason: str, name: str = "web") -> Any:
        """Wait until the pod's container is waiting or terminated with this reason; return its status."""

        async def holds() -> Any:
            for status in ((await self.get(name)).get("status") or {}).get("containerStatuses", ()):
                if any(said.get("reason") == reason for said in status["state"].values()):
                    return status
            return None

        return await self.until(holds)

    async def event(self, reason: str) -> Object:
        async def holds() -> Object | None:
            found = [event for event in (await self.store.list("", "Event")).items if event["reason"] == reason]
            return found[0] if found else None

        return await self.until(holds)

    async def output(self, name: str = "web", container: str = "app", **options: Any) -> str:
        pieces = [piece async for piece in self.runtime.logs.read(key(name), LogOptions(container, **options))]
        return b"".join(pieces).decode()


@contextlib.asynccontextmanager
async def running(state: Path) -> AsyncIterator[ProcessMachine]:
    """Return a machine with its first runtime, which ends without problems."""
    a, guard = claim_range()
    machine = ProcessMachine(state, a)
    machine.start()
    try:
        yield machine
    finally:
        assert await machine.runtime.stop() == []
        await machine.abandon()
        guard.close()


def pid_of(pod: Object) -> int:
    return int(pod["status"]["containerStatuses"][0]["containerID"].removeprefix("process://"))


async def ask(pod: Object, port: int = 18080) -> str:
    """Send a request to a pod; return the body of the response."""
    reader, writer = await asyncio.open_connection(pod["status"]["podIP"], port)
    writer.write(b"GET / HTTP/1.1\r\nHost: web\r\nConnection: close\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    return text.rpartition("\r\n")[2]
