"""HAProxy as a program on this machine: the check of a configuration, and a graceful reload."""

import os
import signal
import time
from pathlib import Path
from typing import NamedTuple

from headgate.proxy_programs.programs import output_of_failure

MAIN = "haproxy.cfg"
PID_FILE = "haproxy.pid"
_RELOAD_S, _AGAIN_S, _PAUSE_S = 10.0, 0.5, 0.01


class Haproxy(NamedTuple):
    """HAProxy that runs with the files of a directory, as a master process with workers (`-W`)."""

    program: str

    def check(self, directory: Path, main: Path) -> str:
        """Return why HAProxy rejects a file; empty if it accepts it, or if this machine has no HAProxy."""
        if not self.program:
            return ""
        messages = output_of_failure([self.program, "-c", "-f", str(directory / main)])
        errors = [line for line in messages.splitlines() if line.startswith("[ALERT]")]
        return "\n".join(errors) or messages

    def reload(self, directory: Path) -> str:
        """Reload the HAProxy of the directory: a new worker takes the ports, and the old one completes its requests.

        If the new worker cannot start, the old one continues.
        """
        try:
            master = int((directory / PID_FILE).read_text())
            return _reloaded(master)
        except (OSError, ValueError):
            start = f"haproxy -W -p {directory / PID_FILE} -f {directory / MAIN}"
            return f"no HAProxy runs with it; start it with `{start}`, or set --reload"


def _reloaded(master: int) -> str:
    """Reload a master process, and wait for its new worker; return why that failed, or an empty text.

    HAProxy 2.6 loses a signal while it starts or reloads, so the signal is sent again until there is a new worker.
    """
    deadline, before = time.monotonic() + _RELOAD_S, _workers(master)
    again = 0.0
    while (now := time.monotonic()) < deadline:
        if before and _workers(master) - before:
            return ""
        before = before or _workers(master)
        if now >= again:
            os.kill(master, signal.SIGUSR2)
            again = now + _AGAIN_S
        time.sleep(_PAUSE_S)
    return f"its master process has started no worker for {_RELOAD_S:.0f} s"


def _workers(master: int) -> frozenset[str]:
    return frozenset(Path(f"/proc/{master}/task/{master}/children").read_text().split())
