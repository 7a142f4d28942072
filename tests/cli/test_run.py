"""`headgate run`: signals and programs that can't be started, without a running headgate."""

import asyncio
import os
import signal
from typing import Any

import pytest

from headgate.cli.output import EXIT_NOT_FOUND, NotStarted, exit_code
from headgate.cli.run import PASSED, _foreground, _Signals


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
    pod = {
        "metadata": {"name": "run-1", "namespace": "default"},
        "spec": {"containers": [{"name": "process", "command": ["nosuchprogram"]}]},
        "status": {"podIP": "127.77.0.1"},
    }
    client: Any = None
    with pytest.raises(NotStarted, match=r"^program 'nosuchprogram' not found on this machine") as caught:
        await _foreground(client, pod, ["nosuchprogram"], _Signals())
    assert exit_code(caught.value) == EXIT_NOT_FOUND
