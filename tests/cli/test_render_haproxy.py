"""`headgate render haproxy`: the configuration from files, and `--watch` with a running HAProxy."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cli.conftest import World, make_split
from tests.cli.test_render import REQUEST, Clients, canary, line_with, written
from tests.differential.backends import Member, ask
from tests.ports import free_port
from tests.render.haproxy.haproxy_process import needs_haproxy, running

from headgate.proxy_programs.haproxy import MAIN

CLIENTS = 4
CHANGES = 100


def test_render_prints_exact_weights(run: Callable[..., Any], tmp_path: Path) -> None:
    shown = run("render", "haproxy", "-f", written(tmp_path, *canary()), "--service", "website")
    assert shown.code == 0
    assert "server default.website-v1:8080:0 127.0.0.1:1 weight 9" in shown.out
    assert "server default.website-v2:8080:0 127.0.0.1:2 weight 1" in shown.out


@needs_haproxy
async def test_watch_loses_no_request_while_weights_change(world: World, tmp_path: Path) -> None:
    members = [await Member(number).start() for number in (1, 2)]
    port, directory = free_port(), tmp_path / "haproxy"
    for obj in canary(port, *(member.port for member in members)):
        await world.store.create(obj)
    watching = await world.start("render", "haproxy", "--service", "website", "-o", str(directory), "--watch")
    try:
        assert "start it with `haproxy -W -p" in await line_with(watching, "has the new configuration")
        async with running(directory), asyncio.TaskGroup() as tasks:
            clients = Clients(port)
            sending = [tasks.create_task(clients.run()) for _ in range(CLIENTS)]
            for weight in range(1, CHANGES + 1):
                await world.store.update(make_split({"website-v1": CHANGES - weight, "website-v2": weight}))
                if weight % 10 == 5:  # so that HAProxy reloads during the changes, not only after them
                    await line_with(watching, "the proxy loads it")
            while f":{members[0].port} " in (directory / MAIN).read_text():
                await line_with(watching, "the proxy loads it")
            while (await ask(("127.0.0.1", port), REQUEST, 1)).counted != {"member 2": 1}:
                pass  # the worker with the earlier weights accepts connections until it ends
            clients.stop()
            await asyncio.gather(*sending)
    finally:
        watching.terminate()
        await watching.wait()
    for member in members:
        member.close()
    assert set(clients.counted) == {"member 1", "member 2"}
