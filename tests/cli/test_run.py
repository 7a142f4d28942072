"""`headgate run`: what needs no headgate to be seen."""

import asyncio
import os
import signal

from headgate.cli.run import PASSED, _Signals


async def test_a_signal_that_comes_while_the_program_is_being_started_reaches_it() -> None:
    """It may run, and have said so, before we know its process: who asks it to end then must not wait for ever."""
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
