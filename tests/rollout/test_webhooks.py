"""Webhooks are Services of the Canary's namespace; the status of their response is the answer (R108)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from msgspec import structs
from tests import virtual_time
from tests.make.objects import service

from headgate.compiler.snapshot import Snapshot
from headgate.latest import Latest
from headgate.plane.feed import snapshot_of
from headgate.resources.mesh.canary.analysis import Webhook, When
from headgate.resources.meta import Key
from headgate.resources.registry import key_of
from headgate.rollout.state import WebhookAnswer
from headgate.rollout.webhooks import Occasion, Webhooks

CANARY = Key("headgate.dev", "Canary", "default", "website")
FIRST, SECOND = Occasion("subject", 0, When.DURING), Occasion("subject", 1, When.DURING)


class Program:
    """A real HTTP server that answers with `status`, and the bodies that it got."""

    def __init__(self) -> None:
        self.status = 200
        self.bodies: list[Any] = []
        self.paths: list[str] = []

    async def handle(self, request: web.Request) -> web.Response:
        self.bodies.append(await request.json())
        self.paths.append(f"{request.host}{request.path}")
        return web.Response(status=self.status)

    @asynccontextmanager
    async def run(self, address: str = "127.0.0.1") -> AsyncIterator[tuple[Webhooks, Webhook]]:
        app = web.Application()
        app.router.add_post("/{path:.*}", self.handle)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, address, 0)
        await site.start()
        port = runner.addresses[0][1]
        obj = service("tests", port, clusterIP=address)
        hooks = Webhooks(Latest(snapshot_of({key_of(obj): obj})), asyncio.get_running_loop().time)
        yield hooks, Webhook(name="check", when=When.DURING, service="tests", port=port, path="/ready")
        await hooks.close()
        await runner.cleanup()


async def answer_to(hooks: Webhooks, hook: Webhook, occasion: Occasion, every_s: float = 60) -> WebhookAnswer:
    while True:
        hooks.call(CANARY, hook, occasion, {"step": occasion.step}, every_s)
        if found := hooks.answers(CANARY, occasion).get("check"):
            return found
        await asyncio.sleep(0.01)


def test_the_status_of_the_response_is_the_answer() -> None:
    async def scenario() -> None:
        program = Program()
        async with program.run() as (hooks, hook):
            for status, agrees in ((204, True), (403, False), (503, None), (302, None)):
                program.status = status
                hooks.forget(CANARY)
                assert await answer_to(hooks, hook, FIRST) == WebhookAnswer(agrees, f"status {status}")
        assert program.bodies[0] == {"step": 0}
        assert program.paths[0] == f"tests.default:{hook.port}/ready"

    virtual_time.run(scenario())


def test_a_webhook_is_called_again_after_the_interval_and_for_each_step() -> None:
    async def scenario() -> None:
        program = Program()
        async with program.run() as (hooks, hook):
            await answer_to(hooks, hook, FIRST)
            await asyncio.sleep(59)
            await answer_to(hooks, hook, FIRST)
            assert len(program.bodies) == 1
            await asyncio.sleep(2)
            hooks.call(CANARY, hook, FIRST, {"step": 0}, 60)
            while len(program.bodies) < 2:  # the time of the real request does not count
                await asyncio.sleep(0.01)
            assert not hooks.answers(CANARY, SECOND)
            await answer_to(hooks, hook, SECOND)
            assert [body["step"] for body in program.bodies] == [0, 0, 1]

    virtual_time.run(scenario())


def test_a_path_does_not_change_the_host() -> None:
    async def scenario() -> None:
        program = Program()
        async with program.run() as (hooks, hook):
            outside = structs.replace(hook, port=1, path=f"@127.0.0.1:{hook.port}/")
            assert (await answer_to(hooks, outside, FIRST)).agrees is None
            assert not program.paths

    virtual_time.run(scenario())


def test_an_ipv6_address_is_called() -> None:
    async def scenario() -> None:
        program = Program()
        async with program.run("::1") as (hooks, hook):
            assert await answer_to(hooks, hook, FIRST) == WebhookAnswer(True, "status 200")

    virtual_time.run(scenario())


def test_without_a_server_there_is_no_answer_and_the_reason_is_known() -> None:
    async def scenario() -> None:
        known: Latest[Snapshot | None] = Latest(None)
        hooks = Webhooks(known, asyncio.get_running_loop().time)
        hook = Webhook(name="check", when=When.DURING, service="tests", port=1)
        found = await answer_to(hooks, hook, FIRST)
        assert found == WebhookAnswer(None, "Service default/tests does not exist, or has no address")
        obj = service("tests", 1, clusterIP="127.0.0.1")
        known.set(snapshot_of({key_of(obj): obj}))
        hooks.forget(CANARY)
        found = await answer_to(hooks, hook, FIRST)
        assert found.agrees is None
        assert "no response" in found.text
        await hooks.close()

    virtual_time.run(scenario())
