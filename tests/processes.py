"""How tests stop a process and let it go on."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SECONDS = 10.0


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop a process while the context lasts. It begins when no thread runs any more: one that waits may run once more."""
    os.kill(pid, signal.SIGSTOP)
    try:
        end = time.monotonic() + SECONDS
        while any(_state(task) != "T" for task in Path(f"/proc/{pid}/task").iterdir()):
            assert time.monotonic() < end, f"process {pid} did not stop"
            time.sleep(0.001)
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _state(task: Path) -> str:
    return (task / "stat").read_text().rpartition(")")[2].split()[0]
