"""A canary for `headgate render`, clients of a proxy, and the test that `--watch` loses none of their requests."""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from tests.cli.conftest import ServedMesh
from tests.differential.backends import Member, ask
from tests.make.objects import Object, endpoint_slice, service, split
from tests.ports import free_port
from tests.wire import Address

REQUEST = b"GET / HTTP/1.1\r\nhost: website\r\n\r\n"


def split_website(port: int = 8080, first: int = 1, second: int = 2) -> list[Object]:
    """Return a split on `port` of two Services, whose only endpoints are on the ports `first` and `second`."""
    name = f"p{port}"
    return [
        *(service(root, port) for root in ("website", "website-v1", "website-v2")),
        endpoint_slice("website-v1", ["127.0.0.1"], {name: first}),
        endpoint_slice("website-v2", ["127.0.0.1"], {name: second}),
        split("website", {"website-v1": 90, "website-v2": 10}),
    ]


def written(directory: Path, *objects: Object) -> str:
    path = directory / "in.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    return str(path)


class Watched(NamedTuple):
    """A proxy whose files `--watch` keeps current: its name, the command that starts it, its main file, and how to run it."""

    name: str
    command: str
    main: str
    running: Callable[[Path], AbstractAsyncContextManager[int]]


class Clients:
    """Clients that send requests until they are stopped, each over a new connection."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.counted: Counter[str | int] = Counter()
        self._running = True

    async def run(self) -> None:
        while self._running:
            self.counted += (await ask(Address("127.0.0.1", self.port), REQUEST, 1)).counted

    def stop(self) -> None:
        self._running = False


async def line_with(process: Any, text: str) -> str:
    """Return the next line of a command's messages with a text."""
    async with asyncio.timeout(60):
        while text not in (line := str((await process.stderr.readline()).decode())):
            assert line, f"the command ended before it printed {text!r}"
    return line


async def assert_watch_loses_no_request(served: ServedMesh, proxy: Watched, directory: Path) -> None:
    """Change weights 100 times, from the first backend to the second, while clients send requests to a running proxy."""
    members = [await Member(number).start() for number in (1, 2)]
    port = free_port()
    for obj in split_website(port, *(member.port for member in members)):
        await served.store.create(obj)
    watching = await served.start(
        "render", proxy.name, "--service", "website", "--output-dir", str(directory), "--watch"
    )
    try:
        assert f"start it with {proxy.command}" in await line_with(watching, "has the new configuration")
        async with proxy.running(directory), asyncio.TaskGroup() as tasks:
            assert "the proxy loads it" in await line_with(watching, "")  # the next line, without a change to objects
            clients = Clients(port)
            sending = [tasks.create_task(clients.run()) for _ in range(4)]
            for weight in range(1, 101):
                await served.store.update(split("website", {"website-v1": 100 - weight, "website-v2": weight}))
                if weight % 10 == 5:  # so that the proxy reloads during the changes, not only after them
                    await line_with(watching, "the proxy loads it")
            while f":{members[0].port} " in (directory / proxy.main).read_text():
                await line_with(watching, "the proxy loads it")
            while (await ask(Address("127.0.0.1", port), REQUEST, 1)).counted != {"member 2": 1}:
                pass  # the workers with the earlier weights accept connections until they end
            clients.stop()
            await asyncio.gather(*sending)
    finally:
        watching.terminate()
        await watching.wait()
    for member in members:
        member.close()
    assert set(clients.counted) == {"member 1", "member 2"}
