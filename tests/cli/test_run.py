"""`headgate run`: signals, without a running headgate."""

import asyncio
import os
import signal

from headgate.cli.run import PASSED, _Signals


async def test_a_signal_during_the_start_of_the_program_reaches_it() -> None:
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
