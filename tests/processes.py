"""How tests look at a process, stop it and let it go on."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SECONDS = 10.0


def runs(pid: int) -> bool:
    """Return whether a process runs; one that has ended and that its new parent has not reaped does not."""
    try:
        return _state(Path(f"/proc/{pid}")) != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


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


def _state(process: Path) -> str:
    return (process / "stat").read_text().rpartition(")")[2].split()[0]
