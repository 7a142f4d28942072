"""`headgate run`: signals and programs that can't be started, without a running headgate."""

import asyncio
import os
import signal
from typing import Any

import pytest
from aiohttp import web
from tests.kubernetes.http_server import serving

from headgate.cli.output import EXIT_NOT_FOUND, NotStarted, exit_code
from headgate.cli.run import PASSED, _foreground, _print_addresses, _Signals
from headgate.kubernetes.client import Client
from headgate.resources.core.pod_metadata import APPLICATION_PORTS
from headgate.standalone.processes import Launch

POD: dict[str, Any] = {
    "metadata": {"name": "run-1", "namespace": "default", "uid": "1"},
    "spec": {"containers": [{"name": "process", "command": ["sleep"]}]},
    "status": {"podIP": "127.77.0.1"},
}


async def test_the_program_receives_a_signal_sent_during_its_start() -> None:
    """The program can run before `pass_to` is called; the signal must not be lost."""
    loop, signals = asyncio.get_running_loop(), _Signals()
    signals.listen()
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        process = await asyncio.create_subprocess_exec("sleep", "600")
        signals.pass_to(process)
        assert await process.wait() == -signal.SIGTERM
    finally:
        for number in PASSED:
            loop.remove_signal_handler(number)


async def test_the_error_about_a_missing_program_names_the_program() -> None:
    client: Any = None
    with pytest.raises(NotStarted, match=r"^program 'nosuchprogram' not found on this machine") as caught:
        await _foreground(client, POD, Launch(command=("nosuchprogram",), env={}), _Signals())
    assert exit_code(caught.value) == EXIT_NOT_FOUND


def test_addresses_are_printed_as_the_machine_reaches_them(capsys: pytest.CaptureFixture[str]) -> None:
    """Without root, it reaches 10.A.x.y as 127.A.x.y; only other pods reach ports for which it would need root."""
    pod = {**POD, "metadata": {**POD["metadata"], "annotations": {APPLICATION_PORTS: "80=23790,8080=23791"}}}
    _print_addresses(pod, "10.77.128.1", 1024)
    assert capsys.readouterr().err == (
        "pod default/run-1: 10.77.128.1:80 is forwarded to port 23790 ($PORT_80), "
        "127.77.128.1:8080 is forwarded to port 23791 ($PORT_8080)\n"
    )


async def test_the_program_outlives_a_failing_api_server_and_ends_with_its_pod() -> None:
    lists = [web.json_response({"message": "the server is starting"}, status=503) for _ in range(2)]
    lists.append(web.json_response({"items": [], "metadata": {"resourceVersion": "7"}}))

    async def answer(_request: web.Request) -> web.Response:
        return lists.pop(0)

    async with serving(answer) as credentials, Client(credentials) as client, asyncio.timeout(60):
        assert (
            await _foreground(client, POD, Launch(command=("sleep", "600"), env={}), _Signals()) == 128 + signal.SIGTERM
        )
    assert not lists
